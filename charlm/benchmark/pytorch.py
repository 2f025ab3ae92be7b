"""The base class of PyTorch paths: device, precision, the trial of torch.compile, and the optimizer step.

Subclass it to add a path in PyTorch; open it to see when a compiled model replaces the eager one.
"""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Callable

import numpy as np
import torch

from charlm.benchmark.hlm import hlm_config
from charlm.benchmark.paths import PRODUCT, Job, Runner, product_speed, threads
from charlm.core.types import Tree

TRIALS = 2  # timed runs for each of eager and compiled execution, by which the two are compared


def bare_product(dtype: str) -> float:
    """Returns the speed of a bare product in PyTorch in GFLOP/s; see `charlm.benchmark.hlm.bare_product`."""
    rows, width, columns = PRODUCT
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = (
        torch.full(shape, 0.5, dtype=getattr(torch, dtype), device=device)
        for shape in ((rows, width), (width, columns))
    )

    def multiply() -> None:
        torch.matmul(x, y)
        if device == "cuda":
            torch.cuda.synchronize()

    with torch.inference_mode():
        return product_speed(multiply)


class TorchRunner(Runner):
    """A path in PyTorch; subclasses set `model` (by `place`) and implement `compute` and `key`."""

    model: torch.nn.Module

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        torch.set_num_threads(threads())
        torch.manual_seed(0)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype = getattr(torch, job.dtype)
        if self.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = True  # as JAX does by default on a GPU
        self.about = {"device": torch.cuda.get_device_name() if self.device.type == "cuda" else "1 x cpu"}
        self._compiled: torch.nn.Module | None = None
        self._modules: dict[tuple[int, ...], torch.nn.Module] = {}

    def place(self, model: torch.nn.Module, parameters_dtype: torch.dtype) -> None:
        """Moves the model to the device."""
        self.model = model.to(self.device, parameters_dtype)
        self.about["parameters_dtype"] = str(parameters_dtype).removeprefix("torch.")

    def put(self, array: np.ndarray) -> torch.Tensor:
        """Copies an array to the device."""
        return torch.from_numpy(array).to(self.device)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Returns the autocast context for a lower precision; it changes nothing in float32."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def module(self, host: Tree) -> torch.nn.Module:
        """Returns the model, eager or compiled, whichever was faster for batches of this shape."""
        return self._modules.get(self.key(host), self.model)

    @abc.abstractmethod
    def key(self, host: Tree) -> tuple[int, ...]:
        """Returns the shape of a batch."""

    @abc.abstractmethod
    def compute(self, host: Tree) -> object:
        """Starts the measured work without waiting for the device."""

    def run(self, host: Tree) -> object:
        """See `Runner`."""
        result = self.compute(host)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return result

    def warm(self, host: Tree) -> None:
        """See `Runner`; also tries torch.compile, and keeps it if it works and is faster."""
        self.run(host)
        key = self.key(host)
        chosen = self.about.setdefault("torch_compile", [])
        if not self.job.compile:
            chosen.append("not tried")
            return
        eager = self._best_of(lambda: self.run(host))
        try:
            if self._compiled is None:
                self._compiled = torch.compile(self.model)
            self._modules[key] = self._compiled
            self.run(host)
            compiled = self._best_of(lambda: self.run(host))
        except Exception as error:  # the compiler can fail in many ways; after any of them, use eager execution
            self._modules.pop(key, None)
            chosen.append(f"failed: {type(error).__name__}")
            return
        if compiled >= eager:
            del self._modules[key]
        chosen.append(f"{'kept' if compiled < eager else 'slower'}: {compiled:.3g} s, eager {eager:.3g} s")

    def _best_of(self, work: Callable[[], object]) -> float:
        times = []
        for _ in range(TRIALS):
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
        return min(times)

    def device_peak(self) -> int | None:
        """See `Runner`."""
        return torch.cuda.max_memory_allocated() if self.device.type == "cuda" else None

    def start_training(self) -> None:
        """Makes the optimizer: PyTorch's fused AdamW with the settings of HLM."""
        optim = hlm_config(self.job).optim
        self._clip = optim.clip_norm
        decay = [p for p in self.model.parameters() if p.ndim >= 2]
        rest = [p for p in self.model.parameters() if p.ndim < 2]
        self._optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": optim.weight_decay}, {"params": rest, "weight_decay": 0.0}],
            lr=optim.learning_rate, betas=(optim.b1, optim.b2), eps=optim.eps, fused=True,
        )  # fmt: skip
        self.model.train()

    def step(self, loss: torch.Tensor) -> torch.Tensor:
        """Does the backward pass and the update; returns the loss."""
        loss.backward()
        if self._clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.detach()

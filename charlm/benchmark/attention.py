"""The paths of the case `attention`: attention between words alone, by each kernel, and whether each computes it right.

Open it to see exactly what is timed, counted and compared. What runs is the models' own module, HLM's
`DisentangledAttention` or BERT's `Attention`, with its projections taken out: queries, keys, values and positions are
random arrays, and gradients are those of all of them. So a time has nothing in it but scores, softmax, dropout and
mixing, and what a kernel needs to arrange them.

`python -m charlm.benchmark.attention JOB.json` says which kernels can run here, in one JSON line, so that the process
that starts the paths need not load JAX.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.module import InterceptorContext
from jax.typing import DTypeLike

from charlm.benchmark.attention_case import DISENTANGLED, GRADIENT, INTERPRETED, Checks
from charlm.benchmark.hlm import hlm_config, jax_peak
from charlm.benchmark.paths import Job, Runner
from charlm.core import flops
from charlm.core.hashed_keys import hashed
from charlm.families.hlm.config import model_config
from charlm.nn import kernels
from charlm.nn.apply import applied
from charlm.nn.attention import DisentangledAttention
from charlm.nn.blocks import Attention
from charlm.nn.embed import Dense
from charlm.nn.kernels import CUDNN, EINSUM, PALLAS, this_machine
from charlm.nn.tiled import fills

RUN_SECONDS, MOST_CALLS = 0.1, 200  # a run makes so many calls that the start of a single one hardly counts
CHECKED_ROWS = 2  # rows of the batch that are compared with the reference, whose float32 scores take much memory
HIDDEN_SHARE = 8  # where values are compared, the last 1 of so many words are padding

Inputs = dict[str, jax.Array]  # by the name of the projection that gives it: query, key, value, pos_key, pos_query
Result = dict[str, jax.Array]  # "values" [B, L, D], and the gradients by the name of the input


class Call(NamedTuple):
    """What one call computes: [rows, words, D], with positions or without, forward alone or with gradients."""

    rows: int
    words: int
    positions: str
    direction: str


def make(job: Job) -> Runner:
    """Returns the runner of a job."""
    return AttentionRunner(job)


class AttentionRunner(Runner):
    """Makes calls of one kernel, one after another; `about["checks"]` says what was found out about each batch."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        shape = model_config(hlm_config(job))
        self.hidden, self.heads, self.dtype = shape.hidden, shape.heads, jnp.dtype(job.dtype)
        self.buckets, self.max_distance, self.rate = (
            shape.position_buckets, shape.max_relative_words, shape.attention_dropout,
        )  # fmt: skip
        # An interpreted kernel is checked, but its time would say nothing about the kernel.
        self.timed = not (job.path == PALLAS and this_machine().platform == "cpu")
        self._programs: dict[Call, tuple[jax.stages.Compiled, tuple[Inputs | jax.Array, ...]]] = {}
        self._calls: dict[Call, int] = {}
        self.about = {"device": f"1 x {jax.devices()[0].device_kind}", "checks": []}  # the others have nothing to do

    def tokenise(self, texts: list[str], words: int) -> Call:
        """See `Runner`; there is a text for each row, which says what is computed."""
        positions, direction = texts[0].split()
        return Call(len(texts), words, positions, direction)

    def warm(self, host: Call) -> None:
        """See `Runner`; also compares the kernel with the reference, and two of its runs."""
        arguments = self._inputs(host), jnp.ones((host.rows, host.words), bool), hashed(jax.random.key(0))
        compute = self.function(self.job.path, host, drops=host.direction == GRADIENT)
        compiled = jax.jit(compute).lower(*arguments).compile()
        self._programs[host], self._calls[host] = (compiled, arguments), 1
        analysis = compiled.memory_analysis()
        checks = Checks(
            timed=self.timed,
            temporaries_mib=None if analysis is None else round(analysis.temp_size_in_bytes / 2**20, 3),
            same_bits=same_bits(self.run(host), self.run(host)),
            errors=self.errors(host),
            calls=1,
        )
        if self.timed and this_machine().platform != "cpu":
            started = time.perf_counter()
            self.run(host)
            seconds = time.perf_counter() - started
            self._calls[host] = min(MOST_CALLS, math.ceil(RUN_SECONDS / seconds))
        self.about["checks"].append(checks._replace(calls=self._calls[host])._asdict())

    def run(self, host: Call) -> Result:
        """See `Runner`; returns the result of the last call."""
        compiled, arguments = self._programs[host]
        result = {}
        for _ in range(self._calls[host]):
            result = compiled(*arguments)
        return jax.block_until_ready(result)

    def function(self, kernel: str, call: Call, drops: bool, dtype: DTypeLike | None = None) -> Callable[..., Result]:
        """Returns what a call computes, a function of inputs, mask [B, L] and the key of dropout."""
        dtype = self.dtype if dtype is None else dtype

        def values(inputs: Inputs, mask_BL: jax.Array, key: jax.Array) -> jax.Array:
            rngs = {"dropout": key} if drops else None
            with without_projections(inputs):
                if call.positions == DISENTANGLED:
                    module = DisentangledAttention(self.heads, self.max_distance, self.rate, 0.0, "bert", dtype, kernel)
                    table_RD = jnp.zeros((2 * self.buckets, self.hidden))  # the rows in use are counted by it
                    return applied(module, {}, rngs)(inputs["query"], mask_BL, table_RD, call.words, not drops)
                plain = applied(Attention(self.heads, self.rate, "bert", dtype, kernel), {}, rngs)
                visible_B1QN = mask_BL[:, None, None]
                return plain(inputs["query"], visible_B1QN, deterministic=not drops, probabilities=False)[0]

        def with_gradients(inputs: Inputs, mask_BL: jax.Array, key: jax.Array) -> Result:
            found, pullback = jax.vjp(lambda given: values(given, mask_BL, key), inputs)
            # A cotangent that differs from place to place; the values themselves are at hand.
            return {"values": found} | pullback(found)[0]

        if call.direction == GRADIENT:
            return with_gradients
        return lambda inputs, mask_BL, key: {"values": values(inputs, mask_BL, key)}

    def errors(self, call: Call) -> dict[str, float | None]:
        """Returns how far a kernel is from `einsum` in float32: see `distance`; for values and each gradient.

        Both read the same numbers, rounded to the kernel's dtype. There is no dropout, since kernels draw different
        masks, and the last words of each row are hidden.
        """
        call = call._replace(rows=min(call.rows, CHECKED_ROWS))
        inputs, key = self._inputs(call), hashed(jax.random.key(0))
        shown = call.words - call.words // HIDDEN_SHARE
        mask_BL = jnp.broadcast_to(jnp.arange(call.words) < shown, (call.rows, call.words))
        found = jax.jit(self.function(self.job.path, call, drops=False))(inputs, mask_BL, key)
        with jax.default_matmul_precision("highest"):  # accelerators would round the factors even in float32
            exact = jax.jit(self.function(EINSUM, call, drops=False, dtype=jnp.float32))
            expected = exact({name: x.astype(jnp.float32) for name, x in inputs.items()}, mask_BL, key)
        return {name: distance(found[name], expected[name]) for name in expected}

    def _inputs(self, call: Call) -> Inputs:
        """Returns random arrays, for which the scores have a variance of about 1."""
        of_words = (call.rows, call.words, self.hidden)
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("query", "key", "value"), of_words)
        if call.positions == DISENTANGLED:
            shapes |= dict.fromkeys(("pos_key", "pos_query"), (2 * self.buckets, self.hidden))
        draws = jax.random.split(jax.random.key(1), len(shapes))
        return {name: jax.random.normal(k, shapes[name], self.dtype) for name, k in zip(shapes, draws, strict=True)}

    def work(self, host: Call) -> dict[str, float]:
        """See `Runner`; the operations of one call, all of them useful: those of a layer less its projections."""
        tokens, pairs = host.rows * host.words, host.rows * host.words**2
        buckets = self.buckets if host.positions == DISENTANGLED else 0
        layer = functools.partial(flops.layer, tokens, tokens, hidden=self.hidden, ffn=0)
        forward = layer(pairs=pairs, buckets=buckets) - layer(pairs=0)
        passes = flops.TRAINING if host.direction == GRADIENT else 1
        peak = flops.peak(jax.devices()[0].device_kind, self.job.dtype)
        return {"useful_gflop": passes * forward / 1e9} | ({"peak_gflop": peak / 1e9} if peak else {})

    def tokens(self, host: Call) -> tuple[float, int]:
        """See `Runner`."""
        return host.words, host.words

    def device_peak(self) -> int | None:
        """See `Runner`."""
        return jax_peak()


@contextlib.contextmanager
def without_projections(inputs: Inputs) -> Iterator[None]:
    """In this context, modules get their projections from `inputs`, by name, and give the mixed values themselves."""

    def given(
        call: Callable[..., jax.Array], args: tuple[jax.Array, ...], kwargs: dict[str, object], at: InterceptorContext
    ) -> jax.Array:
        if not isinstance(at.module, Dense):
            return call(*args, **kwargs)
        name = at.module.name
        assert name is not None  # the modules name all of them
        return args[0] if name == "output" else inputs[name][: len(args[0])]  # of the rows of positions, those in use

    with nn.intercept_methods(given):
        yield


def same_bits(one: Result, other: Result) -> bool:
    """Returns whether all arrays of two results are the same, bit by bit."""
    bits = lambda result: {name: np.asarray(x).tobytes() for name, x in result.items()}
    return bits(one) == bits(other)


def distance(found: jax.Array, expected: jax.Array) -> float | None:
    """Returns the largest difference, as a share of the largest expected value; None if it is not finite."""
    x, y = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    share = float(np.abs(x - y).max() / np.abs(y).max())
    return share if math.isfinite(share) else None


def left_out(machine: kernels.Machine, dtype: DTypeLike, head_dim: int, words: int, smoke: bool) -> dict[str, str]:
    """Returns why kernels cannot be measured on a machine, by kernel, for windows of so many words."""
    of_head = jax.ShapeDtypeStruct((words, head_dim), jnp.dtype(dtype))
    tiled = kernels.tiled_obstacle(machine, of_head, words)
    if machine.platform == "cpu" and not smoke:
        tiled = INTERPRETED
    elif not fills(words, words, machine.tiles):  # the modules would give such a window to the reference
        tiled = f"{words} words would leave most of a tile empty"
    reasons = {PALLAS: tiled, CUDNN: kernels.obstacle(machine, jnp.dtype(dtype), head_dim)}
    return {name: why for name, why in reasons.items() if why}


def main(path: str) -> int:
    """Prints the platform, and why kernels are left out for the windows of a job; returns the exit status."""
    job = Job.load(path)
    try:
        shape = model_config(hlm_config(job))
        reasons = left_out(this_machine(), job.dtype, shape.hidden // shape.heads, job.words[0], job.smoke)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({"platform": this_machine().platform, "left_out": reasons}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

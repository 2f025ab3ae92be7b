"""A run of a linear model, small enough to be trained dozens of times in a test, some of whose batches are corrupt."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from charlm.config import from_dict, get_config, to_json
from charlm.core.learning import Learning
from charlm.core.optimizer import learning_rate, make_optimizer
from charlm.core.profiling import StepProfiler
from charlm.core.sharding import make_mesh, path_name, place_state
from charlm.core.spikes import new_history
from charlm.core.state import new_state
from charlm.training.assembly import Setup, assembled
from charlm.training.course import Course
from charlm.training.first_state import Start
from charlm.training.loop import Loop
from charlm.training.program import make_program

SHARDS, FEATURES = 8, 4


class Rows(NamedTuple):
    x: np.ndarray
    y: np.ndarray


class Sums(NamedTuple):
    loss: jax.Array
    weight: jax.Array


class Squares(Learning):
    """Squared errors of a linear map."""

    sums, unit = Sums, "rows"

    def loss_sums(self, params, micro_batch, dropout_key):
        errors = (micro_batch.x @ params["linear"]["kernel"])[..., 0] - micro_batch.y
        return Sums(jnp.sum(errors**2), jnp.float32(errors.size))

    def count(self, batch):
        return batch.y.size

    def training_flops(self, batch):
        return 0.0

    def summarize(self, sums):
        return {"loss": float(sums.loss) / float(sums.weight)}

    def progress_line(self, scalars):
        return f"loss {scalars['loss']:.3f}"


class Numbered:
    """Batches that depend on their number alone.

    Args:
      corrupt: factors of the labels of some batches. left_out: numbers of batches that there are not.
      taken: called with the number of each batch.
    """

    def __init__(
        self, corrupt: Mapping[int, float] = {}, left_out=(), taken: Callable[[int], object] = lambda number: None
    ) -> None:
        self.at, self._corrupt, self._left_out, self._taken = 0, corrupt, left_out, taken

    def __next__(self) -> Rows:
        while self.at in self._left_out:
            self.at += 1
        number, self.at = self.at, self.at + 1
        self._taken(number)
        x = np.random.default_rng(number).normal(size=(1, SHARDS, 2, FEATURES)).astype(np.float32)
        y = x.sum(-1) + 0.1 * x[..., 0] ** 2
        return Rows(x, (y * self._corrupt.get(number, 1.0)).astype(np.float32))

    def get_state(self):
        return {"at": self.at}

    def set_state(self, state):
        self.at = state["at"]

    def close(self):
        pass


class Fixed(Course):
    """So many steps, without evaluation."""

    stall_minutes, peak_rate, rate_key, dtype, freeze, judged_on = 0.0, 0.1, "optim.learning_rate", "float32", (), ""

    def __init__(self, config) -> None:
        self.steps, self.log_every = config.train.steps, config.train.log_every
        self.checkpoint_every, self.rate = config.train.checkpoint_every, rate_of(config)

    def over(self, step):
        return step >= self.steps

    def evaluates(self, step):
        return False

    def evaluate(self, step, state):
        raise NotImplementedError

    def judged(self, step, state, metrics):
        raise NotImplementedError

    def went_back(self, step):
        pass

    def where(self, step):
        return f"step {step}/{self.steps}"


def rate_of(config):
    return learning_rate(config.optim, config.train.steps, 4)


def spiky_config(policy: str = ""):
    """Returns a config of forty steps; a spike is known from the eighth on."""
    config = get_config()
    config.optim.learning_rate = 0.1
    train = config.train
    train.steps, train.log_every, train.checkpoint_every = 40, 5, 6
    train.spike_policy, train.spike_window, train.spike_rewind, train.spike_limit = policy, 16, 3, 2
    return config


def program_of(config, devices: int):
    """Returns the program of a run, and its first state; the same for runs that differ in their local disk alone."""
    config = config.copy_and_resolve_references()
    config.train.local_dir = ""
    return _program(to_json(config), devices)


@functools.cache
def _program(text: str, devices: int):
    config = from_dict(json.loads(text))
    mesh = make_mesh(config, jax.devices()[:devices])
    optimizer = make_optimizer(config.optim, rate_of(config))
    make = lambda: new_state({"linear": {"kernel": jnp.zeros((FEATURES, 1))}}, optimizer, new_history(config.train))
    program = make_program(config, 0, mesh, SHARDS, Squares(), optimizer, jax.eval_shape(make))
    return program, lambda: place_state(make(), program.placement)


def train(folder: Path, config, batches: Numbered, devices: int = 1) -> Loop:
    """Trains in a folder, or goes on there."""
    program, first = program_of(config, devices)
    folder.mkdir(exist_ok=True)
    setup = Setup(
        config,
        folder,
        program,
        batches,
        {"config": {}},
        first=lambda: Start(first(), 0, []),
        course=lambda: Fixed(config),
        profiler=StepProfiler(""),
        keep=config.train.keep_checkpoints,
    )
    with assembled(setup) as (loop, start, unreported):
        loop.run(start, unreported)
    return loop


def bits(state) -> dict[str, bytes]:
    """Returns the bytes of each array of a state, by name."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(state))
    return {path_name(path): np.asarray(x).tobytes() for path, x in leaves}

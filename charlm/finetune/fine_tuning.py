"""One fine-tuning run, for one seed and fold: builds, trains or resumes the model, and writes the result.

`charlm.finetune.run` starts one such run for each seed and fold of a command.
"""

from __future__ import annotations

import logging
import math
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from flax import traverse_util
from jax.sharding import Mesh

from charlm.convert.model import Target
from charlm.core import checkpoint as checkpoints
from charlm.core import hosts
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.durable import write_json
from charlm.core.frozen import at_start
from charlm.core.metric_writer import MetricWriter
from charlm.core.profiling import StepProfiler
from charlm.core.reading import read_json
from charlm.core.sharding import local_shards, make_mesh, place_state
from charlm.core.state import TrainState
from charlm.families.family import family
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.families.registry import units_of
from charlm.finetune.batching import Group, Packer, epoch_groups, lengths_of
from charlm.finetune.course import Epochs, shown
from charlm.finetune.data import Examples, NoisyExamples
from charlm.finetune.epochs import EpochBatches
from charlm.finetune.evaluate import Evaluator
from charlm.finetune.learning import TaskLearning, optimizer_of, rate_of
from charlm.finetune.model import first_params, held_params, with_task
from charlm.tasks.base import Row, Task
from charlm.tasks.registry import from_settings
from charlm.training.goodput import Goodput
from charlm.training.loop import Loop
from charlm.training.program import make_program
from charlm.training.recovery import check_newest

log = logging.getLogger("charlm")

STATE_FOLDER = "state"  # folder in a workdir with the checkpoints to resume from; removed when the run is finished
RESULT_FILE = "result.json"
DEV, TEST, SUMS = "dev", "test", "test_sums"  # keys of the result; the last holds the sums behind a fold's test scores


class Stopped(Exception):
    """Raised when a signal has stopped the run, after everything is saved."""


class FineTuning:
    """One fine-tuning run.

    Args:
      config: config of fine-tuning. seed: seed of this run. source: the pre-trained model. task: the task, with its
        labels set.
      examples: the examples of this run. folder: the folder of this run. profile: folder for a trace; "": none.
    """

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        seed: int,
        source: Pretrained,
        task: Task[Any, Any],
        examples: Examples,
        folder: Path,
        profile: str = "",
    ) -> None:
        self._config, self._seed, self._task, self._folder, self._data = config, seed, task, folder, examples
        self._model, target = with_task(source, task, config.model.label_head)
        self._units = units_of(self._model, config.data.max_length)
        mesh = make_mesh(config)
        shards = mesh.shape["data"] * mesh.shape["fsdp"]
        self._evaluator = Evaluator(self._model, task, self._units, mesh, config.data.eval_batch_size)
        self._noise = NoisyExamples(config.data.noise, config.data.noise_share, seed, config.data.misspellings)
        self._rows = task.rows(examples.train, self._units.training(seed, 0), training=True)
        self._lengths = lengths_of(self._rows, self._units.longest)
        size, parts = config.data.batch_size, config.data.accumulation
        packer = Packer(self._units, size, parts, shards, local=local_shards(mesh, shards))
        packer.measure(*self._epoch(0))
        self._batches = EpochBatches(self._epoch, packer, config.data.prefetch)
        self._steps = config.train.epochs * math.ceil(len(self._rows) / size)
        self._build(source, target, mesh, shards)
        self._profiler = StepProfiler(profile if hosts.is_primary() else "")

    def _build(self, source: Pretrained, target: Target, mesh: Mesh, shards: int) -> None:
        config = self._config
        params = first_params(source, self._model, target, self._seed)
        held = held_params(source)
        new = {name for name, x in traverse_util.flatten_dict(params, sep="/").items() if held.get(name) is not x}
        self._rate = rate_of(config, self._steps)
        optimizer = optimizer_of(config, self._steps, family(source.family), new)

        def init(params: Any) -> TrainState:
            return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))

        learning = TaskLearning(self._task, self._model, self._units, config)
        abstract = jax.eval_shape(init, params)
        program = make_program(config, self._seed, mesh, shards, learning, optimizer, abstract)
        placed, place = program.placement, program.place
        self._program = replace(program, place=lambda packed: place(packed.batch))
        self._init = lambda: jax.jit(init, out_shardings=placed)(place_state(params, placed.params))

    def _epoch(self, epoch: int) -> tuple[list[Row], list[Group]]:
        """Returns the rows and the batches of an epoch."""
        rows = self._rows
        if self._noise or self._units.draws:
            noisy = self._noise.draw(self._task, self._data.train, f"epoch {epoch}")
            rows = self._task.rows(noisy, self._units.training(self._seed, epoch), training=not self._noise)
        return rows, epoch_groups(rows, self._lengths, self._config.data.batch_size, self._seed, epoch)

    @property
    def finished(self) -> bool:
        """Whether the run has a result file."""
        return hosts.from_primary((self._folder / RESULT_FILE).exists())

    def run(self, skip_damaged: bool = False) -> dict[str, Any]:
        """Trains, or resumes training, and returns the result, which is also written to `RESULT_FILE`.

        Args:
          skip_damaged: as in `charlm.training.train.train`.

        Raises:
          ValueError: training diverged. Stopped: a signal stopped the run.
        """
        done = self._folder / RESULT_FILE
        if self.finished:
            log.info("%s holds a finished run: nothing to do", self._folder)
            return read_json(done)
        state = self._folder / STATE_FOLDER
        hosts.primary_first(lambda: check_newest(state, skip_damaged) if hosts.is_primary() else None)
        self._train()
        result = self._finish()
        if hosts.is_primary():
            write_json(done, result)
            shutil.rmtree(state, ignore_errors=True)
        return result

    def _train(self) -> None:
        config, folder, batches = self._config, self._folder, self._batches
        store = Checkpoints(folder, 1, {"config": config.to_dict()}, STATE_FOLDER)
        with ExitStack() as stack:
            stack.callback(store.close)
            stack.callback(batches.close)
            latest, unreported, past = store.latest, [], {}
            if latest is None:
                state = self._init()
            else:
                log.info("resuming at step %d", latest)
                state = store.restore(latest, self._program.abstract_state, batches)
                unreported = checkpoints.unreported(store.folder(latest))
                past = checkpoints.description(store.folder(latest))
            frozen = at_start(state.params, config.optim.freeze, past)
            store.describe(frozen=frozen)
            writer = goodput = None
            if hosts.is_primary():
                writer = MetricWriter(folder, resume_step=latest or -1)
                stack.callback(writer.close)
                goodput = Goodput(folder, latest or 0)
            stack.callback(self._profiler.close)
            metadata = {**self._model.metadata, "fine_tuning": config.to_dict(), "seed": self._seed}
            evaluator, model = self._evaluator, self._model
            course = Epochs(config, self._steps, self._rate, batches, evaluator, self._dev(), model, metadata, folder)
            program, profiler = self._program, self._profiler
            loop = Loop(program, course, state, batches, store, writer, goodput, folder, profiler, frozen)
            loop.run(latest or 0, unreported)
        if loop.stopped:
            raise Stopped

    def _dev(self) -> list[Any]:
        if not self._config.data.noise_dev:
            return self._data.dev
        return self._noise.draw(self._task, self._data.dev, "dev")

    def _finish(self) -> dict[str, Any]:
        """Predicts with the best epoch's model, writes the predictions and returns the scores."""
        hosts.total(0)  # a barrier: after it, process 0 has written the model
        best = from_pretrained(self._folder)
        self._task = self._evaluator.task = from_settings(best.metadata["task"])
        params = self._evaluator.place(best.params)
        result: dict[str, Any] = {"seed": self._seed, "step": int(checkpoints.find(self._folder).name)}
        for name, examples in ((DEV, self._dev()), (TEST, self._data.test)):
            if not examples:
                continue
            prepared = self._evaluator.prepare(examples)
            predictions = self._evaluator.predict(params, prepared)
            if hosts.is_primary():
                self._task.write(self._folder, f"predictions_{name}", examples, predictions)
            if name == DEV or self._config.data.test_labels:
                result[name] = self._task.scores(examples, predictions)
                log.info("%s  %s", name, shown(result[name]))
            if name == TEST and (self._config.data.folds or self._config.data.fold_column):
                kind, rows = self._task.statistics(examples, predictions)
                result[SUMS] = {"kind": kind, "sums": rows.sum(axis=0).tolist()}
        return result

"""One fine-tuning run, for one seed and fold: builds, trains or resumes the model, and writes the result.

`charlm.finetune.run` starts one such run for each seed and fold of a command. Open this module to follow a single run
from its examples to its scores.
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax
import ml_collections
from flax import traverse_util
from jax.sharding import Mesh

from charlm.convert.heads import SEQUENCE_CLASSIFICATION
from charlm.convert.model import Target
from charlm.core import checkpoint as checkpoints
from charlm.core import followers, hosts
from charlm.core.durable import write_json
from charlm.core.profiling import StepProfiler
from charlm.core.reading import read_json
from charlm.core.sharding import local_shards, make_mesh, place_state
from charlm.core.spikes import new_history
from charlm.core.state import TrainState, new_state
from charlm.core.types import JsonObject, Params
from charlm.families.family import family
from charlm.families.lookup import units_of
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.finetune.batching import Packed, Packer
from charlm.finetune.course import Epochs, shown
from charlm.finetune.data import Examples, NoisyExamples
from charlm.finetune.epochs import EpochBatches
from charlm.finetune.evaluate import Evaluator
from charlm.finetune.learning import TaskLearning, optimizer_of, rate_of
from charlm.finetune.model import first_params, held_params, with_task
from charlm.finetune.sharing import may_share
from charlm.finetune.strips import Group, epoch_groups, lengths_of, shared_lengths
from charlm.tasks.base import AnyExample, AnyTask, Row
from charlm.tasks.create import from_settings
from charlm.training.assembly import Setup, assembled
from charlm.training.first_state import Start
from charlm.training.program import make_program
from charlm.training.recovery import check_newest_together
from charlm.training.workdir import started_from

log = logging.getLogger("charlm")

STATE_FOLDER = "state"  # folder in a workdir with the checkpoints to resume from; removed when the run is finished
RESULT_FILE = "result.json"
DEV, TEST, FOLD = "dev", "test", "test_sums"  # keys of the result; the last holds what is behind a fold's test scores


class Stopped(Exception):
    """Raised when a signal has stopped the run, after everything is saved."""


class FineTuning:
    """One fine-tuning run.

    Args:
      config: config of fine-tuning.
      seed: seed of this run.
      source: the pre-trained model.
      task: the task, with its labels set.
      examples: the examples of this run.
      folder: the folder of this run.
      profile: folder for a trace; "": none.
      devices: the devices of the mesh, which may be only described, as in `charlm.plan`; None: all that there are.

    Attributes:
      program: the compiled step of the run.
      steps: number of steps that the run does at most.
    """

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        seed: int,
        source: Pretrained,
        task: AnyTask,
        examples: Examples,
        folder: Path,
        profile: str = "",
        devices: Sequence[jax.Device] | None = None,  # pyright: ignore[reportInvalidTypeForm]  # a class of C++
    ) -> None:
        self._config, self._seed, self._task, self._folder, self._data = config, seed, task, folder, examples
        self._model, target = with_task(source, task, config.model.label_head)
        self._units = units_of(self._model, config.data.max_length)
        mesh = make_mesh(config, devices)
        shards = mesh.shape["data"] * mesh.shape["fsdp"]
        cfg = config.data
        self._evaluator = Evaluator(self._model, task, self._units, mesh, cfg.eval_batch_size, cfg.share_rows)
        self._noise = NoisyExamples(cfg.noise, cfg.noise_share, seed, cfg.misspellings)
        self._rows = task.rows(examples.train, self._units.training(seed, 0), training=True)
        shares = may_share(cfg.share_rows, self._model, self._units, mesh)
        by_row, local = self._model.head == SEQUENCE_CLASSIFICATION, local_shards(mesh, shards)
        self._packer = Packer(
            self._units, cfg.batch_size, cfg.accumulation, shards, local=local, shares=shares, by_row=by_row
        )
        pieces = cfg.accumulation * shards
        lengths = (
            shared_lengths(self._rows, self._units.longest, cfg.batch_size, pieces, seed)
            if shares
            else lengths_of(self._rows, self._units.longest)
        )
        self._groups = lambda rows, epoch, lengths: epoch_groups(
            rows, lengths, cfg.batch_size, seed, epoch, pieces, shares=shares
        )
        self._batches = EpochBatches(self._epoch, self._packer, lengths, cfg.prefetch)
        self.steps = config.train.epochs * math.ceil(len(self._rows) / cfg.batch_size)
        self._build(source, target, mesh, shards)
        self._profiler = StepProfiler(profile)

    def sample(self) -> Packed:
        """Returns a batch of the first epoch with the longest rows, which needs most memory."""
        rows, groups = self._epoch(0, self._batches.position.lengths)
        return self._packer.pack(rows, max(groups, key=lambda group: self._packer.strips(group) * group.length))

    def _build(self, source: Pretrained, target: Target, mesh: Mesh, shards: int) -> None:
        config = self._config
        params = first_params(source, self._model, target, self._seed)
        held = held_params(source)
        new = {name for name, x in traverse_util.flatten_dict(params, sep="/").items() if held.get(name) is not x}
        self._rate = rate_of(config, self.steps)
        optimizer = optimizer_of(config, self.steps, family(source.family), new)

        def init(params: Params) -> TrainState:
            return new_state(params, optimizer, new_history(config.train))

        learning = TaskLearning(self._task, self._model, self._units)
        abstract = jax.eval_shape(init, params)
        program = make_program(config, self._seed, mesh, shards, learning, optimizer, abstract)
        placed, place = program.placement, program.place
        self.program = replace(program, place=lambda packed: place(packed.batch))
        self._init = lambda: jax.jit(init, out_shardings=placed)(place_state(params, placed.params))

    def _epoch(self, epoch: int, lengths: tuple[int, ...]) -> tuple[list[Row], list[Group]]:
        """Returns the rows of an epoch, and its batches of these lengths."""
        rows = self._rows
        if self._noise or self._units.draws:
            noisy = self._noise.draw(self._task, self._data.train, f"epoch {epoch}")
            rows = self._task.rows(noisy, self._units.training(self._seed, epoch), training=not self._noise)
        return rows, self._groups(rows, epoch, lengths)

    @property
    def finished(self) -> bool:
        """Whether the run has a result file."""
        return hosts.from_primary((self._folder / RESULT_FILE).exists())

    def run(self, skip_damaged: bool = False) -> JsonObject:
        """Trains, or resumes training, and returns the result, which is also written to `RESULT_FILE`.

        Args:
          skip_damaged: as in `charlm.training.train.train`.

        Raises:
          ValueError: training diverged.
          Stopped: a signal stopped the run.
        """
        done, state = self._folder / RESULT_FILE, self._folder / STATE_FOLDER
        if self.finished:
            log.info("%s holds a finished run: nothing to do", self._folder)
            if hosts.is_primary():
                shutil.rmtree(state, ignore_errors=True)  # left by a run that was killed as it ended
            return read_json(done)
        check_newest_together(state, skip_damaged)
        self._train()
        result = self._finish()
        if hosts.is_primary():
            write_json(done, result)
            shutil.rmtree(state, ignore_errors=True)
        return result

    def _train(self) -> None:
        with assembled(self._setup()) as (loop, start, unreported):
            loop.run(start, unreported)
        if loop.stopped:
            raise Stopped

    def _setup(self) -> Setup:
        """Returns what the run is put together from."""
        config, folder, batches = self._config, self._folder, self._batches

        def course() -> Epochs:
            metadata = {**self._model.metadata, "fine_tuning": config.to_dict(), "seed": self._seed}
            metadata["started_from"] = started_from(config)
            evaluator, model = self._evaluator, self._model
            return Epochs(config, self.steps, self._rate, batches, evaluator, self._dev(), model, metadata, folder)

        return Setup(
            config,
            folder,
            self.program,
            batches,
            {"config": config.to_dict()},
            first=lambda: Start(self._init(), 0, []),
            course=course,
            profiler=self._profiler,
            states=STATE_FOLDER,
        )

    def _dev(self) -> list[AnyExample]:
        if not self._config.data.noise_dev:
            return self._data.dev
        return self._noise.draw(self._task, self._data.dev, "dev")

    def _finish(self) -> JsonObject:
        """Predicts with the best epoch's model, writes the predictions and returns the scores."""
        hosts.total(0)  # a barrier: after it, process 0 has written the model
        followers.catch_up()
        best = from_pretrained(self._folder)
        self._task = self._evaluator.task = from_settings(best.metadata["task"])
        params = self._evaluator.place(best.params)
        result: JsonObject = {"seed": self._seed, "step": int(checkpoints.find(self._folder).name)}
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
                result[FOLD] = self._task.fold(examples, predictions)
        return result

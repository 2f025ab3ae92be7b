"""One fine-tuning run: epochs of steps, development scores after each, the best epoch's model kept; resumable."""

from __future__ import annotations

import dataclasses
import logging
import math
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from flax import traverse_util

from charlm.core import checkpoint as checkpoints
from charlm.core import interrupts
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.durable import write_json
from charlm.core.metric_writer import MetricWriter
from charlm.core.profiling import StepProfiler
from charlm.core.reading import read_json
from charlm.core.sharding import batch_sharding, make_mesh, state_sharding
from charlm.core.state import TrainState
from charlm.core.step import make_train_step, step_options
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.families.registry import units_of
from charlm.finetune.batching import Batch, Packer, epoch_groups, lengths_of
from charlm.finetune.data import Examples, NoisyExamples
from charlm.finetune.evaluate import Evaluator
from charlm.finetune.model import first_params, held_params, with_task
from charlm.finetune.optimizer import learning_rate, make_optimizer
from charlm.finetune.progress import Place, Position, Stopped, Window, shown
from charlm.tasks.base import Row, Task, TaskSums
from charlm.tasks.registry import from_settings
from charlm.training.progress import duration, read_metrics, stop_signal
from charlm.training.recovery import check_newest

log = logging.getLogger("charlm")

STATE_FOLDER = "state"  # of a workdir: what a run that was stopped goes on from; gone when it is finished
RESULT_FILE = "result.json"
DEV, TEST, SUMS = "dev", "test", "test_sums"  # the last: what the scores of a fold are made of


class FineTuning:
    """One run.

    Args:
      config: of fine-tuning. seed: of this run. source: the pre-trained model. task: with its labels.
      examples: to learn from, to choose by, to predict at the end. folder: of the run.
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
        self._packer = Packer(self._units, config.data.batch_size, config.data.accumulation, shards)
        self._packer.measure(*self._epoch(0))
        steps = config.train.epochs * math.ceil(len(self._rows) / config.data.batch_size)
        self._rate = learning_rate(config, steps, config.optim.learning_rate)
        self._steps = steps
        self._build(source, target, mesh)
        self._profiler = StepProfiler(profile)
        self._compiled: set[Any] = set()  # shapes of batches that there is a program for

    def _build(self, source: Pretrained, target: Any, mesh: Any) -> None:
        params = first_params(source, self._model, target, self._seed)
        held = held_params(source)
        new = {name for name, x in traverse_util.flatten_dict(params, sep="/").items() if held.get(name) is not x}
        model, units, task, cfg = self._model.model, self._units, self._task, self._config
        optimizer = make_optimizer(cfg, self._steps, new)

        def loss_sums(params: Any, batch: Batch, key: jax.Array) -> TaskSums:
            logits = units.apply(model, params, batch.inputs, key)
            return task.sums(logits, {name: x.reshape(-1, *x.shape[2:]) for name, x in batch.targets.items()})

        def init(params: Any) -> TrainState:
            return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))

        abstract = jax.eval_shape(init, params)
        placed, spread = state_sharding(abstract, mesh), batch_sharding(mesh)
        everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self._train_step = jax.jit(
            make_train_step(loss_sums, optimizer, self._seed, tuple(cfg.optim.freeze)),
            in_shardings=(placed, spread),
            out_shardings=(placed, everywhere, everywhere),
            donate_argnums=0,
            compiler_options=step_options(cfg.model.remat),
        )
        self._init = lambda: jax.jit(init, out_shardings=placed)(jax.device_put(params, placed.params))
        self._abstract = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, placed)

    def _epoch(self, epoch: int) -> tuple[list[Row], list[Any]]:
        """Returns the rows of an epoch and its batches."""
        rows = self._rows
        if self._noise or self._units.draws:
            noisy = self._noise.draw(self._task, self._data.train, f"epoch {epoch}")
            rows = self._task.rows(noisy, self._units.training(self._seed, epoch), training=not self._noise)
        return rows, epoch_groups(rows, self._lengths, self._config.data.batch_size, self._seed, epoch)

    @property
    def finished(self) -> bool:
        """Whether the run has its result."""
        return (self._folder / RESULT_FILE).exists()

    def run(self, skip_damaged: bool = False) -> dict[str, Any]:
        """Trains, or goes on with, and returns the result, which `RESULT_FILE` then holds, too.

        Args:
          skip_damaged: as in `charlm.training.train.train`.

        Raises:
          ValueError: when training diverged. Stopped: when a signal came.
        """
        done = self._folder / RESULT_FILE
        if self.finished:
            log.info("%s holds a finished run: nothing to do", self._folder)
            return read_json(done)
        check_newest(self._folder / STATE_FOLDER, skip_damaged)
        store = Checkpoints(self._folder, 1, {}, STATE_FOLDER)
        position, latest, window = Position(), store.latest, Window()
        try:
            if latest is None:
                state = self._init()
            else:
                log.info("resuming at step %d", latest)
                state = store.restore(latest, self._abstract, position)
                window = Window(checkpoints.unreported(store.folder(latest)))
            writer = MetricWriter(self._folder, resume_step=latest or -1)
            try:
                self._train(state, position, window, store, writer)
            finally:
                self._profiler.close()
                writer.close()
        finally:
            store.close()
        result = self._finish()
        write_json(done, result)
        shutil.rmtree(self._folder / STATE_FOLDER, ignore_errors=True)
        return result

    def _train(
        self, state: TrainState, position: Position, window: Window, store: Checkpoints, writer: MetricWriter
    ) -> None:
        dev = self._evaluator.prepare(self._dev())
        best = position.best_among(m[self._dev_metric] for m in read_metrics(self._folder) if "dev_loss" in m)
        patience = self._config.train.patience
        with stop_signal() as stopped:
            for epoch in range(position.place.epoch, self._config.train.epochs):
                if patience and best.since >= patience:
                    log.info("no better score in %d epochs: training ends", patience)
                    break
                state = self._train_epoch(state, position, window, store, writer, stopped)
                window = Window()
                if best.add(self._evaluate(state, dev, writer, epoch)):
                    self._keep(int(state.step), state.params)
                store.save(int(state.step), state, position)
                if stopped(int(state.step)):
                    self._stop(store, int(state.step))
        store.wait()

    def _dev(self) -> list[Any]:
        if not self._config.data.noise_dev:
            return self._data.dev
        return self._noise.draw(self._task, self._data.dev, "dev")

    @property
    def _dev_metric(self) -> str:
        return f"dev_{self._task.metric}"

    def _train_epoch(
        self, state: TrainState, position: Position, window: Window, store: Checkpoints, writer: MetricWriter,
        stopped: Any,
    ) -> TrainState:  # fmt: skip
        """Returns the state after an epoch; `position` is then at the next."""
        train, epoch = self._config.train, position.place.epoch
        rows, groups = self._epoch(epoch)
        step = int(state.step)
        unread = None
        rest = groups[position.place.batch :]
        window.start()
        for batch in self._batches(rows, rest):
            step += 1
            self._profiler.before(step)
            started, shape = time.perf_counter(), tuple(x.shape for x in jax.tree.leaves(batch))
            with interrupts.deferred(until_saved=bool(self._compiled)):  # before the first step nothing is to be saved
                state, sums, norm = self._train_step(state, batch)
            if shape not in self._compiled:  # the speed on the progress lines leaves compiling out
                self._compiled.add(shape)
                jax.block_until_ready(state)
                window.pause(time.perf_counter() - started)
            self._profiler.after(step, state)
            position.place = Place(epoch, position.place.batch + 1)
            window.read(unread)  # the step before this one: reading it now keeps the device busy with this one
            unread = (step, sums, norm)
            last = position.place.batch == len(groups)
            if step % train.log_every == 0 or last:
                window.read(unread)
                unread = None
                self._report(step, epoch, position.place.batch, len(groups), window, writer)
                window = Window()
            if not last and (stopped(step) or step % train.checkpoint_every == 0):
                window.read(unread)
                unread = None
                store.save(step, state, position, unreported=window.unreported)
                if stopped(step):
                    self._stop(store, step)
        position.place = Place(epoch + 1, 0)
        return state

    def _stop(self, store: Checkpoints, step: int) -> None:
        store.wait()
        log.info("stopped by signal at step %d, saved; the same command goes on from there", step)
        raise Stopped

    def _batches(self, rows: list[Row], groups: list[Any]) -> Iterator[Batch]:
        """Yields packed batches, made ahead in a thread."""
        ahead = self._config.data.prefetch
        if not ahead:
            yield from (self._packer.pack(rows, group) for group in groups)
            return
        with ThreadPoolExecutor(1) as pool:
            waiting = [pool.submit(self._packer.pack, rows, group) for group in groups[:ahead]]
            try:
                for group in [*groups[ahead:], *[None] * min(ahead, len(groups))]:
                    yield waiting.pop(0).result()
                    if group is not None:
                        waiting.append(pool.submit(self._packer.pack, rows, group))
            finally:
                for future in waiting:
                    future.cancel()

    def _report(self, step: int, epoch: int, at: int, of: int, window: Window, writer: MetricWriter) -> None:
        scalars = window.scalars() | {"learning_rate": float(self._rate(step - 1)), "epoch": epoch + at / of}
        writer.write(step, {f"train_{name}": value for name, value in scalars.items()})
        left = self._steps - step
        log.info(
            "epoch %d/%d  batch %d/%d  loss %.4f  right %.1f %%  %.0f ms/step  ETA %s",
            epoch + 1, self._config.train.epochs, at, of, scalars["loss"], 100 * scalars["right"],
            scalars["ms_per_step"], duration(max(left, 0) * scalars["ms_per_step"] / 1000),
        )  # fmt: skip

    def _evaluate(self, state: TrainState, dev: Any, writer: MetricWriter, epoch: int) -> float:
        started = time.perf_counter()
        predictions, losses_E2 = self._evaluator.predict_with_loss(state.params, dev)
        total, weight = losses_E2.sum(axis=0).tolist()
        loss = total / max(weight, 1.0)
        if not math.isfinite(loss):
            raise ValueError(f"epoch {epoch + 1}: loss {loss} on development data; try a smaller optim.learning_rate")
        self._task.tune(dev.examples, predictions)
        scores = self._task.scores(dev.examples, predictions)
        writer.write(int(state.step), {f"dev_{name}": value for name, value in ({"loss": loss} | scores).items()})
        log.info(
            "epoch %d  dev loss %.4f  %s  (%.0f s)",
            epoch + 1, loss, shown(scores), time.perf_counter() - started,
        )  # fmt: skip
        score = scores[self._task.metric]
        return score if math.isfinite(score) else -math.inf

    def _keep(self, step: int, params: Any) -> None:
        """Keeps the model as the best so far; the one before goes when this one is complete."""
        folder = self._folder / checkpoints.FOLDER
        before = checkpoints.complete_steps(folder)
        config = self._config.to_dict()
        metadata = {**self._model.metadata, "task": self._task.settings(), "fine_tuning": config, "seed": self._seed}
        kept = dataclasses.replace(self._model, params=params, metadata=metadata)
        if step not in before:
            kept.save_pretrained(folder / str(step))
        for older in before:
            if older != step:
                shutil.rmtree(folder / str(older), ignore_errors=True)

    def _finish(self) -> dict[str, Any]:
        """Predicts with the best epoch's model, writes the predictions and returns the scores."""
        best = from_pretrained(self._folder)
        self._task = self._evaluator.task = from_settings(best.metadata["task"])
        params = self._evaluator.place(best.params)
        result: dict[str, Any] = {"seed": self._seed, "step": int(checkpoints.find(self._folder).name)}
        for name, examples in ((DEV, self._dev()), (TEST, self._data.test)):
            if not examples:
                continue
            prepared = self._evaluator.prepare(examples)
            predictions = self._evaluator.predict(params, prepared)
            self._task.write(self._folder, f"predictions_{name}", examples, predictions)
            if name == DEV or self._config.data.test_labels:
                result[name] = self._task.scores(examples, predictions)
                log.info("%s  %s", name, shown(result[name]))
            if name == TEST and (self._config.data.folds or self._config.data.fold_column):
                kind, rows = self._task.statistics(examples, predictions)
                result[SUMS] = {"kind": kind, "sums": rows.sum(axis=0).tolist()}
        return result

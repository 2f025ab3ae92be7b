"""Tests stages: mistakes of later stages are found before any trains, and changed earlier stages are refused."""

from __future__ import annotations

import re
import shutil

import jax
import numpy as np
import object_stores
import pytest
import several_processes
from again import again
from object_stores import BUCKET
from several_processes import PROGRAM, Processes
from small_char2subword_run import STAGES, changed, saved, small_backbone, small_char2subword_config
from small_run import on_devices, write_text

import charlm.training.stages
import charlm.training.train
from charlm.config import get_config
from charlm.core import checkpoint as checkpoints
from charlm.core.leafwise import leafwise
from charlm.data.pipeline import training_records
from charlm.data.streams import SequenceStream
from charlm.families.char2subword.keys import of_stage
from charlm.families.lookup import prepare
from charlm.training.run import build
from charlm.training.stages import pretrain, train_stages
from charlm.training.train import train


def copied(stages, folder, *numbers):
    """Returns a workdir with copies of some stages."""
    for number in numbers:
        shutil.copytree(stages.stage(number), folder / "run" / STAGES[number - 1])
    return folder / "run"


def unfinished(workdir, number):
    """Takes the last checkpoint from a stage; it has come to step 6."""
    shutil.rmtree(workdir / STAGES[number - 1] / "checkpoints" / "8")


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("name", "program"), [("hlm", "train"), ("char2subword", "train_stages")])
def test_a_run_has_stages_if_its_family_has_them(monkeypatch, name, program):
    called = []
    for one in ("train", "train_stages"):
        monkeypatch.setattr(charlm.training.stages, one, lambda *given, one=one: called.append((one, given)) or True)
    config = get_config(name)
    assert pretrain(config, "run", "traces", True)
    assert called == [(program, (config, "run", "traces", True))]


# ---- Mistakes are found before anything trains ----


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"contextual__batch_size": 9},
            r"^contextual\.batch_size=9 must be a multiple of contextual\.accumulation=2 x data\.table_shards=8$",
        ),
        (
            {"contextual__accumulation": 3},
            r"^contextual\.batch_size=16 must be a multiple of contextual\.accumulation=3",
        ),
        ({"data__mask_share": 0.95}, r"^data\.mask_rate must lie in \(0, 1\] and data\.mask_share"),
        ({"data__max_length": 33}, r"^data\.max_length=33, but .* has 32 positions"),
        ({"contextual__bucket_slots": (3, 5)}, r"^contextual\.bucket_slots=\(3, 5\) must ascend and end at 7"),
        ({"contextual__bucket_rows": (3,)}, r"^contextual\.bucket_rows=\(3,\) must name a positive number for each of"),
        ({"stages": ("contextual", "approximation"), "data__batch_size": 9}, r"^data\.batch_size=9 must be a multiple"),
        (
            {"stages": ("contextual", "approximation"), "data__bucket_rows": (5,)},
            r"^data\.bucket_rows=\(5,\) must name",
        ),
    ],
)
def test_a_mistake_of_a_later_stage_is_found_before_the_first(stages, tmp_path, monkeypatch, changes, message):
    monkeypatch.setattr(charlm.training.train, "build", None)  # nothing comes that far
    with on_devices(1), pytest.raises(ValueError, match=message):
        train_stages(stages.config(**changes), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_mistake_is_found_when_the_first_stage_goes_on(stages, tmp_path):
    """Its source may be gone by then."""
    workdir = copied(stages, tmp_path, 1)
    unfinished(workdir, 1)
    before = files(workdir)
    config = stages.config(contextual__batch_size=9, init_from="nowhere")
    with on_devices(1), pytest.raises(ValueError, match=r"^contextual\.batch_size=9 must"):
        train_stages(config, str(workdir))
    assert files(workdir) == before


def test_values_of_the_contextual_stage_are_named_as_they_are_set(stages, tmp_path, same_runs, log_lines):
    workdir = copied(stages, tmp_path, 1, 2)
    with pytest.raises(ValueError, match=r"another config: contextual\.batch_size is 32, there 16; choose"):
        train_stages(stages.config(contextual__batch_size=32), str(workdir))
    with pytest.raises(ValueError, match=r"another config: contextual\.learning_rate is 0\.5, there 0\.01; choose"):
        train_stages(stages.config(contextual__learning_rate=0.5), str(workdir))
    assert "train on with a larger --config.train.steps" in str(log_lines)
    train(stages.contextual(), str(workdir / STAGES[1]))
    assert "train on with a larger --config.contextual.steps" in str(log_lines)


def test_length_buckets_of_one_kind_of_stage_are_not_those_of_the_other(stages):
    config = stages.config(data__bucket_slots=(4, 30), contextual__bucket_rows=(8, 8))
    own = of_stage(config, "contextual")
    assert (own.data.bucket_slots, own.data.bucket_rows) == ((), (8, 8))
    own = of_stage(config, "approximation")
    assert (own.data.bucket_slots, own.data.bucket_rows) == ((4, 30), ())


# ---- What a stage started from ----


def refused(stages, workdir, message, **changes):
    """Checks that a run is refused with a message, and left as it is."""
    before = files(workdir)
    with pytest.raises(ValueError, match=message):
        train_stages(stages.config(**changes), str(workdir))
    assert files(workdir) == before


def test_an_earlier_stage_is_not_trained_on_behind_a_later_one(stages, same_runs, tmp_path):
    workdir = copied(stages, tmp_path, 1, 2, 3)
    two, three = (re.escape(str(workdir / name)) for name in STAGES[1:])
    step_8 = r"step 8, saved \d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    refused(
        stages, workdir,
        rf"^2_contextual started from 1_approximation \({step_8}\), but now there is {step_8}, to be trained on to "
        rf"train\.steps=9: remove {two}, {three} to redo them, or set train\.steps=8$",
        train__steps=9,
    )  # fmt: skip
    refused(
        stages, workdir,
        rf"^3_approximation started from 2_contextual \({step_8}\), but now there is {step_8}, to be trained on to "
        rf"contextual\.steps=9: remove {three} to redo it, or set contextual\.steps=8$",
        contextual__steps=9,
    )  # fmt: skip


def test_a_stage_whose_source_was_trained_on_is_not_finished(stages, same_runs, tmp_path):
    workdir = copied(stages, tmp_path, 1, 2, 3)
    alone = of_stage(stages.config(train__steps=9), "approximation")
    assert train(alone, str(workdir / STAGES[0]))
    message = r"^2_contextual started from 1_approximation \(step 8, .*\), but now there is step 9, saved .*: remove "
    refused(stages, workdir, message, train__steps=9)
    refused(stages, workdir, message)


def test_a_stage_whose_source_was_made_anew_is_redone_once_it_is_removed(stages, same_runs, tmp_path):
    """The same step, but another checkpoint."""
    workdir = copied(stages, tmp_path, 1, 2)
    unfinished(workdir, 1)
    refused(stages, workdir, r"^2_contextual started .*\(step 8, .*but now there is step 6, .*to redo it$")
    assert train(of_stage(stages.config(), "approximation"), str(workdir / STAGES[0]))
    refused(stages, workdir, r"^2_contextual started .*\(step 8, .*but now there is step 8, .*to redo it$")
    shutil.rmtree(workdir / STAGES[1])
    assert train_stages(stages.config(), str(workdir))
    assert saved(workdir / STAGES[2]) == saved(stages.stage(3))
    assert train_stages(stages.config(), str(workdir))


@pytest.mark.parametrize("gone", [again((1,)), (1, 2)])
def test_a_stage_goes_on_without_the_folder_before_it(stages, same_runs, tmp_path, log_lines, gone):
    workdir = copied(stages, tmp_path, *sorted({1, 2, 3} - set(gone)))
    last = max(gone) + 1
    unfinished(workdir, last)
    if last == 2:
        shutil.rmtree(workdir / STAGES[2])
    assert train_stages(stages.config(init_from="nowhere"), str(workdir))
    assert f"{workdir / STAGES[0]} is gone; {STAGES[last - 1]} goes on without it" in str(log_lines)
    assert not (workdir / STAGES[0]).exists()
    assert saved(workdir / STAGES[2]) == saved(stages.stage(3))


def test_another_backbone_is_noticed(stages, same_runs, tmp_path):
    workdir = copied(stages, tmp_path, 1, 2, 3)
    other = small_backbone(tmp_path / "other")
    message = rf"1_approximation holds a run that started from \S+backbone \(saved .*not from init_from={other} \(saved"
    refused(stages, workdir, message, init_from=str(other))
    for name in STAGES[1:]:
        shutil.rmtree(workdir / name)
    unfinished(workdir, 1)
    refused(stages, workdir, message, init_from=str(other))
    moved = shutil.copytree(stages.folder / "backbone", tmp_path / "moved")
    assert train(of_stage(stages.config(init_from=str(moved)), "approximation"), str(workdir / STAGES[0]))
    assert saved(workdir / STAGES[0]) == saved(stages.stage(1))


# ---- What is frozen ----


@pytest.mark.parametrize(
    ("freeze", "message"),
    [
        (("^bert/",), r"^optim\.freeze=\('\^bert/',\) leaves head/\S+ to be trained: only char2subword/ may be$"),
        (("^(bert|head)/", "chars"), r"freezes char2subword/chars/embedding, of the module that is to learn$"),
        (("^(bert|head)/", "embed"), r"freezes char2subword/\S+, of the module that is to learn$"),
    ],
)
def test_nothing_but_the_module_is_trained_and_all_of_it(stages, tmp_path, freeze, message):
    for stage in ("approximation", ""):
        with on_devices(1), pytest.raises(ValueError, match=message):
            train_stages(stages.config(optim__freeze=freeze, stage=stage), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_frozen_parameters_that_moved_end_the_stage(stages, same_runs, tmp_path, monkeypatch, log_lines):
    """By one bit, before a checkpoint: the run that goes on from there knows what it began with."""
    run = stages.runs[0]
    step = run.train_step

    def with_a_mistake(state, batch):
        state, *rest = step(state, batch)
        if int(state.step) == 5:
            kernel = state.params["bert"]["embed"]["token"]["embedding"]
            state.params["bert"]["embed"]["token"]["embedding"] = kernel.at[3, 2].add(1e-6)
        return state, *rest

    with_a_mistake.lower = step.lower
    monkeypatch.setattr(run, "train_step", with_a_mistake)
    config = stages.config(stages=("approximation",))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^frozen parameters changed \(\d+ arrays, .* MB\): what optim\.freeze="):
            train_stages(config, str(tmp_path / "run"))
        assert checkpoints.find(tmp_path / "run" / STAGES[0]).name == "6"
    assert "frozen parameters unchanged" not in str(log_lines)


def test_a_stage_says_that_frozen_parameters_are_unchanged(stages, same_runs, tmp_path, log_lines):
    assert train_stages(stages.config(stages=("approximation",)), str(tmp_path / "run"))
    params = stages.runs[0].abstract_state.params
    arrays = [x for part in ("bert", "head") for x in jax.tree.leaves(params[part])]
    size = sum(4 * x.size for x in arrays) / 1e6
    assert f"frozen parameters unchanged: {len(arrays)} arrays, {size:,.1f} MB" in log_lines.lines


# ---- Entries that are never shown ----


def test_what_composition_is_measured_on_is_never_spelled(stages):
    config = stages.contextual(data__unseen=0.4)
    with on_devices(1):
        run = build(config, prepare(config))
    objective = run.objective
    unseen = set(objective.data.entries.ids_N[objective.unseen_N].tolist())
    assert unseen == set(build(of_stage(stages.config(data__unseen=0.4), "approximation"), objective.data)
                         .objective.data.entries.ids_N[objective.unseen_N].tolist())  # fmt: skip
    met = 0
    for batches in (run.train_batches, run.heldout_batches):
        iterator = iter(batches)
        batch = next(iterator)
        iterator.close()
        labels, rows = batch.labels_SM[batch.labels_SM >= 0], batch.inputs.ids_SBL
        assert len(labels) > 5
        assert not unseen & set(labels.tolist())
        met += int(np.isin(rows[batch.inputs.mask_SBL], list(unseen)).sum())
    assert met > 20
    with training_records(objective.config, objective.data.train, objective.read) as records:
        sequence = SequenceStream(records, objective.training_maker, 0, 8).next()
    is_unseen = np.isin(sequence.ids_T, list(unseen))
    assert not sequence.rows_TC[is_unseen].any()
    assert sequence.rows_TC[1:-1][~is_unseen[1:-1], 0].all()


# ---- Neighbours ----


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_precision_is_measured_on_fifteen_whatever_the_loss_counts(stages, count):
    config = changed(of_stage(stages.config(), "approximation"), {"loss__neighbour_count": count})
    with on_devices(1):
        objective = build(config, prepare(config)).objective
    iterator = iter(objective.train_batches((0,)))
    training, batch = next(iterator), next(iter(objective.heldout_batches((0,))))
    iterator.close()
    assert {near.shape[-1] for near in training.near} == {count}
    assert {near.shape[-1] for near in batch.near} == {max(count, 15)}
    assert {near.shape[-1] for near in objective.empty(1).near} == {max(count, 15)}
    params = leafwise(lambda: objective.init_params(jax.random.key(0)))
    part = jax.tree.map(lambda x: x[0], batch)
    of = jax.jit(lambda params, part: objective.loss_sums(params, part, None))
    sums = of(params, part)
    only = lambda k: of(params, part._replace(near=tuple(n[..., :k] for n in part.near)))
    assert sums.neighbours == only(count).neighbours
    assert (sums.at_k, sums.average) == (only(15).at_k, only(15).average)
    assert sums.average != only(3).average
    assert "@15 " in objective.heldout_line(objective.summarize(sums))


def test_more_neighbours_than_rows_are_refused(stages):
    rows = stages.runs[0].objective.data.start.shape.vocab_size
    config = changed(of_stage(stages.config(), "approximation"), {"loss__neighbour_count": rows})
    with (
        on_devices(1),
        pytest.raises(ValueError, match=rf"^loss\.neighbour_count={rows} must be less than {rows}, the"),
    ):
        build(config, prepare(config))


# The command, as `charlm.main` calls it, with a workdir in a store.
STORED = (
    PROGRAM[: PROGRAM.index("with hosts.ending")]
    + """
from charlm.core.followers import mirrored_by_all
from charlm.training.stages import pretrain
with hosts.ending_together(), mirrored_by_all(sys.argv[2]) as folder:
    pretrain(config, folder)
"""
)


@pytest.mark.slow
def test_two_processes_without_a_shared_folder_hand_each_stage_over_also_if_killed(tmp_path, monkeypatch):
    config = small_char2subword_config(write_text(tmp_path / "text.txt"), tmp_path / "cache")
    monkeypatch.setattr(several_processes, "PROGRAM", STORED)
    with object_stores.store("s3") as objects:
        for name in ("first", "last"):  # machines that share nothing but the store
            monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / name))
            (tmp_path / name).mkdir()
            own = [config.copy_and_resolve_references() for _ in range(2)]
            together = Processes(tmp_path / name, own, [f"s3://{BUCKET}/runs/c2s"] * 2, devices=1)
            if name == "first":
                together.wait_for("2_contextual/checkpoints/6 is copied")
                for process in together.running:
                    process.kill()
            statuses = together.end()
    assert statuses == [0, 0], together.read(0) + together.read(1)
    assert "1_approximation holds a finished run of 8 steps: nothing to do" in together.read(0)
    ends = [f"runs/c2s/{stage}/checkpoints/8/_CHECKPOINT_METADATA" for stage in STAGES]
    assert set(ends) <= objects.now.keys()

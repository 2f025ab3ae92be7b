"""Tests the alignment stage: it starts as its teacher to the bit, trains only what it may, and resumes to the bit."""

from __future__ import annotations

import functools
import shutil

import jax
import numpy as np
import pytest
from small_char2subword_run import changed, flat, saved, small_backbone, small_char2subword_config
from small_run import metrics_without_timings, on_devices, quick_compilation, write_text

from charlm.config import load_config_file, split_lists, validate
from charlm.core import checkpoint as checkpoints
from charlm.families.char2subword.keys import of_stage
from charlm.families.lookup import prepare
from charlm.training.progress import read_metrics
from charlm.training.run import build
from charlm.training.stages import train_stages


def small_config(folder, **changes):
    """Returns the config of an alignment of eight steps."""
    config = small_char2subword_config(folder / "text.txt", folder / "cache", folder / "backbone")
    config.stage = "alignment"
    config.model.mode = "gated"
    config.alignment.steps = 8
    config.alignment.batch_size = 16
    config.alignment.accumulation = 2
    config.alignment.learning_rate = 1e-2
    config.alignment.warmup_steps = 1
    config.alignment.log_every = 4
    config.alignment.eval_every = 4
    config.alignment.eval_words = 40
    config.alignment.checkpoint_every = 3
    return changed(config, changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alignment")
    write_text(folder / "text.txt")
    small_backbone(folder / "backbone")
    return folder


@pytest.fixture(scope="module")
def run(folder, programs):
    """The program of the run, built as the loop builds it."""
    config = of_stage(small_config(folder), "alignment")
    with quick_compilation(programs), on_devices(1):
        return build(config, prepare(config))


@pytest.fixture(scope="module")
def finished(folder, programs):
    """A run of eight steps, whole."""
    with quick_compilation(programs), on_devices(1):
        assert train_stages(small_config(folder), str(folder / "run"))
    return folder / "run"


def first(run):
    """Returns the first micro-batch of training."""
    batches = iter(run.train_batches)
    try:
        return jax.tree.map(lambda x: x[0], next(batches))
    finally:
        getattr(batches, "close", lambda: None)()


def heldout(run):
    """Returns the first two held-out batches: with one text a shard, clean texts and the same texts with noise."""
    batches = iter(run.heldout_batches)
    try:
        return [jax.tree.map(lambda x: x[0], next(batches)) for _ in range(2)]
    finally:
        getattr(batches, "close", lambda: None)()


def start_of(run):
    state = run.init()
    return run.objective.load_params(run.objective.config.init_from, run.abstract_state.params, state.params)


# ---- The start ----


def test_the_start_is_the_teacher_to_the_bit(run):
    params, (clean, noisy) = start_of(run), heldout(run)
    states = jax.jit(run.objective.states)
    student, teacher = states(params, clean)
    there = clean.mask_SBL.any(axis=-1).reshape(-1)
    assert there.sum() > 4
    assert (np.asarray(clean.inputs.ids_SBL) < -1).any()  # some words are split
    np.testing.assert_array_equal(student[there], teacher[there])
    student, teacher = states(params, noisy)
    assert not np.array_equal(student[there], teacher[there])


def test_only_the_module_gets_gradients(run):
    params, batch = start_of(run), first(run)
    loss = lambda params: run.objective.loss_sums(params, batch, None).loss
    found = flat(jax.jit(jax.grad(loss))(params))
    moved = {name for name, value in found.items() if np.frombuffer(value, np.float32).any()}
    assert {"char2subword/gate/kernel", "char2subword/gate/bias"} <= moved
    assert not {name for name in moved if name.startswith("char2subword/") and "gate" not in name}  # it is shut
    frozen = jax.tree_util.tree_leaves_with_path(run.abstract_state.opt_state)
    assert not any("bert" in str(path) for path, _ in frozen)


def test_batches_pair_what_both_read(run):
    batch, shape = first(run), run.objective.shape
    S, B, L = batch.clean_group_SBL.shape
    assert (S, B, L) == (8, 1, 24) == (shape.shards, shape.sequences, shape.length)
    assert batch.mask_SBL.any(axis=-1).all()
    np.testing.assert_array_equal(batch.mask_SBL, batch.inputs.mask_SBL)
    np.testing.assert_array_equal(batch.clean_mask_SBL, batch.teacher.mask_BL)
    assert 0 < batch.noisy_SB.sum() <= S * B
    for own, theirs in zip(batch.group_SBL.reshape(-1, L), batch.clean_group_SBL.reshape(-1, L), strict=True):
        assert set(own[own >= 0]) <= set(theirs[theirs >= 0])
    clean, noisy = heldout(run)
    np.testing.assert_array_equal(clean.teacher.ids_BL[..., :3], noisy.teacher.ids_BL[..., :3])  # noise may cut the end
    assert not clean.noisy_SB.any()
    np.testing.assert_array_equal(noisy.noisy_SB, noisy.mask_SBL.any(axis=-1))


# ---- A run ----


def test_a_run_learns_and_leaves_the_transformer_alone(finished, folder):
    lines = [line for line in read_metrics(finished) if "heldout_loss" in line]
    assert [line["step"] for line in lines] == [0, 4, 8]
    assert lines[0]["heldout_clean_cosine"] == pytest.approx(1, abs=1e-6)
    assert lines[-1]["heldout_noisy_cosine"] > lines[0]["heldout_noisy_cosine"]
    arrays, _ = saved(finished)
    source = checkpoints.on_one_device(checkpoints.stored_params(folder / "backbone"))
    before = flat(checkpoints.load_params(folder / "backbone", source))
    assert {name: arrays[f"params/{name}"] for name in before} == before
    assert np.frombuffer(arrays["params/char2subword/gate/kernel"], np.float32).any()


@pytest.mark.slow
def test_a_stopped_run_ends_as_an_unbroken_one(finished, folder, programs):
    half = functools.partial(small_config, folder)
    with quick_compilation(programs), on_devices(1):
        assert train_stages(half(alignment__steps=4), str(folder / "half"))
        shutil.rmtree(folder / "half" / "checkpoints" / "4")  # goes on from step 3, in the middle of a report
        assert train_stages(half(), str(folder / "half"))
    (one, position), (other, other_position) = saved(finished), saved(folder / "half")
    assert one == other
    assert position == other_position
    last = lambda workdir: metrics_without_timings(workdir)[-1]
    assert last(finished) == last(folder / "half")


def test_eight_devices_compute_the_same_loss(run, folder, programs):
    params, batch = start_of(run), heldout(run)[1]
    whole = jax.tree.map(lambda x: x[None], batch)
    config = of_stage(small_config(folder), "alignment")
    with quick_compilation(programs), on_devices(8):
        many = build(config, run.objective.data)
        sums = many.eval_step(jax.device_get(params), many.place(whole))
    alone = run.eval_step(params, run.place(whole))
    np.testing.assert_allclose(np.array(sums), np.array(alone), rtol=1e-5, atol=1e-5)


# ---- Where it starts, and what it frees ----


def test_a_module_without_a_gate_gets_one(run, folder, tmp_path):
    params = jax.device_get(start_of(run))
    kept = {name: value for name, value in params["char2subword"].items() if not name.startswith("gate")}
    module = jax.tree.map(lambda x: x + 1, kept)
    metadata = run.objective.metadata()
    metadata["model"] = metadata["model"] | {"mode": "hybrid"}
    metadata["model"]["characters"] = metadata["model"]["characters"] | {"gate": False}
    checkpoints.save_params(tmp_path / "c2s", params | {"char2subword": module}, metadata)
    run.objective.save_vocab(tmp_path / "c2s")
    config = of_stage(small_config(folder, init_from=str(tmp_path / "c2s")), "alignment")
    data = prepare(config)
    objective = type(run.objective)(config, data, 8)
    found = objective.load_params(config.init_from, run.abstract_state.params, run.init().params)
    own = flat(found["char2subword"])
    assert {name: value for name, value in own.items() if not name.startswith("gate")} == flat(module)
    assert not any(np.frombuffer(own[f"gate/{name}"], np.float32).any() for name in ("kernel", "bias"))


def test_freed_layers_are_trained_and_the_teacher_keeps_its_own(run, folder):
    config = of_stage(small_config(folder, alignment__free_layers=1), "alignment")
    data = prepare(config)
    assert data.teacher.keys() == {"layer_0"}
    with on_devices(1):
        freed = build(config, data)
    params, batch = start_of(run), first(run)
    moved = jax.tree.map(lambda x: x + 0.1, params["bert"]["encoder"]["layer_0"])
    other = params | {"bert": params["bert"] | {"encoder": {"layer_0": moved}}}
    states = jax.jit(freed.objective.states)
    (student, teacher), (moved_student, moved_teacher) = states(params, batch), states(other, batch)
    np.testing.assert_array_equal(teacher, moved_teacher)
    assert not np.array_equal(student, moved_student)
    loss = lambda params: freed.objective.loss_sums(params, batch, None).loss
    found = jax.jit(jax.grad(loss))(params)
    assert np.asarray(found["bert"]["encoder"]["layer_0"]["ffn_in"]["kernel"]).any()
    with pytest.raises(ValueError, match=r"alignment\.free_layers=1 needs init_from also to resume"):
        prepare(changed(config, {"init_from": ""}), folder / "backbone")
    with pytest.raises(ValueError, match=r"alignment\.free_layers=2, but .* has 1 layers"):
        prepare(changed(config, {"init_from": str(folder / "backbone"), "alignment__free_layers": 2}))


# ---- The config ----


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("noise", ("keybord:1",), r"alignment\.noise: noise 'keybord' .* keyboard"),
        ("noise", ("keyboard:2",), r"alignment\.noise: noise 'keyboard': expected a rate from 0 to 1, got 2"),
        ("noise", (), r"alignment\.noise names no kind of noise; alignment\.noise_share=0 leaves texts as they are"),
        ("noise", ("misspelling",), r"alignment\.noise: misspelling needs a list; alignment\.misspellings names none"),
        ("noise_share", 1.5, r"alignment\.noise_share=1\.5 must lie in \[0, 1\]"),
        ("temperature", 0.0, r"alignment\.temperature=0: similarities are divided by it; expected more"),
        ("pooling", "max", r"alignment\.pooling='max' is not one of mean, cls"),
        ("words", -1.0, r"alignment\.words=-1\.0"),
    ],
)
def test_wrong_values_are_named_in_one_line(key, value, message):
    config = load_config_file("configs/align.py:tiny")
    config.alignment[key] = value
    with pytest.raises(ValueError, match=message) as error:
        validate(config)
    assert "\n" not in str(error.value)


def test_a_loss_needs_a_part():
    config = load_config_file("configs/align.py")
    for name in ("sentence", "words", "teaching"):
        config.alignment[name] = 0.0
    with pytest.raises(ValueError, match="are all 0; expected one to be more"):
        validate(config)


def test_kinds_of_noise_are_typed_with_commas():
    config = load_config_file("configs/align.py:minilm+hybrid")
    assert (config.model.mode, config.model.hidden, config.stage) == ("hybrid", 256, "alignment")
    config.alignment.noise = ("keyboard:0.1, swap",)
    split_lists(config)
    validate(config)
    assert config.alignment.noise == ("keyboard:0.1", "swap")

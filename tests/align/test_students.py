"""Tests aligned students: of every family, with the vectors that they are used with, resumed to the bit."""

from __future__ import annotations

import dataclasses
import re
import shutil

import jax
import numpy as np
import optax
import pytest
from finetune.tiny_tasks import source
from small_run import metrics_without_timings, on_devices, quick_compilation, write_text
from small_xrayemb import xrayemb
from tiny_models import release

import charlm
from charlm.align.__main__ import main
from charlm.align.config import load
from charlm.align.objective import DENSE, TEACHER, StudentAlignment
from charlm.align.run import FROZEN, STATES, align
from charlm.core import checkpoint as checkpoints
from charlm.core.trees import flat
from charlm.families.alignment_loss import unit
from charlm.families.pretrained import from_pretrained
from charlm.families.sentences import Dense, SentenceSettings, write_settings
from charlm.families.subword.layout import config_to_dict
from charlm.training.progress import read_metrics
from charlm.training.run import built

TEXTS = ["the cat ran to the town.", "a dgo in a smal house", "old"]
SETTINGS = (
    "train.steps=4", "train.log_every=2", "train.eval_every=2", "train.eval_words=20", "train.checkpoint_every=1",
    "train.keep_checkpoints=4", "train.examples=2", "data.max_length=16", "data.batch_size=16", "data.accumulation=2",
    "data.table_shards=1", "data.encode_processes=1", "data.heldout_fraction=0.1", "optim.learning_rate=1e-3",
    "optim.warmup_steps=1", "optim.schedule=constant",
)  # fmt: skip
PROJECTED = ("hlm", "charbert")  # those whose states have another width than the teacher's
FAMILIES = (*PROJECTED, "xrayemb", pytest.param("char2subword", marks=pytest.mark.slow))  # a stage of it is tested, too


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("students")
    write_text(folder / "text.txt")
    return folder


@pytest.fixture(scope="module")
def sources(trained, tmp_path_factory):
    """The folder of a model of each family."""
    found = {family: source(family, trained.workdir) for family in ("hlm", "bert", "charbert", "char2subword")}
    found["xrayemb"] = tmp_path_factory.mktemp("xrayemb") / "model"
    tiny = xrayemb()
    described = {**tiny.metadata, "model": config_to_dict(tiny.config)}
    dataclasses.replace(tiny, metadata=described).save_pretrained(found["xrayemb"])
    return found


def config_of(folder, student, *settings, variant=""):
    where = (f"data.train={folder / 'text.txt'}", f"data.cache_dir={folder}")
    return load(
        f"student{variant}", [f"init_from={student}", f"teacher={release('bert')}", *where, *SETTINGS, *settings]
    )


@pytest.fixture(scope="module")
def runs(folder, sources, programs):
    """Returns a function of a family that returns the workdir of its finished run."""
    made = {}

    def run(family):
        if family not in made:
            made[family] = folder / family
            with quick_compilation(programs), on_devices(1):
                assert align(config_of(folder, sources[family]), made[family])
        return made[family]

    return run


def objective_of(config):
    """Returns the objective of a run, its first parameters, and a batch of training."""
    config.optim.freeze = (*config.optim.freeze, FROZEN)
    data = StudentAlignment.prepare(config)
    with on_devices(1):
        run = built(config, data, StudentAlignment, optax.sgd(0.1))
        params = run.objective.load_params("", run.abstract_state.params, run.init().params)
        return run.objective, params, jax.tree.map(lambda x: x[0], run.objective.sample())


# ---- What comes out ----


@pytest.mark.parametrize("family", FAMILIES)
def test_a_student_is_a_model_in_the_space_of_its_teacher(family, runs):
    run = runs(family)
    lines = [line for line in read_metrics(run) if "heldout_loss" in line]
    assert [line["step"] for line in lines] == [0, 2, 4]
    if family in PROJECTED:
        assert lines[0]["heldout_clean_cosine"] > 0.7  # the linear layer is fitted
    else:
        assert lines[-1]["heldout_loss"] < lines[0]["heldout_loss"]
    best = min(lines[1:], key=lambda line: line["heldout_loss"])["step"]
    assert [path.name for path in (run / "checkpoints").iterdir()] == [str(best)]
    model = from_pretrained(run)
    assert model.family == family
    assert model.metadata["alignment"]["teacher"] == str(release("bert"))
    vectors = charlm.load(run).encode(TEXTS, normalize=True)
    assert vectors.shape == (3, 24)  # the teacher's width
    assert (run / "checkpoints" / str(best) / "2_Dense").is_dir() == (family in PROJECTED)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_vectors_in_use_are_those_that_were_trained(family, runs, folder, sources):
    objective, params, _ = objective_of(config_of(folder, sources[family]))
    student, found = from_pretrained(runs(family)), {}
    if objective.projects:
        (dense,) = charlm.load(runs(family)).sentence_settings.steps
        found[DENSE] = {"kernel": dense.weight_ED.T, "bias": dense.bias_E}
    params = {**params, **student.params, **found}
    own = np.asarray(charlm.load(runs(family)).encode(TEXTS, normalize=True))
    shard = objective.shard()
    texts = objective.maker(0, hiding=True)
    for text in TEXTS:
        assert shard.add(texts.make([(text, "clean")], (0,)))
    batch = jax.tree.map(lambda x: x[None], shard.build())
    states, _ = objective.states(params, batch)
    mask = batch.mask_SBL[0][:3]
    pooled = np.stack([np.asarray(states)[n][mask[n]].mean(axis=0) for n in range(3)])
    np.testing.assert_allclose(own, np.asarray(unit(pooled)), atol=2e-5)


def test_the_teacher_stays_and_the_state_is_no_model(runs):
    run = runs("charbert")
    stored = checkpoints.find(run / STATES)
    names = flat(checkpoints.stored_params(stored))
    assert {name.split("/")[0] for name in names} >= {TEACHER, DENSE}
    params = checkpoints.load_params(stored, checkpoints.on_one_device(checkpoints.stored_params(stored)))
    teacher = from_pretrained(release("bert"))
    jax.tree.map(np.testing.assert_array_equal, params[TEACHER], jax.device_get(teacher.params))
    with pytest.raises(ValueError, match=r"state/\d+ is a model of the family alignment, expected hlm or"):
        from_pretrained(stored)


def test_the_teacher_taught_by_itself_is_itself(folder):
    objective, params, batch = objective_of(config_of(folder, release("bert"), "alignment.noise_share=0"))
    sums = jax.jit(lambda params: objective.loss_sums(params, batch, None))(params)
    assert not objective.projects
    assert float(sums.clean_cosine) == pytest.approx(float(sums.texts), rel=1e-6)
    assert float(sums.loss) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("family", "learn"),
    [
        ("xrayemb", {"xr_enc"}),
        ("char2subword", {"char2subword"}),
        ("charbert", {"charbert/char", "charbert/encoder/fusion", DENSE}),
    ],
)
def test_the_frozen_variant_trains_what_reads_characters(family, learn, folder, sources):
    config = config_of(folder, sources[family], variant=":frozen")
    objective, params, batch = objective_of(config)
    found = jax.jit(jax.grad(lambda params: objective.loss_sums(params, batch, None).loss))(params)
    frozen = [re.compile(pattern) for pattern in config.optim.freeze]
    moved = {name for name, x in flat(found).items() if np.asarray(x).any() and not any(p.search(name) for p in frozen)}
    assert {part for part in learn if any(name.startswith(part) for name in moved)} == learn
    assert {name for name in moved if not name.startswith(tuple(learn))} == set()
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(found[TEACHER]))


def test_a_policy_draws_in_training_alone(folder, sources):
    objective, _, _ = objective_of(config_of(folder, sources["xrayemb"], "model.policy=stochastic:0.5"))
    texts = [f"the cat sat {n}" for n in range(20)]

    def spelled(wanted):
        reading = objective._reading.fresh()
        made = (objective.maker(0, hiding=False).make([(text, wanted)], (n,)) for n, text in enumerate(texts))
        return sum(int((reading.read(one)[0].row.content[:, 0] < 0).sum()) for one in made)

    assert spelled("clean") == 0
    assert spelled("drawn") > 0


# ---- Going on ----


def test_a_stopped_run_ends_as_an_unbroken_one(runs, folder, sources, programs):
    whole, half = runs("charbert"), folder / "half"
    with quick_compilation(programs), on_devices(1):
        assert align(config_of(folder, sources["charbert"], "train.steps=3"), half)
        shutil.rmtree(half / STATES / "3")  # goes on from step 2
        assert align(config_of(folder, sources["charbert"]), half)
        assert align(config_of(folder, sources["charbert"]), half)  # there is nothing left to do
    read = lambda run: flat(jax.device_get(from_pretrained(run).params))
    jax.tree.map(np.testing.assert_array_equal, read(whole), read(half))
    assert metrics_without_timings(whole)[-1] == metrics_without_timings(half)[-1]
    with pytest.raises(ValueError, match=r"half holds a run of another config: data\.batch_size is 8, there 16"):
        align(config_of(folder, sources["charbert"], "data.batch_size=8"), half)
    more = "train.steps=5"
    for key, where in (("init_from", sources["charbert"]), ("teacher", release("bert"))):
        other = folder / f"other_{key}"
        shutil.copytree(where, other)
        tokenizer = (other / "tokenizer.json").read_text(encoding="utf-8")
        (other / "tokenizer.json").write_text(tokenizer.replace('"the"', '"thy"', 1), encoding="utf-8")
        with on_devices(1), pytest.raises(ValueError, match=rf"{key} is not the model, or reads text otherwise, that"):
            align(config_of(folder, sources["charbert"], more, f"{key}={other}"), half)
    shutil.copytree(release("bert"), folder / "moved")
    with quick_compilation(programs), on_devices(1):
        assert align(config_of(folder, sources["charbert"], more, f"teacher={folder / 'moved'}"), half)
    with pytest.raises(ValueError, match="is a checkpoint; name it in"):
        align(config_of(folder, sources["charbert"]), next((half / "checkpoints").iterdir()))


def test_a_student_whose_states_were_removed_is_not_replaced(runs, folder, sources, tmp_path):
    shutil.copytree(runs("charbert"), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / STATES)
    for steps in (4, 9):
        with pytest.raises(
            ValueError, match=r"run holds a student without state/, .*; choose another --workdir, or re"
        ):
            align(config_of(folder, sources["charbert"], f"train.steps={steps}"), tmp_path / "run")
    assert charlm.load(tmp_path / "run").encode("the cat", normalize=True).shape == (24,)


# ---- What is refused ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["init_from="], "init_from is empty: expected the student, a model of any family"),
        (["teacher="], "teacher is empty: expected the model that made the vectors of the index"),
        (["teacher=nowhere"], "teacher=nowhere: nowhere does not exist"),
        (["alignment.pooling=max"], "alignment.pooling='max' is not one of empty, mean, cls"),
        (["task=tagging"], "--set task=tagging: an aligned student has no key task"),
        (
            ["optim.freeze=^hlm/,dense"],
            r"optim\.freeze=.* leaves nothing to be trained that the student's vectors depend",
        ),
        (["alignment.noise=keybord:1"], r"alignment\.noise: noise 'keybord'.*keyboard"),
        (["data.max_length=30"], "init_from=.*: data.max_length=30: the model has 16 positions"),
        (["model.mode=gated"], "model.mode=gated needs a model of the kind Char2Subword"),
        (["data.batch_size=15"], "data.batch_size=15 must be a multiple of data.accumulation=2"),
    ],
)
def test_mistakes_are_one_line(settings, message, folder, sources, capsys, tmp_path):
    where = (f"data.train={folder / 'text.txt'}", f"data.cache_dir={folder}")
    given = [f"init_from={sources['hlm']}", f"teacher={release('bert')}", *where, *SETTINGS, *settings]
    with on_devices(1):
        assert main(["student", "--workdir", str(tmp_path / "run"), "--set", *given]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(message, last)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_pooling_that_cannot_be_aligned_is_named(folder, sources, tmp_path):
    teacher = tmp_path / "teacher"
    shutil.copytree(release("bert"), teacher)
    (teacher / "1_Pooling").mkdir()
    (teacher / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}', encoding="utf-8")
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")]
    listed = [f'{{"type": "sentence_transformers.models.{kind}", "path": "{path}"}}' for kind, path in kinds]
    (teacher / "modules.json").write_text(f"[{', '.join(listed)}]", encoding="utf-8")
    config = config_of(folder, sources["bert"], f"teacher={teacher}")
    with pytest.raises(ValueError, match=r"texts are pooled by max; expected one of mean, cls: choose it by align"):
        objective_of(config)
    objective, _, _ = objective_of(config_of(folder, sources["bert"], f"teacher={teacher}", "alignment.pooling=cls"))
    assert objective._weights.pooling == "cls"


def test_a_teacher_with_a_dense_layer_is_refused(folder, sources, tmp_path):
    teacher = tmp_path / "teacher"
    shutil.copytree(release("bert"), teacher)
    dense = Dense(np.eye(24, dtype=np.float32), np.zeros(24, np.float32), "Tanh")
    write_settings(teacher, SentenceSettings(steps=(dense,)), 24)
    with pytest.raises(ValueError, match=r"teacher=.*: its files put a dense layer behind the pooling"):
        objective_of(config_of(folder, sources["bert"], f"teacher={teacher}"))


def test_a_layer_between_spaces_of_one_width_is_asked_for(folder, sources):
    found = []
    for projection, there in (("auto", False), ("always", True)):
        settings = (f"teacher={release('roberta')}", f"alignment.projection={projection}")
        objective, params, batch = objective_of(config_of(folder, sources["bert"], *settings))
        assert objective.projects == there == (DENSE in params)
        sums = jax.jit(lambda params, batch, of=objective: of.loss_sums(params, batch, None))(params, batch)
        found.append(float(sums.sentence) / float(sums.texts))
    assert found[1] < found[0] / 2  # it is fitted


def test_models_behind_a_speller_are_refused(folder, sources, tmp_path):
    shutil.copytree(release("bert"), tmp_path / "reader")
    (tmp_path / "reader" / "speller.json").write_text("{}", encoding="utf-8")
    for key in ("init_from", "teacher"):
        with pytest.raises(ValueError, match=rf"{key}=.*reader reads texts through a speller, which alignment leaves"):
            objective_of(config_of(folder, sources["bert"], f"{key}={tmp_path / 'reader'}"))


def test_a_student_with_labels_of_an_hlm_is_refused(folder):
    with pytest.raises(ValueError, match="init_from=hlm-small-en-pos: a HLM has no encoder that is used alone"):
        objective_of(config_of(folder, "hlm-small-en-pos"))

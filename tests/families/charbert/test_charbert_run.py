"""Tests CharBERT's pre-training: it learns, resumes to the bit, starts from a BERT, same on eight devices."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from typing import NamedTuple

import jax
import numpy as np
import pytest
from again import again
from small_charbert import small_charbert_config
from small_run import metrics_without_timings, on_devices, python, write_text
from trees import assert_same_trees

import charlm.training.train
from charlm import from_pretrained
from charlm.config import from_dict, load_config_file, to_json
from charlm.core import checkpoint as checkpoints
from charlm.core.sharding import path_name
from charlm.families.charbert import shape
from charlm.families.charbert.loss import label_weights
from charlm.families.charbert.model import CharBertConfig
from charlm.families.charbert.shape import check_fusion, model_config, read_backbone, resolve
from charlm.families.charbert.terms import TermVocab
from charlm.families.lookup import converter_of, prepare
from charlm.families.subword.bert import BertConfig, BertForMaskedLM
from charlm.families.subword.layout import config_to_dict
from charlm.families.subword.start import merge_backbone
from charlm.text.subwords import SubwordTokenizer
from charlm.training.evaluate import evaluate
from charlm.training.progress import read_metrics
from charlm.training.run import build
from charlm.training.train import train


class Finished(NamedTuple):
    """A finished run of eight steps on one device."""

    folder: object
    run: object
    data: object

    def config(self, **changes):
        """Returns a copy of its config, with changes written section__key=value."""
        config = small_charbert_config(self.folder / "text.txt", self.folder / "cache")
        config.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
        return config

    @property
    def workdir(self):
        return self.folder / "run"


@pytest.fixture(scope="module")
def charbert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("charbert")
    write_text(folder / "text.txt")
    made = []
    keep = lambda *arguments: made.append(build(*arguments)) or made[0]
    with on_devices(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(charlm.training.train, "build", keep)
        train(small_charbert_config(folder / "text.txt", folder / "cache"), str(folder / "run"))
    return Finished(folder, made[0], made[0].objective.data)


@pytest.fixture
def same_run(charbert, monkeypatch):
    """Training builds nothing: it takes the programs of the finished run."""
    monkeypatch.setattr(charlm.training.train, "build", lambda config, data: charbert.run)


def saved_state(charbert, workdir):
    batches = iter(charbert.run.train_batches)
    try:
        state = checkpoints.load(checkpoints.find(workdir), charbert.run.abstract_state, batches)
        return jax.device_get(state), next(batches)
    finally:
        batches.close()


def assert_ended_as_unbroken(charbert, workdir):
    assert_same_trees(saved_state(charbert, workdir), saved_state(charbert, charbert.workdir))
    assert metrics_without_timings(workdir) == metrics_without_timings(charbert.workdir)


# ---- An unbroken run ----


def test_both_losses_fall(charbert):
    lines = [line for line in read_metrics(charbert.workdir) if "heldout_loss" in line]
    assert [line["step"] for line in lines] == [0, 4, 8]
    sizes = {"mlm": (charbert.data.tokenizer.size, 0.3), "nlm": (charbert.data.terms.size, 0.02)}
    for part, (size, fall) in sizes.items():
        losses = [line[f"heldout_{part}_loss"] for line in lines]
        assert losses[0] == pytest.approx(math.log(size), abs=0.3)  # of a fresh model: anything, alike
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < losses[0] - fall
    for line in lines:
        assert line["heldout_loss"] == pytest.approx(line["heldout_mlm_loss"] + line["heldout_nlm_loss"])


def test_every_parameter_moves_but_for_those_that_none_uses(charbert):
    before = jax.device_get(charbert.run.init().params)
    after = saved_state(charbert, charbert.workdir)[0].params
    moved = jax.tree.map(lambda x, y: float(np.abs(x - y).max()), after, before)
    still = {path_name(path) for path, change in jax.tree_util.tree_leaves_with_path(moved) if change < 1e-3}
    # No head reads the pooler, and a bias of all keys alike changes no probability.
    assert all("pooler" in name or name.endswith("key/bias") for name in still)
    table = [tree["charbert"]["char"]["table"]["embedding"] for tree in (before, after)]
    np.testing.assert_array_equal(table[0][0], table[1][0])  # the row of no character


def test_progress_lines_hold_what_they_should(charbert):
    for line in read_metrics(charbert.workdir):
        if "loss" in line:
            assert line["loss"] == pytest.approx(line["mlm_loss"] + line["nlm_loss"])
            assert min(line["subwords_per_second"], line["tflops_per_second"], line["grad_norm"]) > 0
            assert 0 <= line["mlm_accuracy"] <= 1


def test_a_checkpoint_can_be_used_by_itself(charbert, tmp_path):
    checkpoint = checkpoints.find(charbert.workdir)
    metadata = checkpoints.read_metadata(checkpoint)
    assert metadata["model"]["vocab_size"] == charbert.data.tokenizer.size
    assert metadata["symbols"] == charbert.data.chars.to_dict()
    for folder in (checkpoints.files_of(checkpoint), charbert.workdir):
        assert SubwordTokenizer.load(folder).digest() == charbert.data.tokenizer.digest()
        assert TermVocab.load(folder / "term_vocab.txt") == charbert.data.terms
    stored = from_dict(metadata["config"])
    assert (stored.model.vocab_size, stored.model.backbone) == (charbert.data.tokenizer.size, "bert")
    assert stored.data.noised_budget == charbert.run.objective.shape.noised > 0


# ---- Stopped and started again ----


@pytest.mark.slow
def test_killed_at_once_and_built_anew(charbert, tmp_path):
    workdir = tmp_path / "run"
    code = f"""
import json, os
from pathlib import Path
from charlm.config import from_dict
from charlm.training.loop import Loop
from charlm.training.train import train
from small_run import on_devices
step = Loop._step
Loop._step = lambda self, now: os._exit(7) if now == 6 else step(self, now)
with on_devices(1):
    train(from_dict(json.loads(Path({str(tmp_path / "config.json")!r}).read_text())), {str(workdir)!r})
"""
    (tmp_path / "config.json").write_text(to_json(charbert.config()))
    done = python("-c", code)
    assert done.returncode == 7, done.stderr
    assert checkpoints.find(workdir).name in ("3", "4")
    with on_devices(1):
        train(charbert.config(), str(workdir))
    assert_ended_as_unbroken(charbert, workdir)


def test_resume_takes_everything(charbert, same_run, tmp_path):
    config = charbert.config(resume=str(charbert.workdir / "checkpoints" / "4"))
    train(config, str(tmp_path / "run"))
    assert_same_trees(
        saved_state(charbert, tmp_path / "run"),
        saved_state(charbert, charbert.workdir),
    )


def test_a_run_goes_on_with_its_own_vocabularies(charbert, same_run, tmp_path):
    """What it started from is gone, and so is what was built in the cache."""
    workdir = shutil.copytree(charbert.workdir, tmp_path / "run")
    shutil.rmtree(workdir / "checkpoints" / "8")
    config = charbert.config(init_from="nowhere", data__cache_dir=str(tmp_path / "cache"))
    data = prepare(config, workdir)
    assert data.digests() == charbert.data.digests()
    train(config, str(workdir))
    assert_same_trees(saved_state(charbert, workdir), saved_state(charbert, charbert.workdir))


def test_another_vocabulary_is_refused(charbert, tmp_path):
    config = charbert.config(text__pieces=80, text__chars=20, text__terms=20)
    prepare(config).save(tmp_path / "other")
    files = {"tokenizer": ("", "subwords"), "char_vocab": ("/char_vocab.txt", "characters")}
    for key, (file, name) in (files | {"term_vocab": ("/term_vocab.txt", "words")}).items():
        config = charbert.config(resume=str(charbert.workdir / "checkpoints" / "4"))
        config.text[key] = f"{tmp_path}/other{file}"
        with (
            on_devices(1),
            pytest.raises(ValueError, match=rf"has another vocabulary of .*{name}.*; set text\.tokenizer="),
        ):
            train(config, str(tmp_path / "run"))


# ---- Evaluation ----


def test_heldout_noise_and_masks_are_always_the_same(charbert):
    batches, again = list(charbert.run.heldout_batches), list(charbert.run.heldout_batches)
    assert_same_trees(batches, again)
    hidden = charbert.data.tokenizer.special.mask
    for batch in batches:
        real = batch.mlm_labels_SM[0] >= 0
        ids = batch.inputs.ids_BL[0].reshape(*real.shape[:1], -1)
        assert (np.take_along_axis(ids, batch.mlm_position_SM[0], axis=1)[real] == hidden).all()
    counts = np.sum([label_weights(batch) for batch in batches], axis=0)
    assert min(counts) > 20


def test_evaluation_does_not_depend_on_the_batch_size(charbert):
    params = saved_state(charbert, charbert.workdir)[0].params
    with on_devices(1):
        run = build(charbert.config(data__batch_size=5, data__table_shards=1), charbert.data)
    one, two = (evaluate(r, jax.device_put(params, jax.devices()[0])) for r in (charbert.run, run))
    assert one["subwords"] == two["subwords"]
    np.testing.assert_allclose([two[name] for name in one], list(one.values()), rtol=1e-5)


# ---- Other devices ----


def steps(run, state, batches):
    state = jax.device_put(state, jax.tree.map(lambda x: x.sharding, run.abstract_state))
    results = []
    for batch in batches:
        state, sums, norm = run.train_step(state, run.place(batch))
        results.append(jax.device_get((*sums, norm)))
    return np.array(results)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"data": 8}, {"data": 2, "fsdp": 2, "model": 2}], ids=["8", "2x2x2"])
def test_eight_devices_compute_what_one_does(charbert, mesh):
    iterator = iter(charbert.run.train_batches)
    batches = [next(iterator) for _ in range(2)]
    iterator.close()
    start = jax.device_get(charbert.run.init())
    want = steps(charbert.run, start, batches)
    config = charbert.config()
    config.mesh.update(mesh)
    run = build(config, charbert.data)
    assert run.objective.shape == charbert.run.objective.shape
    got = steps(run, start, batches)
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5)  # losses, hits and gradient, with dropout
    np.testing.assert_allclose(got[1, :4], want[1, :4], rtol=1e-3)  # the second step sees an update
    assert run.train_step._cache_size() == 1


# ---- Variants ----


MORE_VARIANTS = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("no_nlm", "no_gru", "no_interaction", "advbert", "roberta")
]


@pytest.mark.parametrize("variant", ["roformer", again("reference"), *MORE_VARIANTS])
def test_variants_train(charbert, variant):
    shape = charbert.config().to_dict()["model"]
    config = load_config_file(f"configs/charbert_base.py:{variant}") if variant else None
    changes = {name: value for name, value in config.model.items() if value != _default(name)}
    config = charbert.config(**{f"model__{name}": value for name, value in changes.items() if name != "char_hidden"})
    config.data.noise_rate = 0.0 if variant == "no_nlm" else 0.15
    config.data.noise = config.data.masking = "reference" if variant == "reference" else "paper"
    config.model.max_positions = 40 if variant == "roberta" else shape["max_positions"]
    with on_devices(1):
        run = build(config, charbert.data)
    iterator = iter(run.train_batches)
    batch = next(iterator)
    iterator.close()
    state = run.init()
    before = jax.device_get(state.params)
    state, sums, norm = run.train_step(state, run.place(batch))
    assert math.isfinite(float(norm))
    assert float(sums.mlm_labels) > 0
    predicts_words = variant not in ("no_nlm", "advbert")
    assert (float(sums.nlm_labels) > 0) == predicts_words
    assert ("charbert" in before) == (variant != "advbert")
    metadata = run.objective.metadata()
    assert ("position" not in before.get("charbert", before.get("bert"))["embed"]) == (variant == "roformer")
    assert metadata["family"] == ("bert" if variant == "advbert" else "charbert")
    checkpoints.check_fits(variant, before, converter_of(metadata["family"]).target(metadata, variant).params)
    noised = run.objective.config.data.noise_rate > 0
    assert (any(label >= 0 for label in batch.nlm_labels_SP.reshape(-1))) == (predicts_words and noised)
    jax.tree.map(
        lambda x, y: None if np.isfinite(x).all() else pytest.fail("not finite"), jax.device_get(state.params), before
    )


def _default(name):
    return load_config_file("configs/charbert_base.py").model[name]


# ---- init_from ----


@pytest.fixture(scope="module")
def backbone(charbert, tmp_path_factory):
    """An imported BERT of the same shape, with the subwords of the finished run."""
    folder = tmp_path_factory.mktemp("backbone") / "bert"
    shape = BertConfig(vocab_size=90, hidden=16, layers=1, heads=2, ffn=32, max_positions=32, pooler=False)
    ids = np.ones((1, 4), np.int32)
    params = BertForMaskedLM(shape).init(jax.random.key(5), ids)["params"]
    from charlm.families.subword.layout import config_to_dict

    metadata = {"family": "bert", "model": config_to_dict(shape), "head": "masked_lm"}
    checkpoints.save_params(folder, params, metadata)
    charbert.data.tokenizer.save(folder)
    return folder, jax.device_get(params)


def test_a_bert_without_characters_goes_on_as_it_is(charbert, backbone):
    """AdvBERT: a BERT or RoBERTa that is trained on with noise."""
    folder, theirs = backbone
    config = charbert.config(init_from=str(folder), model__max_positions=0, model__char_channel=False, model__nlm=False)
    with on_devices(1):
        run = build(config, prepare(config))
    params = jax.device_get(run.objective.load_params(config.init_from, run.abstract_state.params, run.init().params))
    assert_same_trees(params["bert"]["embed"], theirs["bert"]["embed"])
    assert_same_trees(params["bert"]["encoder"], theirs["bert"]["encoder"])
    assert_same_trees(params["head"], theirs["head"])


def test_a_bert_becomes_the_token_channel(charbert, backbone, tmp_path, log_lines):
    folder, theirs = backbone
    config = charbert.config(init_from=str(folder), train__steps=1, model__max_positions=0)
    with on_devices(1):
        data = prepare(config)
        assert data.tokenizer.digest() == charbert.data.tokenizer.digest()
        run = build(config, data)
    fresh = run.init().params
    params = jax.device_get(run.objective.load_params(config.init_from, run.abstract_state.params, fresh))
    assert_same_trees(params["charbert"]["embed"], theirs["bert"]["embed"])
    layer = lambda tree, name: tree[name]["encoder"]["layer_0"]
    assert_same_trees(layer(params, "charbert"), layer(theirs, "bert"))
    for name in ("transform", "transform_norm", "output_bias"):
        assert_same_trees(params["head"][name], theirs["head"][name])
    fresh = jax.device_get(fresh)
    assert_same_trees(params["charbert"]["char"], fresh["charbert"]["char"])
    assert run.objective.model.config.max_positions == 32
    assert "a bert; not there, so fresh: charbert/char, charbert/encoder" in str(log_lines)


@pytest.mark.slow
def test_a_run_from_a_bert_goes_on_without_it(charbert, backbone, tmp_path):
    folder = shutil.copytree(backbone[0], tmp_path / "bert")
    config = lambda steps: charbert.config(init_from=str(folder), train__steps=steps, model__max_positions=0)
    with on_devices(1):
        train(config(1), str(tmp_path / "run"))
        shutil.rmtree(folder)
        train(config(2), str(tmp_path / "run"))
    assert checkpoints.find(tmp_path / "run").name == "2"
    stored = from_dict(json.loads((tmp_path / "run" / "config.json").read_text())).model
    assert (stored.backbone, stored.vocab_size, stored.max_positions) == ("bert", 90, 32)


def test_activation_and_epsilon_are_those_of_the_bert(charbert, backbone, tmp_path):
    found = read_backbone(str(backbone[0]))
    shape = dataclasses.replace(found.config, activation="relu", epsilon=1e-3)
    other = dataclasses.replace(found, config=shape, metadata={**found.metadata, "model": config_to_dict(shape)})
    config = charbert.config(init_from="bert")
    resolved = resolve(config, charbert.data, other)
    model = model_config(config, charbert.data, resolved)
    assert (model.activation, model.epsilon) == ("relu", 1e-3)
    assert (resolved["activation"], resolved["epsilon"]) == ("relu", 1e-3)
    for key, value in {"activation": "gelu", "epsilon": 1e-5}.items():
        with pytest.raises(ValueError, match=rf"model\.{key}={value}, but init_from=bert has"):
            resolve(charbert.config(init_from="bert", **{f"model__{key}": value}), charbert.data, other)
    strange = dataclasses.replace(found, config=dataclasses.replace(found.config, position_offset=2))
    with pytest.raises(ValueError, match="position_offset=2, but CharBERT on a bert has 0"):
        resolve(config, charbert.data, strange)


def test_resume_takes_over_what_came_from_the_bert(charbert, backbone, tmp_path):
    """Another workdir goes on with a run that began from a BERT, without naming that."""
    first, then = tmp_path / "first", tmp_path / "then"
    with on_devices(1):
        train(charbert.config(init_from=str(backbone[0]), train__steps=3, model__max_positions=0), str(first))
        train(charbert.config(resume=str(first), train__steps=4, model__max_positions=0), str(then))
    stored = checkpoints.read_metadata(checkpoints.find(then))["model"]
    assert stored["max_positions"] == 32


def test_a_bert_of_another_shape_is_refused(charbert, backbone):
    config = charbert.config(init_from=str(backbone[0]), model__hidden=32)
    with on_devices(1), pytest.raises(ValueError, match=r"model\.hidden=32, but init_from=.* has 16"):
        build(config, charbert.data)
    found = read_backbone(str(backbone[0]))
    wrong = {"charbert": {"embed": {}}, "head": {}}
    with pytest.raises(ValueError, match=r"init_from: .*: bert/.* is \(.*\), expected nothing"):
        merge_backbone(found, wrong, "charbert")


def test_a_charbert_goes_on_as_another_run(charbert, same_run, tmp_path):
    config = charbert.config(init_from=str(charbert.workdir), train__steps=1)
    train(config, str(tmp_path / "run"))
    first = metrics_without_timings(tmp_path / "run")[0]
    last = [line for line in metrics_without_timings(charbert.workdir) if "heldout_loss" in line][-1]
    assert first == last | {"step": 0}


def test_a_charbert_says_its_own_shape(charbert):
    config = charbert.config(init_from=str(charbert.workdir), model__max_positions=0)
    with on_devices(1):
        run = build(config, prepare(config))
    assert run.objective.model.config == charbert.run.objective.model.config


def test_a_charbert_on_another_backbone_says_so(charbert):
    config = charbert.config(init_from=str(charbert.workdir), model__backbone="roformer")
    with on_devices(1), pytest.raises(ValueError, match=r"model\.backbone=roformer, but init_from=.* has bert$"):
        build(config, charbert.data)


def test_a_charbert_with_other_fusions_says_what_to_set(charbert, monkeypatch):
    config = charbert.config(init_from=str(charbert.workdir))
    check_fusion(config)
    config.model.shared_fusion = False
    wanted = "has other fusions of its channels: set --config.model.fusion=paper --config.model.shared_fusion="
    with pytest.raises(ValueError, match=re.escape(f"{wanted}True --config.model.windows='(3,)'") + "$"):
        check_fusion(config)
    config.model.shared_fusion = True
    older = {"fusion": "paper", "windows": [3, 4, 5]}  # as it was saved before fusions could be shared
    monkeypatch.setattr(shape, "metadata_of", lambda *_: {"model": older})
    with pytest.raises(ValueError, match=re.escape(f"{wanted}False --config.model.windows='(3, 4, 5)'") + "$"):
        check_fusion(config)
    assert not CharBertConfig(**older).one_fusion


def test_a_finished_run_says_what_it_changed(charbert, log_lines):
    train(charbert.config(), str(charbert.workdir))
    assert "holds a finished run of 8 steps: nothing to do" in str(log_lines)
    assert "held-out mlm loss and nlm loss: " in str(log_lines)
    assert f"python -m charlm.predict fill-mask --checkpoint={charbert.workdir} " in str(log_lines)


def test_examples_are_shown(charbert, log_lines):
    charbert.run.objective.config.train.examples = 2
    try:
        charbert.run.objective.show_examples(saved_state(charbert, charbert.workdir)[0].params)
    finally:
        charbert.run.objective.config.train.examples = 0
    lines = [line for line in log_lines.lines if line.startswith(("masked", "misspelled"))]
    assert len(lines) == 4
    assert all("right: " in line for line in lines)


def test_from_pretrained_reads_a_run(charbert):
    found = from_pretrained(charbert.workdir)
    assert found.family == "charbert"
    assert found.tokenizer().digest() == charbert.data.tokenizer.digest()
    params = saved_state(charbert, charbert.workdir)[0].params
    assert_same_trees(jax.device_get(found.params), params)


def test_the_command_it_names_works(charbert):
    done = python("-m", "charlm.predict", "fill-mask", f"--checkpoint={charbert.workdir}", "the [MASK] sat on a mat")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 1


def test_json_of_the_config_is_stored(charbert):
    stored = from_dict(json.loads((charbert.workdir / "config.json").read_text()))
    assert stored.family == "charbert"
    assert stored.data.table_shards == 8

"""Tests fine-tuning an XRayEmb: words are drawn anew in every epoch, and joined words keep one label each."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from finetune.test_fine_tuning import small, write_data
from small_run import on_devices
from small_xrayemb import xrayemb
from tiny_models import release

from charlm import predict
from charlm.config.finetuning import get_config
from charlm.convert import __main__ as convert
from charlm.convert.model import Model
from charlm.data.conll import read_tagged
from charlm.families.pretrained import from_pretrained
from charlm.families.source import load_source
from charlm.families.subword.layout import config_to_dict
from charlm.families.xrayemb.conversion import XRayEmbConverter, chars_of
from charlm.families.xrayemb.predictor import XRayEmbPredictor
from charlm.finetune import strips
from charlm.finetune.predictor import FineTuned
from charlm.finetune.run import fine_tune

pytestmark = pytest.mark.usefixtures("log_lines")


@pytest.fixture(autouse=True)
def _one_shape(monkeypatch):
    monkeypatch.setattr(strips, "QUANTILES", (1.0,))


def saved(tmp_path, backbone, **changes):
    """Returns a checkpoint of a language model, as second pre-training writes them."""
    model = xrayemb(backbone, **changes)
    head = "causal_lm" if backbone == "gpt2" else "masked_lm"
    metadata = {**model.metadata, "head": head, "model": config_to_dict(model.config)}
    XRayEmbConverter().save(Model(model.params, metadata, model.folder, model.folder), tmp_path / "begin")
    return tmp_path / "begin"


@pytest.mark.parametrize(
    ("key", "value", "needs"),
    [
        ("policy", "stochastic:0.1", r"a model of the kind XRayEmb \(made by configs/xrayemb_base\.py\)"),
        ("eval_policy", "none", r"a model of the kind XRayEmb \(made by configs/xrayemb_base\.py\)"),
        ("mode", "full", r"a model of the kind Char2Subword \(made by configs/char2subword_base\.py\)"),
    ],
)
def test_keys_of_another_family_say_which_one_they_need(key, value, needs):
    config = get_config("tagging")
    config.init_from, config.model[key] = str(release("bert")), value
    with pytest.raises(ValueError, match=rf"^model\.{key}={value} needs {needs}, and is left empty for a bert$"):
        load_source(config)


def test_dropout_is_what_fine_tuning_says_everywhere(tmp_path):
    config = get_config("tagging")
    config.model.dropout, config.model.attention_dropout = 0.25, 0.0
    config.init_from = str(release("gpt2", dropout=0.1, attention_dropout=0.1, embed_dropout=0.1))
    found = load_source(config).config
    assert (found.dropout, found.attention_dropout, found.embed_dropout) == (0.25, 0.0, 0.25)
    config.init_from = str(saved(tmp_path, "gpt2"))
    assert xrayemb("gpt2").config.encoder.dropout != 0.25
    found = load_source(config).config
    assert (found.dropout, found.embed_dropout, found.encoder.dropout) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("backbone", "policy"), [pytest.param("bert", "stochastic:0.5", marks=pytest.mark.slow), ("gpt2", "all_multi")]
)
def test_words_are_tagged(tmp_path, backbone, policy):
    begin = saved(tmp_path, backbone)
    train, dev = write_data("tagging", tmp_path, train=160 if backbone == "bert" else 40)
    epochs = 12 if backbone == "bert" else 1
    changes = {"train__epochs": epochs, "optim__learning_rate": 2e-2, "model__dropout": 0.0, "model__policy": policy}
    config = small("tagging", begin, train, dev, **changes)
    with on_devices(1 if backbone == "bert" else 8):  # one is the quickest
        (result,) = fine_tune(config, str(tmp_path / "run"))["runs"].values()
    assert backbone != "bert" or result["dev"]["f1"] > 0.5  # nothing learned: 0
    before, after = from_pretrained(begin), from_pretrained(tmp_path / "run")
    assert (after.family, after.config.policy, after.config.generator) == ("xrayemb", policy, None)
    assert chars_of(after).to_dict() == chars_of(before).to_dict()
    one, other = (jax.tree.leaves(model.params["xr_enc"]) for model in (before, after))
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(one, other, strict=True))  # the encoder learns, too
    sentences = [list(example.words) for example in read_tagged(str(dev))]
    tags = [found.tags for found in FineTuned.from_checkpoint(tmp_path / "run").tag(sentences)]
    assert [len(found) for found in tags] == [len(words) for words in sentences]
    written = (tmp_path / "run" / "predictions_dev.conll").read_text().split("\n\n")
    columns = [[line.split() for line in block.splitlines()] for block in written if block.strip()]
    assert [tuple(row[-1] for row in block) for block in columns] == tags
    assert predict.main(["tag", f"--checkpoint={tmp_path / 'run'}", "--policy=none", "unbelievably"]) == 0


def test_another_policy_ends_the_one_for_use_that_was_stored(tmp_path):
    begin = saved(tmp_path, "bert", policy="all", eval_policy="all_multi")
    policies = lambda **changes: (lambda config: (config.policy, config.eval_policy))(
        load_source(small("tagging", begin, "train.conll", **changes)).config
    )
    assert policies() == ("all", "all_multi")
    assert policies(model__policy="none") == ("none", "")
    assert policies(model__policy="none", model__eval_policy="all_single") == ("none", "all_single")


@pytest.mark.parametrize(
    ("backbone", "task", "label_head", "own"),
    [
        ("bert", "tagging", "lstm", {"lstm", "label"}),
        pytest.param("bert", "classification", "mean", {"label"}, marks=pytest.mark.slow),
        pytest.param("gpt2", "classification", "perceptron", {"transform", "label"}, marks=pytest.mark.slow),
    ],
)
def test_the_heads_of_the_paper_are_trained_loaded_and_not_exported(tmp_path, capsys, backbone, task, label_head, own):
    begin = saved(tmp_path, backbone)
    train, dev = write_data(task, tmp_path)
    config = small(task, begin, train, dev, train__epochs=1, model__label_head=label_head, model__policy="none")
    with on_devices(1):
        (result,) = fine_tune(config, str(tmp_path / "run"))["runs"].values()
    after = from_pretrained(tmp_path / "run")
    assert (set(after.params), after.metadata["label_head"]) == ({backbone, "xr_enc", *own}, label_head)
    model = FineTuned.from_checkpoint(tmp_path / "run")
    examples = model.task.read([str(dev)], training=False)
    assert model.task.scores(examples, model.predict(examples)) == result["dev"]
    (one,), (other,) = (
        XRayEmbPredictor.from_checkpoint(path).encode(["the cat"]) for path in (tmp_path / "run", begin)
    )
    assert one.vectors_WD.shape == other.vectors_WD.shape
    for option in ([], ["--backbone-only"]):
        arguments = [f"--checkpoint={tmp_path / 'run'}", f"--output={tmp_path / 'out'}", *option]
        assert convert.main(["export", *arguments]) != 0
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "label_head" in line]
        assert f"transformers has no class with label_head={label_head}" in line
        assert not (tmp_path / "out").exists()

"""Tests heads for labels beside the linear one as users meet them: stored, read again, resumed, refused."""

from __future__ import annotations

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest
from again import again
from finetune.broken_runs import check_resumed
from finetune.test_fine_tuning import small, write_data
from small_char2subword import spelled
from small_characterbert import characterbert
from small_run import on_devices
from tiny_models import release

import charlm
from charlm.core.sharding import RULES
from charlm.core.trees import flat
from charlm.data.conll import read_tagged
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.label_heads import label_head_of
from charlm.finetune import strips
from charlm.finetune.model import first_params, with_task
from charlm.finetune.run import fine_tune
from charlm.tasks.classification import Classification
from charlm.tasks.columns import Columns
from charlm.tasks.question_answering import QuestionAnswering
from charlm.tasks.tagging import Tagging

TASKS = {
    "perceptron": Classification(Columns(), ("bad", "fair", "good")),
    "lstm": Tagging(labels=("O", "B-X", "I-X"), entities=True),
}
TASKS |= {"lstm768": TASKS["lstm"], "mean": TASKS["perceptron"]}
OWN = {"mean": {"label"}, "perceptron": {"transform", "label"}, "lstm": {"lstm", "label"}, "lstm768": {"lstm", "label"}}


SOURCES = {"characterbert": characterbert, "char2subword": functools.partial(spelled, "bert")}
ENCODERS = {"gpt2": {"gpt2"}, "characterbert": {"bert", "cnn"}, "char2subword": {"bert", "char2subword"}}


def headed(family, label_head):
    source = from_pretrained(SOURCES.get(family, functools.partial(release, family))())
    model, target = with_task(source, TASKS[label_head], label_head)
    return source, dataclasses.replace(model, params=first_params(source, model, target, 0))


@pytest.mark.parametrize(
    ("family", "label_head"),
    [("bert", "perceptron"), ("bert", "lstm"), ("bert", "lstm768"), ("gpt2", "perceptron"), ("bert", "mean")]
    + [
        again(*case)
        for case in (
            ("roberta", "perceptron"),
            ("roberta", "lstm"),
            ("gpt2", "lstm"),
            ("gpt2", "mean"),
            ("roberta", "mean"),
            ("roformer", "perceptron"),
            ("roformer", "mean"),
            ("characterbert", "perceptron"),
            ("characterbert", "lstm"),
            ("characterbert", "mean"),
            ("char2subword", "perceptron"),
            ("char2subword", "lstm"),
            ("char2subword", "mean"),
        )
    ],
)
def test_a_checkpoint_holds_the_head_and_transformers_does_not_get_it(family, label_head, tmp_path):
    source, model = headed(family, label_head)
    encoder = ENCODERS.get(family, {"bert"})
    assert set(model.params) == encoder | OWN[label_head]
    assert all("pooler" not in model.params[part] for part in encoder)  # nothing reads it
    model.save_pretrained(tmp_path / "ours")
    back = from_pretrained(tmp_path / "ours")
    assert (back.head, label_head_of(back.metadata), back.model) == (model.head, label_head, model.model)
    jax.tree.map(np.testing.assert_array_equal, back.params, model.params)
    (found,), (before,) = (Predictor.from_checkpoint(one.folder).encode(["the cat sat"]) for one in (back, source))
    np.testing.assert_allclose(found.vectors_WD, before.vectors_WD, atol=1e-5)  # without its head
    with pytest.raises(
        ValueError,
        match=rf"ours cannot be exported to PyTorch: transformers has no class with label_head={label_head}; fine-tune "
        "with model.label_head=linear$",
    ):
        back.save_pretrained(tmp_path / "theirs", format="pytorch")
    again_linear, _ = with_task(back, TASKS[label_head])
    assert label_head_of(again_linear.metadata) == "linear"
    assert label_head_of({"head": "masked_lm", "label_head": "lstm"}) == "linear"  # of a model without labels


@pytest.mark.parametrize(
    ("task", "label_head", "message"),
    [
        ("lstm", "perceptron", "model.label_head=perceptron is for labels of texts; expected linear, lstm or lstm768 "),
        (
            "perceptron",
            "lstm",
            "model.label_head=lstm is for labels of words; expected linear, perceptron or mean for seq",
        ),
        ("perceptron", "paper", "model.label_head=paper: a bert has the heads linear, perceptron, lstm, lstm768, mean"),
        ("lstm", "mean", "model.label_head=mean is for labels of texts; expected linear, lstm or lstm768 "),
    ],
)
def test_a_head_is_for_its_task(task, label_head, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        with_task(from_pretrained(release("bert")), TASKS[task], label_head)


def test_answers_have_the_linear_head_alone():
    with pytest.raises(ValueError, match=r"^model\.label_head=lstm is for labels of words; expected linear for que"):
        with_task(from_pretrained(release("bert")), QuestionAnswering(), "lstm")


def test_every_parameter_of_an_lstm_has_one_rule_of_sharding():
    _, model = headed("bert", "lstm")
    for name in flat(model.params):
        matching = [pattern for pattern, _ in RULES if re.search(pattern, name)]
        assert len(matching) == 1, (name, matching)


@pytest.fixture
def _one_shape(monkeypatch):
    monkeypatch.setattr(strips, "QUANTILES", (1.0,))


def tagging(folder, count, **changes):
    """Returns the config of a BERT's run with an LSTM, and its development data."""
    train, dev = write_data("tagging", folder, train=count)
    return small("tagging", release("bert"), train, dev, model__label_head="lstm", **changes), dev


@pytest.mark.usefixtures("_one_shape")
def test_a_run_with_an_lstm_goes_on_bit_for_bit_and_its_model_is_loaded(tmp_path):
    config, dev = tagging(tmp_path, 32, train__checkpoint_every=3, model__dropout=0.1)
    check_resumed(config, tmp_path, batches=8)  # in the second epoch, after two batches to predict
    tagger = charlm.load(tmp_path / "whole")
    written = [line.split() for line in (tmp_path / "whole" / "predictions_dev.conll").read_text().splitlines() if line]
    words = read_tagged(str(dev))[0].words
    found = [(tag.word, tag.label) for tag in tagger(" ".join(words))]
    assert found == [(row[0], row[-1]) for row in written[: len(words)]]


@pytest.mark.slow
@pytest.mark.usefixtures("_one_shape")
def test_a_tagger_with_an_lstm_learns(tmp_path):
    rates = {"optim__learning_rate": 3e-3, "optim__head_learning_rate": 1e-2}
    config, _ = tagging(tmp_path, 96, train__epochs=10, model__dropout=0.0, **rates)
    with on_devices(1):
        (result,) = fine_tune(config, str(tmp_path / "run"))["runs"].values()
    assert result["dev"]["f1"] > 0.6  # nothing learned: 0

"""Tests import and export of models with an output layer for labels, and the names of their labels."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest
from again import again
from tiny_models import release

from charlm.convert.heads import FINE_TUNED, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.predictor import SubwordPredictor
from charlm.finetune.model import first_params, with_task
from charlm.finetune.predictor import FineTuned
from charlm.tasks.classification import Classification
from charlm.tasks.columns import Columns
from charlm.tasks.question_answering import QuestionAnswering
from charlm.tasks.tagging import Tagging

FAMILIES = pytest.mark.parametrize("family", ["bert", "roberta", "roformer", "gpt2"])
CLASSES = {
    SEQUENCE_CLASSIFICATION: "SequenceClassification",
    TOKEN_CLASSIFICATION: "TokenClassification",
    QUESTION_ANSWERING: "QuestionAnswering",
}
NAMES = {"bert": "Bert", "roberta": "Roberta", "roformer": "RoFormer", "gpt2": "GPT2"}
TEXTS = ["the cat sat on a mat", "dog"]


def theirs(family, head, folder, labels=3):
    """Writes a random model of theirs with that head, and returns it."""
    transformers = pytest.importorskip("transformers")
    import torch

    base = release(family)
    config = transformers.AutoConfig.from_pretrained(base)
    config.num_labels = 2 if head == QUESTION_ANSWERING else labels
    config.id2label = {n: f"L{n}" for n in range(config.num_labels)}
    config.label2id = {name: n for n, name in config.id2label.items()}
    if family == "gpt2":
        config.pad_token_id = 0
    torch.manual_seed(0)
    model = getattr(transformers, f"{NAMES[family]}For{CLASSES[head]}")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:  # a constant
                parameter.normal_(std=0.2)
    model.save_pretrained(folder)
    for file in base.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            (folder / file.name).write_bytes(file.read_bytes())
    return model


def our_logits(model, ids, mask):
    return np.asarray(jax.jit(lambda p: model.model.apply({"params": p}, ids, mask))(model.params))


def their_logits(model, head, ids, mask):
    import torch

    with torch.no_grad():
        output = model(input_ids=torch.tensor(ids).long(), attention_mask=torch.tensor(mask).long())
    if head == QUESTION_ANSWERING:
        return np.stack([output.start_logits.numpy(), output.end_logits.numpy()], axis=-1)
    return output.logits.numpy()


@pytest.mark.torch
@FAMILIES
@pytest.mark.parametrize("head", FINE_TUNED)
def test_logits_are_those_of_transformers_and_weights_go_both_ways(family, head, tmp_path):
    transformers = pytest.importorskip("transformers")
    reference = theirs(family, head, tmp_path / "theirs")
    ours = from_pretrained(tmp_path / "theirs")
    assert (ours.family, ours.head) == (family, head)
    rng = np.random.default_rng(0)
    pad = getattr(ours.config, "pad_id", 0)
    ids = rng.integers(5, ours.config.vocab_size, (3, 12))
    mask = np.arange(12)[None] < np.array([[12], [7], [3]])
    ids = np.where(mask, ids, pad)
    expected = their_logits(reference, head, ids, mask)
    found = our_logits(ours, ids, mask)
    real = mask if expected.ndim == 3 else slice(None)
    np.testing.assert_allclose(found[real], expected[real], atol=2e-5)
    ours.save_pretrained(tmp_path / "out", format="pytorch")
    kind = getattr(transformers, f"{NAMES[family]}For{CLASSES[head]}")
    back, info = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    np.testing.assert_array_equal(their_logits(back.eval(), head, ids, mask), expected)
    assert back.config.id2label == reference.config.id2label


@pytest.mark.parametrize(
    ("family", "head"),
    [("bert", head) for head in FINE_TUNED]
    + [again(name, head) for name in ("roberta", "roformer", "gpt2") for head in FINE_TUNED],
)
def test_a_checkpoint_of_ours_holds_head_and_labels(family, head, tmp_path):
    base = release(family)
    task = {
        SEQUENCE_CLASSIFICATION: Classification(Columns(), ["bad", "fair", "good"]),
        TOKEN_CLASSIFICATION: Tagging(labels=["O", "B-X", "I-X"], entities=True),
        QUESTION_ANSWERING: QuestionAnswering(impossible=True),
    }[head]
    source = from_pretrained(base)
    model, target = with_task(source, task)
    model = dataclasses.replace(model, params=first_params(source, model, target, 0))
    model.save_pretrained(tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs", format="pytorch")
    ours, imported = from_pretrained(tmp_path / "ours"), from_pretrained(tmp_path / "theirs")
    assert ours.head == imported.head == head
    for one, two, three in zip(*(jax.tree.leaves(m.params) for m in (model, ours, imported)), strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == [f"{NAMES[family]}For{CLASSES[head]}"]
    if task.labels:
        assert list(config["id2label"].values()) == list(task.labels)
        assert FineTuned(imported).task.labels == task.labels  # names are enough to know the task
    (encoding,) = SubwordPredictor(ours).encode(TEXTS[:1])  # its encoder still gives vectors
    (before,) = SubwordPredictor(source).encode(TEXTS[:1])
    np.testing.assert_allclose(encoding.vectors_WD, before.vectors_WD, atol=1e-5)
    assert SubwordPredictor(ours).abilities == ("encode",)

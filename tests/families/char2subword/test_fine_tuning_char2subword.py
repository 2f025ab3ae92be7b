"""Tests fine-tuning a Char2Subword in full mode, without its table, and on RoBERTa."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from finetune.test_fine_tuning import small, write_data
from small_char2subword import spelled
from small_run import on_devices

from charlm.convert.__main__ import main as convert
from charlm.data.conll import read_tagged
from charlm.families.pretrained import from_pretrained
from charlm.finetune import strips
from charlm.finetune.predictor import FineTuned
from charlm.finetune.run import fine_tune

pytestmark = pytest.mark.usefixtures("log_lines")


@pytest.fixture(autouse=True)
def _one_shape(monkeypatch):
    monkeypatch.setattr(strips, "QUANTILES", (1.0,))


def source(kind, tmp_path):
    """Returns a checkpoint: of full mode, of it without the table, or on RoBERTa."""
    if kind == "roberta":
        return spelled("roberta", "encoder", "full")
    if kind == "full":
        return spelled("bert", "masked_lm", "full")
    assert convert(["export", f"--checkpoint={spelled('bert')}", f"--output={tmp_path / 'free'}", "--table-free"]) == 0
    return tmp_path / "free"


SLOW = [("full", 14), ("table-free", 1), ("roberta", 1)]


@pytest.mark.parametrize(
    ("kind", "epochs"), [("full", 1), *[pytest.param(*case, marks=pytest.mark.slow) for case in SLOW]]
)
def test_words_are_tagged_in_full_mode(tmp_path, kind, epochs):
    begin = source(kind, tmp_path)
    train, dev = write_data("tagging", tmp_path, train=160)
    changes = {"train__epochs": epochs, "optim__learning_rate": 2e-2, "model__dropout": 0.0}
    config = small("tagging", begin, train, dev, **changes)
    with on_devices(1):  # the quickest
        (result,) = fine_tune(config, str(tmp_path / "run"))["runs"].values()
    assert epochs == 1 or result["dev"]["f1"] > 0.6  # nothing learned: 0
    before, after = from_pretrained(begin), from_pretrained(tmp_path / "run")
    assert (after.family, after.config.mode, after.metadata.get("rows")) == (
        "char2subword", "full", before.metadata.get("rows"),
    )  # fmt: skip
    assert after.vocab() == before.vocab()
    one, other = (jax.tree.leaves(model.params["char2subword"]) for model in (before, after))
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(one, other, strict=True))  # the module learns, too
    sentences = [list(example.words) for example in read_tagged(str(dev))]
    tags = [found.tags for found in FineTuned.from_checkpoint(tmp_path / "run").tag(sentences)]
    written = (tmp_path / "run" / "predictions_dev.conll").read_text().split("\n\n")
    columns = [[line.split() for line in block.splitlines()] for block in written if block.strip()]
    assert [tuple(row[-1] for row in block) for block in columns] == tags
    after.save_pretrained(tmp_path / "theirs", "pytorch")
    assert from_pretrained(tmp_path / "theirs").metadata["labels"] == 5
    again = FineTuned.from_checkpoint(tmp_path / "run", mode="full")
    assert [found.tags for found in again.tag(sentences)] == tags


def test_a_long_word_is_one_unit_and_one_tag(tmp_path):
    train, _ = write_data("tagging", tmp_path)
    with on_devices(1):
        fine_tune(small("tagging", spelled(), train, None, train__epochs=1), str(tmp_path / "run"))
    model = FineTuned.from_checkpoint(tmp_path / "run")
    (found,) = model.tag([["unbelievably" * 9, "\x00", "cat"]])
    assert len(found.tags) == 3
    (encoded,) = model.evaluator.units.encode_words([["unbelievably" * 9, "cat"]])
    assert len(encoded) == 2

"""Tests fine-tuning a CharacterBERT for every task, and the robustness report of the result."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from finetune.test_fine_tuning import small, write_data
from small_characterbert import characterbert
from small_run import on_devices

from charlm.families.pretrained import from_pretrained
from charlm.finetune import strips
from charlm.finetune.predictor import FineTuned
from charlm.finetune.run import fine_tune
from charlm.robustness.__main__ import main as robustness

pytestmark = pytest.mark.usefixtures("log_lines")


@pytest.fixture(autouse=True)
def _one_shape(monkeypatch):
    monkeypatch.setattr(strips, "QUANTILES", (1.0,))


@pytest.fixture(autouse=True)
def _one_device():
    with on_devices(1):
        yield


def test_words_are_tagged_reported_on_and_written_as_theirs(tmp_path):
    train, dev = write_data("tagging", tmp_path, train=160)
    changes = {"train__epochs": 8, "optim__learning_rate": 1e-2, "model__dropout": 0.0}
    (result,) = fine_tune(small("tagging", characterbert(), train, dev, **changes), str(tmp_path / "run"))[
        "runs"
    ].values()
    assert result["dev"]["f1"] > 0.8  # eight seeds: .95 or more; nothing learned: 0
    before, after = from_pretrained(characterbert()), from_pretrained(tmp_path / "run")
    one, other = (jax.tree.leaves(model.params["cnn"]) for model in (before, after))
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(one, other, strict=True))  # the CNN learns, too
    after.save_pretrained(tmp_path / "theirs", "pytorch")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["CharacterBertForTokenClassification"]
    again = from_pretrained(tmp_path / "theirs")
    assert (again.head, again.metadata["labels"]) == ("token_classification", 5)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(again.params), jax.device_get(after.params))
    report = tmp_path / "report"
    asked = ["--noise=swap", "--levels=0,.5", "--seeds=1", "--adversarial=0", f"--out={report}"]
    assert robustness(["--models", str(tmp_path / "run"), "--data", str(dev), *asked]) == 0
    results = json.loads((report / "report.json").read_text())
    assert results["models"][0]["family"] == "characterbert"
    clean = [row for row in results["segmentation"] if row["kind"] is None]
    assert [(row["units_per_word"], row["split"], row["unknown"], row["cut"]) for row in clean] == [(1, 0, 0, 0)]


@pytest.mark.slow  # a head is the same class in every family
@pytest.mark.parametrize("task", ["classification", "question_answering", "regression", "ranking"])
def test_every_other_task(task, tmp_path):
    train, dev = write_data(task, tmp_path)
    config = small(task, characterbert(), train, dev, train__epochs=1, model__splitter="spaces")
    (result,) = fine_tune(config, str(tmp_path / "run"))["runs"].values()
    model = FineTuned.from_checkpoint(tmp_path / "run")
    assert model.pretrained.config.splitter == "spaces"  # another one than the source's
    examples = model.task.read([str(dev)], training=False)
    predictions = model.evaluator.predict(model.params, model.evaluator.prepare(examples))
    scores = model.task.scores(examples, predictions)
    assert scores == pytest.approx(result["dev"], rel=1e-5)  # the checkpoint is the model that was scored

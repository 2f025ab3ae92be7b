"""Tests that batches of few shapes give the same results, and are not compiled anew for every version of a text."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.data.examples import TextExample
from charlm.finetune.predictor import FineTuned
from charlm.finetune.strips import grid
from charlm.robustness import measurement
from charlm.robustness.batches import ModelRunner
from charlm.robustness.measure import measure
from charlm.robustness.measurement import first_of
from charlm.robustness.versions import version_of
from charlm.tasks.ranking import Ranking
from charlm.text.noise import Noise


@pytest.mark.parametrize(
    ("longest", "want"),
    [
        (8, (8,)),
        (16, (16,)),
        (20, (16, 20)),
        (64, (16, 32, 48, 64)),
        (512, (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)),
        (514, (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 514)),
    ],
)
def test_lengths_grow_by_half_up_to_the_longest(longest, want):
    assert grid(longest) == want


@pytest.fixture(params=[0, 1], ids=["hlm", "bert"])
def case(request, models, taggers):
    model = FineTuned.from_checkpoint(taggers[request.param], 8)
    return model, model.task.read([models.data("tagging")], training=False)


def test_losses_are_means_over_what_an_example_has_to_learn(case):
    model, examples = case
    batches = ModelRunner(model)
    predictions, losses_E2 = model.evaluator.predict_with_loss(model.params, model.evaluator.prepare(examples))
    assert batches.predict(examples) == predictions
    found, losses = batches.predict_with_loss(examples)
    assert found == predictions
    np.testing.assert_allclose(losses, losses_E2[:, 0] / losses_E2[:, 1], atol=1e-5)
    assert [len(part) for part in batches.predict_with_loss([])] == [0, 0]
    assert batches.predict([]) == []


def test_versions_of_a_text_share_their_programs(case):
    model, examples = case
    more = int(model.pretrained.family == "bert")  # typos cut words into more pieces, which may need a further batch
    batches, alone = ModelRunner(model), FineTuned(model.pretrained, 8)
    programs = model.evaluator._logits
    batches.predict(examples)
    first = programs._cache_size()
    for seed in range(3):
        batches.predict(version_of(model.task, examples, Noise("swap", 0.1), seed, None).examples)
    assert programs._cache_size() <= first + more
    noisy = version_of(model.task, examples, Noise("insert", 0.9), 0, None).examples
    assert batches.predict(noisy) == ModelRunner(alone).predict(noisy), "where a shape is too small, another is made"
    after = programs._cache_size()
    batches.predict(examples)
    batches.predict(noisy)
    assert programs._cache_size() == after


def test_the_first_examples_of_ranking_are_whole_queries():
    passages = [TextExample(str(n), "", "q", "p", 1.0, group) for n, group in enumerate("aabbbcc")]
    assert first_of(Ranking.usual(), passages, 3) == passages[:5]
    assert first_of(Ranking.usual(), passages, 0) == passages
    mixed = [passages[0], passages[2], passages[1]]
    assert first_of(Ranking.usual(), mixed, 1) == [passages[0], passages[1]]


def test_two_models_of_one_family_have_their_own_cells(models, taggers, tmp_path):
    paths = [taggers[1], models.untrained("tagging", "bert")]
    options = {"noise": ["drop:0.2"], "seeds": 1, "samples": 10, "batch_size": 8, "examples": 8}
    both = measure(paths, [models.data("tagging")], str(tmp_path / "both"), **options)
    for n, path in enumerate(paths):
        alone = measure([path], [models.data("tagging")], str(tmp_path / str(n)), **options)
        name = alone["models"][0]["name"]
        assert both["clean"][name] == alone["clean"][name]
        for table in ("noise", "sensitivity", "groups", "segmentation"):
            assert [row for row in both[table] if row["model"] == name] == alone[table]
    assert len({scores["accuracy"] for scores in both["clean"].values()}) == 2


def test_a_charbert_is_measured_like_any_other(models, tmp_path):
    options = {"noise": ["drop:0.5"], "seeds": 1, "samples": 10, "batch_size": 8, "examples": 8}
    found = measure(
        [models.untrained("tagging", "charbert")], [models.data("tagging")], str(tmp_path / "out"), **options
    )
    assert found["models"][0]["family"] == "charbert"
    (row,) = found["sensitivity"]
    assert 0 < row["all"] < row["changed"] < 1  # noise moves the words that it changes most


def test_sensitivity_is_that_of_the_first_sentences_and_says_so(models, taggers, tmp_path, monkeypatch):
    options = {"noise": ["drop:0.5"], "seeds": 1, "samples": 10, "batch_size": 8}
    run = lambda out, **more: measure(taggers[1:], [models.data("tagging")], str(tmp_path / out), **options, **more)
    few = run("few", examples=4)
    monkeypatch.setattr(measurement, "SENTENCES", 4)
    monkeypatch.setattr("charlm.robustness.measure.SENTENCES", 4)
    found = run("all")
    (row,), (other,) = found["sensitivity"], few["sensitivity"]
    assert (row["all"], row["changed"]) == pytest.approx((other["all"], other["changed"]))
    assert "sensitivity is that of the first 4 sentences" in found["notes"]
    assert few["notes"] == []

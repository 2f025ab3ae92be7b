"""Tests a report of two fine-tuned taggers: every number equals that of the parts of charlm behind it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from charlm import metrics
from charlm.finetune.predictor import FineTuned
from charlm.robustness.batches import ModelRunner
from charlm.robustness.measure import DESCRIPTION, measure
from charlm.robustness.scoring import metric_of
from charlm.robustness.sums import read_sums
from charlm.text.noise import Noise, Noiser

HLM, BERT = "tag_hlm", "tag_bert"


@pytest.fixture(scope="module")
def results(report):
    return report[1]


@pytest.fixture(scope="module")
def by_hand(models, taggers):
    """Examples, and for each tagger what it predicts of them, clean and with noise, by its own batches."""
    found = {}
    for name, path in zip((HLM, BERT), taggers, strict=True):
        model = FineTuned.from_checkpoint(path, 8)
        examples = model.task.read([models.data("tagging")], training=False)
        predict = lambda those, model=model: model.evaluator.predict(model.params, model.evaluator.prepare(those))
        draws = {None: predict(examples)}
        for spec, seed in (("drop:0.5", 0), ("drop:0.5", 1), ("spaces:0.5", 0), ("spaces:0.5", 1)):
            noiser = Noiser(Noise.parse(spec), seed)
            pairs = [model.task.noised(example, noiser, "robustness") for example in examples]
            predictions = zip(predict([noisy for noisy, _ in pairs]), pairs, strict=True)
            draws[spec, seed] = [model.task.restored(p, trace) for p, (_, trace) in predictions]
        found[name] = (model.task, examples, draws)
    return found


def entry(results, table, **fields):
    (found,) = [row for row in results[table] if all(row[name] == value for name, value in fields.items())]
    return found


def test_the_file_is_what_is_returned_and_has_all_keys(report):
    folder, results = report
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == results
    assert "NaN" not in (folder / "results.json").read_text()
    keys = "format task metric settings models examples clean noise comparisons groups segmentation sensitivity"
    assert list(results) == [*keys.split(), "adversarial", "answers", "notes"]
    assert set(keys.split()) <= set(DESCRIPTION.replace(",", " ").split())
    assert (results["format"], results["task"], results["metric"], results["examples"]) == (1, "tagging", "f1", 16)
    assert results["models"][0]["trained_with"] == ["drop:0.1"]
    assert [model["name"] for model in results["models"]] == [HLM, BERT]
    assert [model["family"] for model in results["models"]] == ["hlm", "bert"]
    assert [model["seed"] for model in results["models"]] == [0, 0]


def test_the_sums_of_examples_give_the_scores(report, by_hand):
    folder, results = report
    found = read_sums(folder)
    assert {one.model for one in found} == {HLM, BERT}
    assert {one.spec for one in found} == {"", *(row["spec"] for row in results["noise"] if row["level"])}
    for one in found:
        if not one.spec:
            f1 = metric_of(by_hand[one.model][0], one.kind)(one.rows.sum(0)[None])[0]
            assert f1 == pytest.approx(results["clean"][one.model]["f1"])


def test_clean_scores_are_those_of_the_evaluator(results, by_hand):
    for name, (task, examples, draws) in by_hand.items():
        assert results["clean"][name] == pytest.approx(task.scores(examples, draws[None]))
    assert results["clean"][HLM] != results["clean"][BERT]


@pytest.mark.parametrize("kind", ["drop", "spaces"])
def test_noisy_scores_are_against_the_labels_before_noise(results, by_hand, kind):
    for name, (task, examples, draws) in by_hand.items():
        found = entry(results, "noise", model=name, kind=kind, level=0.5)
        want = [task.scores(examples, draws[f"{kind}:0.5", seed]) for seed in (0, 1)]
        assert found["spec"] == f"{kind}:0.5"
        assert found["seeds"] == [0, 1]
        for score, values in found["scores"].items():
            assert values["values"] == pytest.approx([one[score] for one in want])
            assert values["mean"] == pytest.approx(np.mean(values["values"]))
            assert values["sd"] == pytest.approx(np.std(values["values"], ddof=1))
        assert set(found["scores"]) >= {"f1", "accuracy", "precision", "recall"}
        assert found["scores"]["accuracy"]["mean"] < results["clean"][name]["accuracy"]


def pooled(task, examples, predictions):
    """Rows over draws, with the columns that F1 of entities needs: right, predicted and gold entities."""
    tags = [list(example.tags) for example in examples]
    rows = [metrics.per_example_entities(tags, one)[:, 2:].reshape(len(tags), 3, -1).sum(2) for one in predictions]
    return np.mean(rows, axis=0)


def f1(sums):
    right, predicted, gold = np.moveaxis(np.asarray(sums), -1, 0)
    return 2 * right / np.maximum(predicted + gold, 1e-9)


def test_drops_and_comparisons_are_those_of_pooled_counts_with_their_intervals(results, by_hand):
    rows = {}
    for name, (task, examples, draws) in by_hand.items():
        clean = pooled(task, examples, [draws[None]])
        noisy = rows[name] = pooled(task, examples, [draws["drop:0.5", seed] for seed in (0, 1)])
        want = metrics.paired_bootstrap(clean, noisy, f1, samples=200)
        found = entry(results, "noise", model=name, kind="drop", level=0.5)["drop"]
        assert found == pytest.approx({"difference": want.difference, "low": want.low, "high": want.high})
        assert found["low"] <= found["difference"] <= found["high"]
    want = metrics.paired_bootstrap(rows[HLM], rows[BERT], f1, samples=200)
    found = entry(results, "comparisons", kind="drop", level=0.5)
    assert (found["a"], found["b"], found["metric"]) == (HLM, BERT, "f1")
    assert [found[key] for key in ("difference", "low", "high")] == pytest.approx(
        [want.difference, want.low, want.high]
    )
    clean = entry(results, "comparisons", kind=None, level=0)
    assert clean["difference"] == pytest.approx(results["clean"][HLM]["f1"] - results["clean"][BERT]["f1"])
    assert len(results["comparisons"]) == 1 + 5


def test_level_zero_is_the_clean_score(results):
    for kind in ("drop", "spaces"):
        for name in (HLM, BERT):
            found = entry(results, "noise", model=name, kind=kind, level=0)
            assert (found["seeds"], found["drop"], found["changed"]) == ([], None, 0)
            for score, value in results["clean"][name].items():
                assert found["scores"][score] == {"mean": value, "sd": None, "values": [value]}


def test_kinds_take_the_levels_and_specs_their_rate(results):
    found = {(row["kind"], row["level"]) for row in results["noise"]}
    assert found == {*((kind, level) for kind in ("drop", "spaces") for level in (0, 0.2, 0.5)), ("keyboard", 0.3)}


def test_noise_is_seen_by_kind_at_whatever_rate(results):
    seen = {(row["model"], row["kind"]) for row in results["noise"] if row["seen"]}
    assert seen == {(HLM, "drop")}


def test_more_noise_changes_more_words(results):
    for kind in ("drop", "spaces"):
        shares = [entry(results, "noise", model=HLM, kind=kind, level=level)["changed"] for level in (0, 0.2, 0.5)]
        assert 0 == shares[0] < shares[1] < shares[2] < 1
        other = [entry(results, "noise", model=BERT, kind=kind, level=level)["changed"] for level in (0, 0.2, 0.5)]
        assert shares == other


def test_counts_of_groups_add_up_and_scores_are_their_means(results, by_hand):
    _, examples, draws = by_hand[BERT]
    words = sum(len(example.words) for example in examples)
    for kind, level in ((None, 0), ("drop", 0.5), ("spaces", 0.5)):
        rows = [row for row in results["groups"] if (row["model"], row["kind"], row["level"]) == (BERT, kind, level)]
        count = {row["group"]: row["count"] for row in rows}
        score = {row["group"]: row["score"] or 0.0 for row in rows}
        assert count["all"] == words * (2 if kind else 1)
        parts = [("split", "in vocabulary"), ("unseen in training", "seen in training")]
        assert ("changed" in count) == (kind is not None)
        for one, other in parts + ([("changed", "unchanged")] if kind else []):
            assert count[one] + count[other] == count["all"]
            mean = (count[one] * score[one] + count[other] * score[other]) / count["all"]
            assert mean == pytest.approx(score["all"])
        assert min(count["split"], count["in vocabulary"], count["seen in training"]) > 0
    clean = entry(results, "groups", model=BERT, kind=None, group="all")
    assert clean["score"] == pytest.approx(results["clean"][BERT]["accuracy"])
    changed = entry(results, "groups", model=BERT, kind="drop", level=0.5, group="changed")
    pairs = [
        (tag == guess)
        for seed in (0, 1)
        for example, tags in zip(examples, draws["drop:0.5", seed], strict=True)
        for word, noisy, tag, guess in zip(
            example.words,
            Noiser(Noise.parse("drop:0.5"), seed).words(example.words, f"robustness/{example.id}").words,
            example.tags,
            tags,
            strict=True,
        )
        if word != noisy
    ]
    assert (changed["count"], changed["score"]) == (len(pairs), pytest.approx(np.mean(pairs)))
    share = entry(results, "noise", model=BERT, kind="drop", level=0.5)["changed"]
    assert share == pytest.approx(len(pairs) / (2 * words))


def test_the_answers_shown_are_the_models_own(results, by_hand):
    shown = results["answers"]
    assert shown["by"] == "right tags"
    assert 0 < len(shown["examples"]) <= 10
    assert {(one["kind"], one["level"]) for one in shown["examples"]} <= {
        ("drop", 0.2),
        ("spaces", 0.2),
        ("keyboard", 0.3),
    }
    assert sum(shown["better"].values()) <= shown["pairs"] == 3 * results["examples"]
    for one in shown["examples"]:
        for name, (_, examples, draws) in by_hand.items():
            (at,) = [n for n, example in enumerate(examples) if example.place == one["place"]]
            given = [answer for asked in one["asked"] for answer in asked["answers"] if answer["model"] == name]
            assert tuple(asked["gold"] for asked in one["asked"]) == examples[at].tags
            assert tuple(answer["clean"] for answer in given) == draws[None][at]
            right = [answer["noisy"] == tag for answer, tag in zip(given, examples[at].tags, strict=True)]
            assert [answer["right"] for answer in given] == right


def test_an_hlm_has_one_unit_a_word_and_pieces_grow_with_noise(results):
    for kind, level in ((None, 0), ("drop", 0.5)):
        assert entry(results, "segmentation", model=HLM, kind=kind, level=level)["units_per_word"] == 1
    pieces = [
        entry(results, "segmentation", model=BERT, kind=kind, level=level)["split"]
        for kind, level in ((None, 0), ("keyboard", 0.3))  # drops make short words of few pieces
    ]
    assert pieces[0] < pieces[1]
    cut = entry(results, "segmentation", model=HLM, kind=None, level=0)["cut"]
    assert cut == 0, "no word of this text has more than seven characters"


def test_words_move_only_where_they_can_be_compared(results):
    assert {row["kind"] for row in results["sensitivity"]} == {"drop", "keyboard"}
    for row in results["sensitivity"]:
        assert 0 < row["all"] < row["changed"] < 1
    for name in (HLM, BERT):
        less, more = (
            entry(results, "sensitivity", model=name, kind="drop", level=level)["all"] for level in (0.2, 0.5)
        )
        assert less < more


def test_all_models_read_the_same_noisy_text_and_other_seeds_other_text(models, taggers, tmp_path, monkeypatch):
    read = []
    own = ModelRunner.predict
    monkeypatch.setattr(ModelRunner, "predict", lambda self, those: read.append(list(those)) or own(self, those))
    measure(taggers, [models.data("tagging")], str(tmp_path), noise=["drop:0.5"], seeds=2, samples=10, batch_size=8)
    clean, first, second = read[0:2], read[2:4], read[4:6]
    assert len(read) == 6 + 4  # each model, clean and noisy, about the examples that are shown
    assert clean[0] == clean[1]
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert clean[0] != first[0] != second[0]

"""Tests fine-tuning as users run it: every task and family, resumed, repeated, cross-validated, and refused."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import ml_collections
import numpy as np
import pytest
from finetune.tiny_tasks import (
    FAMILIES,
    source,
    write_conll,
    write_passages,
    write_questions,
    write_table,
)
from flax import traverse_util
from small_run import ROOT, main, on_devices
from tiny_models import release

from charlm.config import split_lists, to_json, validate
from charlm.config.finetuning import get_config
from charlm.data.conll import read_tagged
from charlm.data.examples import QuestionExample, TextExample
from charlm.families.pretrained import from_pretrained
from charlm.families.xrayemb.setups import frozen
from charlm.finetune import strips
from charlm.finetune.batching import Packer
from charlm.finetune.course import Epochs
from charlm.finetune.data import Examples, folds_of
from charlm.finetune.model import first_params, with_task
from charlm.finetune.predictor import FineTuned
from charlm.finetune.run import _runs, fine_tune
from charlm.predict import main as predict
from charlm.tasks.classification import Classification, Regression
from charlm.tasks.columns import Columns
from charlm.tasks.question_answering import QuestionAnswering
from charlm.tasks.ranking import Ranking


@pytest.fixture(autouse=True)
def _one_shape(monkeypatch):
    """Each shape is a program to compile; `test_batching_rows` has the others."""
    monkeypatch.setattr(strips, "QUANTILES", (1.0,))


@pytest.fixture(autouse=True)
def _one_device():
    """More take longer; taggers are trained on all eight."""
    with on_devices(1):
        yield


def write_data(task, folder, train=48, dev=16):
    """Returns the files of a task."""
    make = {
        "classification": lambda p, n, s: write_table(p.with_suffix(".tsv"), n, s),
        "regression": lambda p, n, s: write_table(p.with_suffix(".tsv"), n, s, numbers=True),
        "tagging": lambda p, n, s: write_conll(p.with_suffix(".conll"), n, s),
        "question_answering": lambda p, n, s: write_questions(p.with_suffix(".json"), n, s),
        "ranking": lambda p, n, s: write_passages(p.with_suffix(".jsonl"), n // 3, s),
    }[task]
    return make(folder / "train", train, 0), make(folder / "dev", dev, 1)


def small(task, init_from, train, dev=None, **changes):
    """Returns a config of a few steps."""
    config = get_config(task)
    config.init_from = str(init_from)
    config.data.train = (str(train),)
    config.data.dev = () if dev is None else (str(dev),)
    config.data.batch_size = 8
    config.data.eval_batch_size = 8
    config.optim.learning_rate = 3e-3
    config.train.epochs = 2
    config.train.log_every = 3
    if task == "ranking":
        config.data.text, config.data.pair, config.data.label = "query", "passage_text", "is_selected"
        config.data.group = "query_id"
    for key, value in changes.items():
        section, _, name = key.rpartition("__")
        (config[section] if section else config)[name] = value
    split_lists(config)
    validate(config)
    return config


# Text side and head meet in the other cells again, which are left to the slow tests: a head is the same class in every
# family, and how a family reads words, texts and pairs of them for it, `tests/families/test_units.py` has. HLMs learn
# to tag in `learned` below, other families in files of their own.
QUICK = {
    "hlm": set(),
    "bert": {"classification", "regression", "question_answering", "ranking"},
    "roberta": set(),
    "gpt2": set(),
    "charbert": {"tagging"},
    "char2subword": set(),
}


def cells():
    """Every family with every task; every task, and a tagger on eight devices, is among the quick ones."""
    for family in FAMILIES:
        for task in ("classification", "regression", "tagging", "question_answering", "ranking"):
            again = task not in QUICK[family]
            yield pytest.param(family, task, marks=[pytest.mark.slow] * again, id=f"{family}-{task}")


@pytest.mark.parametrize(("family", "task"), list(cells()))
def test_every_task_with_every_family(task, family, trained, tmp_path):
    train, dev = write_data(task, tmp_path)
    released = (family, task) == ("hlm", "tagging")  # `learned` has the head of the paper
    head = "reference" if released else ""
    config = small(task, source(family, trained.workdir), train, dev, train__epochs=1, model__label_head=head)
    with on_devices(8 if task == "tagging" else 1):
        summary = fine_tune(config, str(tmp_path / "run"))
    (result,) = summary["runs"].values()
    assert not (tmp_path / "run" / "state").exists()
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (scored,) = [line for line in metrics if "dev_loss" in line]
    for name, value in result["dev"].items():
        assert scored[f"dev_{name}"] == pytest.approx(value, abs=1e-9)
    if task not in ("tagging", "question_answering"):  # these two have all there is to get wrong
        return
    model = FineTuned.from_checkpoint(tmp_path / "run")
    examples = model.task.read([str(dev)], training=False)
    predictions = model.evaluator.predict(model.params, model.evaluator.prepare(examples))
    assert model.task.scores(examples, predictions) == result["dev"]  # the checkpoint is the model that was scored
    if released:
        assert "encoder" in model.params["head"]  # it reads characters


@pytest.fixture(scope="module")
def learned(trained, tmp_path_factory):
    """The folder of a run that learned to tag, its development data, and its result."""
    folder = tmp_path_factory.mktemp("learned")
    train, dev = write_data("tagging", folder, train=200)
    config = small("tagging", trained.workdir, train, dev, train__epochs=6, optim__learning_rate=1e-2)
    with on_devices(1), mock.patch.object(strips, "QUANTILES", (1.0,)):
        return folder / "run", dev, fine_tune(config, str(folder / "run"))["runs"]["seed_0"]


def test_a_task_is_learned_and_predictions_are_files(learned):
    folder, dev, result = learned
    assert result["dev"]["f1"] > 0.75  # nothing learned: 0
    gold = read_tagged(str(dev))
    written = [line.split() for line in (folder / "predictions_dev.conll").read_text().splitlines() if line]
    assert [row[0] for row in written] == [word for example in gold for word in example.words]
    right = sum(row[-1] == tag for row, tag in zip(written, (t for e in gold for t in e.tags), strict=True))
    assert right / len(written) == pytest.approx(result["dev"]["accuracy"])
    for example in gold[:1]:
        text = " ".join(example.words)
        for row, word in zip(written, example.words, strict=False):
            assert text[int(row[1]) : int(row[2])] == word


def test_tags_of_a_command_are_what_fine_tuning_reads(learned, tmp_path, capsys):
    texts = ["Ada met #Bob, at noon.", "", "3 cats"]
    ask = ["tag", f"--model={learned[0]}", "--format=conll", "--splitter=spaces"]
    assert predict([*ask, *texts]) == 0
    (tmp_path / "silver.conll").write_text(capsys.readouterr().out)
    written = read_tagged(str(tmp_path / "silver.conll"))
    assert [e.words for e in written] == [tuple(t.split()) for t in texts if t]
    expected = FineTuned.from_checkpoint(learned[0]).tag(texts, splitter="spaces")
    assert [list(e.tags) for e in written] == [list(t.tags) for t in expected if t.words]

    assert predict([*ask, "a b", "\udcff", "c"]) == 1  # not UTF-8
    out, err = capsys.readouterr()
    assert [line.split("\t")[0] for line in out.splitlines()] == ["a", "b", "", "c", ""]
    assert "text 2" in err
    with pytest.raises(SystemExit):
        predict([*ask[:3], "--splitter=letters", "a"])


def test_the_head_of_the_paper_does_not_go_out_to_the_released_code(learned, tmp_path):
    paper = from_pretrained(learned[0])
    assert set(paper.params) == {"hlm", "transform", "label"}
    with pytest.raises(ValueError, match="the released code has no label head like the paper's"):
        paper.save_pretrained(tmp_path / "out", format="pytorch")


def quickest() -> Path:
    """Returns the model whose programs compile in the least time: for what is alike in all families."""
    return source("bert", Path())


class Killed(BaseException):
    """What a test ends a run with: nothing catches it."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "noise"),
    [("hlm", ()), ("bert", ("hlm_drop:0.1", "swap:0.3"))],
)
def test_a_run_that_was_killed_goes_on_bit_for_bit(trained, tmp_path, monkeypatch, family, noise):
    train, dev = write_data("tagging", tmp_path)
    begin = source(family, trained.workdir)
    config = lambda: small(
        "tagging", begin, train, dev, train__epochs=3, train__checkpoint_every=2, data__noise=noise,
        model__dropout=0.1,
    )  # fmt: skip
    whole = fine_tune(config(), str(tmp_path / "whole"))
    for end in (3, 8, 5):  # batches made since the start: in the first epoch, in the second, in the third
        pack, calls = Packer.pack, []

        def dying(self, rows, group, pack=pack, calls=calls, end=end):
            calls.append(group)
            if len(calls) > end and len(group.rows) == 8:
                raise Killed
            return pack(self, rows, group)

        monkeypatch.setattr(Packer, "pack", dying)
        with pytest.raises(Killed):
            fine_tune(config(), str(tmp_path / "broken"))
        monkeypatch.setattr(Packer, "pack", pack)
    again = fine_tune(config(), str(tmp_path / "broken"))
    assert again["runs"] == whole["runs"]
    one, two = (from_pretrained(tmp_path / name).params for name in ("whole", "broken"))
    for a, b in zip(_leaves(one), _leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)
    assert fine_tune(config(), str(tmp_path / "broken")) == again  # a finished run is not run again


def _leaves(tree):
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.slow
def test_seeds_are_runs_of_their_own_with_a_mean(tmp_path, log_lines, read_only):
    train, dev = write_data("classification", tmp_path)
    begin = tmp_path / "begin"
    from_pretrained(quickest()).save_pretrained(begin)
    config = small("classification", begin, train, dev, seeds=2, train__epochs=1)
    summary = fine_tune(config, str(tmp_path / "run"), profile=str(tmp_path / "profile"))
    assert sorted(p.name for p in (tmp_path / "profile").iterdir()) == ["seed_0", "seed_1"]
    scores = [result["dev"]["accuracy"] for result in summary["runs"].values()]
    assert list(summary["runs"]) == ["seed_0", "seed_1"]
    assert summary["scores"]["dev"]["accuracy"]["mean"] == pytest.approx(np.mean(scores))
    assert summary["scores"]["dev"]["accuracy"]["sd"] == pytest.approx(np.std(scores, ddof=1))
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    first, second = (from_pretrained(tmp_path / "run" / name).params["label"]["kernel"] for name in summary["runs"])
    assert not np.array_equal(first, second)
    shutil.rmtree(begin)
    from_pretrained(quickest()).save_pretrained(begin)
    shutil.copytree(tmp_path / "run", tmp_path / "unfinished")
    (tmp_path / "unfinished" / "seed_1" / "result.json").unlink()
    message = rf"^init_from={begin} holds another checkpoint now \(saved .*\) than \S+seed_0 started from \(saved .*\)"
    with pytest.raises(ValueError, match=message + ": choose another --workdir$"):
        fine_tune(config, str(tmp_path / "unfinished"))
    read_only(tmp_path / "run")
    assert fine_tune(config, str(tmp_path / "run")) == summary
    assert f"{tmp_path / 'run' / 'seed_1'} holds a finished run: nothing to do" in str(log_lines)


def test_cross_validation_predicts_every_row_once(tmp_path):
    train, _ = write_data("classification", tmp_path, train=25)
    config = small("classification", quickest(), train, None, data__folds=3, train__epochs=1)
    summary = fine_tune(config, str(tmp_path / "run"))
    files = [
        (tmp_path / "run" / name / "predictions_test.tsv").read_text().splitlines()[1:] for name in summary["runs"]
    ]
    ids = [line.split("\t")[0] for lines in files for line in lines]
    assert len(ids) == len(set(ids)) == 25
    assert sorted(map(len, files)) == [8, 8, 9]
    right = [r["test"]["accuracy"] * len(lines) for r, lines in zip(summary["runs"].values(), files, strict=True)]
    together = summary["all_folds"]
    assert together["accuracy"] == {"mean": pytest.approx(sum(right) / 25), "sd": None, "count": 1}
    assert {"macro_f1", "f1", "matthews"} <= together.keys()
    assert fine_tune(config, str(tmp_path / "run")) == summary


def test_what_is_scored_or_read_together_is_of_one_fold():
    config = ml_collections.ConfigDict({"seed": 0, "data": {"folds": 5, "fold_column": ""}})
    passages = [TextExample(str(n), "", "query", f"passage {n}", 1.0, str(n // 10)) for n in range(100)]
    questions = [QuestionExample(str(n), "", f"question {n}?", f"context {n // 4}") for n in range(40)]
    for task, examples, of in (
        (Ranking.usual(), passages, lambda one: one.group),
        (QuestionAnswering(), questions, lambda one: one.context),
    ):
        folds = folds_of(config, examples, task)
        assert set(folds) == set("01234")
        assert len({(of(one), fold) for one, fold in zip(examples, folds, strict=True)}) == len({*map(of, examples)})
    config.data.folds = 11
    with pytest.raises(ValueError, match=r"data\.folds=11, but there are 10 contexts or groups of examples"):
        folds_of(config, questions, QuestionAnswering())
    with pytest.raises(ValueError, match=r"data\.folds=11, but there are 3 examples"):
        folds_of(config, passages[:3], Classification(Columns()))


def test_a_fold_of_any_name_has_a_folder_of_its_own():
    config = ml_collections.ConfigDict({"seed": 0, "seeds": 1, "data": {"folds": 0, "fold_column": "topic"}})
    folds = ("arts", "news/sports", "../../..", "50%", "naïve words")
    examples = Examples([TextExample(str(n), "", "a", None, "b", fold) for n, fold in enumerate(folds)], [], [])
    names = list(_runs(config, examples, Classification(Columns())))
    assert names == [
        f"seed_0_fold_{name}" for name in ("..%2F..%2F..", "50%25", "arts", "naïve words", "news%2Fsports")
    ]
    examples.train.append(TextExample("9", "", "a", None, "b", "long " * 50))
    with pytest.raises(ValueError, match=r"data\.fold_column: the fold 'long .*'\.\.\. of 250 characters is too long"):
        _runs(config, examples, Classification(Columns()))


def test_an_output_layer_is_that_of_one_task():
    """A task of numbers and one of ranks have no labels and equal shapes, and yet another meaning."""
    base = from_pretrained(release("bert"))
    ranker, target = with_task(base, Ranking.usual())
    ranker = dataclasses.replace(ranker, params=first_params(base, ranker, target, 0))
    for task, kept in ((Ranking.usual(), True), (Regression(Columns(), 0.0, 1.0), False)):
        model, target = with_task(ranker, task)
        found = traverse_util.flatten_dict(first_params(ranker, model, target, 1), sep="/")
        before = traverse_util.flatten_dict(ranker.params, sep="/")
        same = {name: np.array_equal(found[name], before[name]) for name in found}
        assert same.pop("label/dense/kernel" if "label/dense/kernel" in same else "label/kernel") == kept
        assert all(one for name, one in same.items() if not name.startswith("label/"))


@pytest.mark.slow
def test_folds_of_sentences_are_scored_together(tmp_path):
    """Not every fold has every type of entity."""
    lines = ["the O\ncat B-ANIMAL"] * 4 + ["a O\nhouse B-PLACE"] * 2
    (tmp_path / "train.conll").write_text("\n\n".join(lines) + "\n")
    config = small("tagging", quickest(), tmp_path / "train.conll", None, data__folds=3, train__epochs=1)
    summary = fine_tune(config, str(tmp_path / "run"))
    together = summary["all_folds"]
    accuracies = [result["test"]["accuracy"] for result in summary["runs"].values()]  # folds of equal size
    assert together["accuracy"]["mean"] == pytest.approx(np.mean(accuracies))
    assert (together["f1"]["count"], len(accuracies)) == (1, 3)


@pytest.mark.slow
def test_folds_of_a_column_set_rows_aside_not_folds(tmp_path, log_lines):
    rows = ["word\tkind\tfold"] + [f"{'cat' if n % 2 else 'town'}\t{'ab'[n % 2]}\t{n % 3}" for n in range(30)]
    (tmp_path / "words.tsv").write_text("\n".join([*rows, "dog\tfiltered\t0"]) + "\n")
    config = small(
        "classification", quickest(), tmp_path / "words.tsv", None, train__epochs=1, data__text="word",
        data__label="kind", data__fold_column="fold", data__skip_labels=("filtered",),
    )  # fmt: skip
    summary = fine_tune(config, str(tmp_path / "run"))
    assert list(summary["runs"]) == [f"seed_0_fold_{n}" for n in range(3)]
    assert "2 of 20 examples set aside" in str(log_lines)


def test_what_has_no_labels_is_predicted_and_not_scored(tmp_path):
    train, dev = write_data("tagging", tmp_path)
    (tmp_path / "bare.conll").write_text("the\ncat\n\na\ndog\n")
    test = {"data__test": (str(tmp_path / "bare.conll"),), "data__test_labels": False, "train__epochs": 1}
    (result,) = fine_tune(small("tagging", quickest(), train, dev, **test), str(tmp_path / "run"))["runs"].values()
    assert "test" not in result
    words = [line.split()[0] for line in (tmp_path / "run" / "predictions_test.conll").read_text().splitlines() if line]
    assert words == ["the", "cat", "a", "dog"]


@pytest.fixture(scope="module")
def classified(tmp_path_factory):
    """The folder, the training data and the config of a run that learned nothing in particular."""
    folder = tmp_path_factory.mktemp("classified")
    train, dev = write_data("classification", folder)
    config = lambda **changes: small("classification", quickest(), train, dev, train__epochs=1, **changes)
    with on_devices(1), mock.patch.object(strips, "QUANTILES", (1.0,)):
        fine_tune(config(), str(folder / "run"))
    return folder / "run", train, config


def test_changed_data_is_not_gone_on_with(classified):
    run, train, config = classified
    text = train.read_text()
    train.write_text(text.replace("the ", "a "))
    try:
        with pytest.raises(ValueError, match=r"data.train"):
            fine_tune(config(), str(run))
    finally:
        train.write_text(text)


def test_patience_ends_training_and_the_best_epoch_is_kept(tmp_path, monkeypatch, log_lines):
    train, dev = write_data("classification", tmp_path)
    scores = iter([0.5, 0.7, 0.6, 0.7, 0.1, 0.1])
    own = Epochs.evaluate

    def evaluate(self, step, state):
        judgement, metrics = own(self, step, state)
        return judgement, metrics | {"dev_accuracy": next(scores)}

    monkeypatch.setattr(Epochs, "evaluate", evaluate)
    config = small("classification", quickest(), train, dev, train__epochs=6, train__patience=2)
    (result,) = fine_tune(config, str(tmp_path / "run"))["runs"].values()
    assert result["step"] == 12  # six steps an epoch: the second was the best
    assert "no better score in 2 epochs" in str(log_lines)
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["12"]


def test_what_is_frozen_stays_and_the_head_has_its_own_rate(tmp_path):
    train, dev = write_data("classification", tmp_path)
    config = small("classification", quickest(), train, dev, train__epochs=1, optim__head_learning_rate=0.1)
    config.optim.freeze = ("^bert/encoder/",)
    fine_tune(config, str(tmp_path / "run"))
    before, after = from_pretrained(quickest()).params, from_pretrained(tmp_path / "run").params
    for a, b in zip(_leaves(before["bert"]["encoder"]), _leaves(after["bert"]["encoder"]), strict=True):
        np.testing.assert_array_equal(a, b)
    moved = lambda tree, other: max(np.abs(a - b).max() for a, b in zip(_leaves(tree), _leaves(other), strict=True))
    steps, rate = 6, 3e-3  # AdamW moves a number by at most about its rate in a step
    assert 1e-4 < moved(before["bert"]["embed"], after["bert"]["embed"]) < 1.5 * steps * rate
    assert np.abs(np.asarray(after["label"]["kernel"])).max() > 0.1


def test_the_setup_of_a_frozen_model_leaves_the_head_alone_to_be_trained():
    config = get_config("classification")
    frozen(config)
    (pattern,) = config.optim.freeze
    names = traverse_util.flatten_dict({**from_pretrained(quickest()).params, "label": {"kernel": 0}}, sep="/")
    assert {name for name in names if not re.search(pattern, name)} == {
        name for name in names if name.startswith(("label/", "head/", "bert/pooler/"))
    }


@pytest.mark.parametrize("name", ["config.json", "data.json"])
def test_a_folder_with_odd_files_is_one_line(tmp_path, name):
    train, dev = write_data("tagging", tmp_path)
    config = small("tagging", quickest(), train, dev)
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(to_json(config))
    (run / name).write_text("[]")
    with pytest.raises(ValueError, match=rf"^{run / name} (is not the config of a run|does not hold the digests)"):
        fine_tune(config, str(run))


def test_a_run_that_kept_nothing_may_have_another_config(classified, tmp_path):
    """The advice after too little memory, a smaller batch, can be followed where it was given."""
    run, _, config = classified
    begun = tmp_path / "run"
    begun.mkdir()
    for name in ("config.json", "data.json"):
        shutil.copy(run / name, begun / name)
    assert fine_tune(config(data__batch_size=4), str(begun))["runs"]
    with pytest.raises(ValueError, match=r"holds a run of another config: data\.batch_size is 8, there 4"):
        fine_tune(config(data__batch_size=8), str(begun))


def test_what_a_killed_run_left_is_removed(classified, tmp_path):
    run, _, config = classified
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / "state" / "4").mkdir(parents=True)
    assert fine_tune(config(), str(copied))["runs"]
    assert not (copied / "state").exists()
    (copied / "result.json").unlink()
    left = copied / "checkpoints" / ".9.1-0a0b0c0d.partial"
    left.mkdir()
    assert fine_tune(config(), str(copied))["runs"]
    assert not left.exists()


def test_a_model_of_single_texts_takes_no_second_ones(classified, capsys):
    run, _, _ = classified
    model = FineTuned.from_checkpoint(run)
    assert not model.reads_pairs
    with pytest.raises(ValueError, match="pairs: the model was fine-tuned on single texts"):
        model.classify(["the cat"], ["a town"])
    assert len(model.classify(["the cat"], [None])) == 1
    asked = ["classify", f"--checkpoint={run}", "the cat\ta town"]
    assert predict(asked) == 0
    line = json.loads(capsys.readouterr().out)
    (found,) = model.classify(["the cat\ta town"])
    assert line["probabilities"] == {
        name: round(value, 6) for name, value in zip(model.task.labels, found.probabilities, strict=True)
    }


def test_a_single_run_gets_no_others_beside_it(classified):
    run, _, config = classified
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(ValueError, match="holds one run, not 2: choose another --workdir"):
        fine_tune(config(seeds=2), str(run))
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_run_of_another_config_is_not_gone_on_with(classified):
    run, _, config = classified
    with pytest.raises(ValueError, match=r"holds a run of another config: optim.learning_rate is 1.0, there 0.003"):
        fine_tune(config(optim__learning_rate=1.0), str(run))
    may_change = {"train__stall_minutes": 5.0, "model__attention_kernel": "einsum", "model__scan_layers": True}
    assert fine_tune(config(**may_change), str(run))


@pytest.mark.parametrize(
    ("task", "name", "content", "more", "expected"),
    [
        ("tag", "a.conll", "the O\ncat\n", [], "a.conll:2"),
        ("tag", "a.conll", "", [], "no sentences"),
        ("classify", "a.tsv", "sentence\tlabel\nthe cat\n", [], "a.tsv:2"),
        ("classify", "a.tsv", "text\tlabel\nthe cat\tx\n", [], "a.tsv"),
        ("classify", "a.tsv", "sentence\tlabel\nthe cat\tx\na dog\tx\n", [], "1 classes ('x')"),
        ("regress", "a.tsv", "sentence\tlabel\nthe cat\tmany\n", [], "a.tsv:2"),
        ("answer", "a.json", '{"data": [{"paragraphs": [{"context": "x"}]}]}', [], "data[0].paragraphs[0]"),
        ("answer", "a.json", "{", [], "a.json"),
        ("tag", "a.conll", "the O\n", ["--config.data.text=x"], "data.text='x', but the files are columns of words"),
        ("tag", "a.conll", "the O\n", ["--config.model.hidden=8"], "unknown config key model.hidden"),
        ("tag", "a.conll", "the O\n", ["--config.data.noise=dorp:0.1"], "drop"),
        ("tag", "a.conll", "the O\ncat B-X\n", ["--config.init_from=nowhere"], "nowhere"),
        ("tag", "a.conll", "the O\ncat B-X\n", ["--config.model.label_head=none"], "model.label_head='none'"),
        ("tag", "a.conll", "the O\ncat B-X\n\na O\ndog X-X\n", [], "a.conll:4: the tag 'X-X'"),
        ("tag", "a.conll", "the O\n", ["--config.task=foo"], "task='foo' is not one of"),
        ("tag", "a.conll", "the O\n", ["--config.data.noise_dev=True"], "data.noise names no kind"),
        ("tag", "a.conll", "the O\n\ncat B-X\n" * 9, ["--config.data.batch_size=9"], "must be a multiple"),
    ],
)
def test_mistakes_are_one_line(tmp_path, task, name, content, more, expected):
    (tmp_path / name).write_text(content, encoding="utf-8")
    arguments = [f"--config.init_from={quickest()}", f"--config.data.train={tmp_path / name}"]
    with on_devices(8):
        found = main(f"--config={ROOT}/configs/{task}.py", *arguments, *more, f"--workdir={tmp_path / 'run'}")
    assert found.returncode == 1, found.stderr
    (line,) = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    assert expected in line
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "run").exists()


def test_a_signal_saves_and_the_same_command_goes_on(tmp_path):
    train, dev = write_data("tagging", tmp_path, train=400)
    arguments = [
        sys.executable, "-m", "charlm.main", f"--config={ROOT}/configs/tag.py:tiny", f"--workdir={tmp_path / 'run'}",
        f"--config.init_from={quickest()}", f"--config.data.train={train}", f"--config.data.dev={dev}",
        "--config.data.batch_size=8", "--config.train.epochs=40", "--config.train.patience=0",
        "--config.train.log_every=5",
    ]  # fmt: skip
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    for line in process.stderr:
        if "epoch 1/40" in line:
            os.kill(process.pid, signal.SIGTERM)
            break
    rest = process.stderr.read()
    assert process.wait(60) == 0
    assert "stopped by signal at step" in rest
    assert (tmp_path / "run" / "state").is_dir()
    shutil.rmtree(tmp_path / "run")

"""Tests fine-tuning on rows: what the files say that are written, and that a model comes back."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from pathlib import Path

import object_stores
import pytest
from finetune.tiny_tasks import sentences
from small_run import ROOT, on_devices
from tiny_models import release

import charlm
from charlm.api import reports, training
from charlm.data.files import matching_files
from charlm.finetune.data import read as read_parts
from charlm.tasks.create import task_of
from charlm.tasks.table import TASKS


@pytest.fixture
def asked(monkeypatch):
    """Returns a function that fine-tunes, but for the training, and returns the config that it would have."""
    seen = []
    monkeypatch.setattr(training, "fine_tune", lambda config, workdir: seen.append(config) or {"runs": {}})
    monkeypatch.setattr(training, "load", lambda workdir, batch_size: None)

    def ask(*args, **options):
        charlm.finetune(release("bert"), *args, **options)
        return seen[-1]

    return ask


def read(config, part="train"):
    """Returns the examples as the run would read them, without their places."""
    task = task_of(config)
    return [one._replace(place="", id="") for one in task.read(config.data[part], training=True)]


class Table:
    """As much of a pandas.DataFrame as is used."""

    def __init__(self, rows):
        self.rows = rows

    def to_dict(self, orient):
        assert orient == "records"
        return self.rows

    def iterrows(self):
        raise AssertionError("rows of pandas are not dicts")


class Dataset:
    """As much of a Dataset of Hugging Face as is used: it yields rows, and its `to_dict` gives columns."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)

    def to_dict(self):
        return {name: [row[name] for row in self.rows] for name in self.rows[0]}


def test_rows_of_texts(asked, tmp_path):
    rows = [('the cat, "said" he\n', "animal"), ("a town", "place")]
    config = asked(rows, rows[1:], task="classify", workdir=tmp_path)
    assert [(one.text, one.pair, one.label) for one in read(config)] == [
        (rows[0][0], None, "animal"), ("a town", None, "place"),
    ]  # fmt: skip
    assert [one.label for one in read(config, "dev")] == ["place"]
    assert Path(config.data.train[0]).parent.parent == tmp_path
    as_dicts = [{"label": label, "text": text, "other": 1} for text, label in rows]
    assert read(asked(as_dicts, task="classify", workdir=tmp_path)) == read(config)
    assert read(asked(Table(as_dicts), task="classify", workdir=tmp_path)) == read(config)
    assert read(asked(Dataset(as_dicts), task="classify", workdir=tmp_path)) == read(config)


def test_files_in_a_store_are_read_as_those_of_a_config(asked, tmp_path, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))
    with object_stores.store("s3") as objects:
        objects.write("data/train.csv", b"sentence,label\nthe cat,animal\na town,place\n")
        address = f"s3://{object_stores.BUCKET}/data/train.csv"
        config = asked(address, task="classify", workdir=tmp_path)
        assert config.data.train == (address,)
        found = read_parts(config, task_of(config)).train
        assert [(one.text, one.label) for one in found] == [("the cat", "animal"), ("a town", "place")]
        monkeypatch.setattr(reports, "measure", lambda models, files, out, **_: matching_files(*files, "data"))
        monkeypatch.setattr(reports, "write_report", lambda results, folder: [folder] * 3)
        (file,) = charlm.robustness("runs/none", address, out=tmp_path / "report").results
        assert Path(file).read_bytes() == objects.now["data/train.csv"]


def test_rows_of_pairs_and_numbers(asked, tmp_path):
    config = asked([("a", "b", 1), ("c", "d", 2.5)], task="regress:tiny", workdir=tmp_path)
    assert [(one.text, one.pair, one.label) for one in read(config)] == [("a", "b", 1.0), ("c", "d", 2.5)]
    assert config.optim.learning_rate == 1e-3  # that of the variant


def test_rows_of_words(asked, tmp_path):
    config = asked(iter([(["the", "cat"], ["O", "B-X"]), (["#"], ["O"])]), task="tag", workdir=tmp_path)
    assert [(one.words, one.tags) for one in read(config)] == [(("the", "cat"), ("O", "B-X")), (("#",), ("O",))]


def test_rows_of_questions(asked, tmp_path):
    rows = [("who ?", "the cat sat", "cat"), {"question": "where ?", "context": "the cat sat", "answer": None}]
    found = read(asked(rows, task="answer", workdir=tmp_path))
    assert found[0].answers == ((("cat", 4)),)
    assert (found[1].answers, found[1].impossible) == ((), True)


def test_rows_of_passages(asked, tmp_path):
    rows = [("q1", "the cat", 1), ("q2", "a town", 0), ("q1", "a mat", 0), ("q2", "a dog", 1)]
    found = read(asked(rows, task="rank", workdir=tmp_path))
    assert [(one.text, one.pair, one.label) for one in found] == [rows[0], rows[2], rows[1], rows[3]]
    assert found[0].group == found[1].group != found[2].group


def test_settings(asked, tmp_path):
    config = asked([("a", "b")], task="classify", workdir=tmp_path, lr=1, epochs=3, noise="drop:0.1", seed=4)
    assert (config.optim.learning_rate, config.train.epochs, config.seed) == (1.0, 3, 4)
    assert config.data.noise == ("drop:0.1",)
    assert asked([("a", "b")], task="classify", workdir=tmp_path, **{"data.dev_share": 0.5}).data.dev_share == 0.5


def test_tasks_by_their_names_and_files(asked, tmp_path):
    config = asked([("a", 1.5)], task="regression", workdir=tmp_path)
    assert (config.task, config.data.label) == ("regression", "label")
    assert asked([(["a"], ["O"])], task="tagging:tiny", workdir=tmp_path).optim.learning_rate > 1e-4
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "a", "label": "b"}\n', encoding="utf-8")
    config = asked(file, str(file), task="classify", workdir=tmp_path, **{"data.text": "text"})
    assert (config.data.train, config.data.dev) == ((str(file),), (str(file),))
    assert [(one.text, one.label) for one in read(config)] == [("a", "b")]


def test_rows_of_a_task_of_a_package(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(TASKS, "_added", dict(TASKS._added))
    monkeypatch.syspath_prepend(ROOT / "tests" / "package")
    shouting = importlib.import_module("mine").SHOUTING
    TASKS.add("shouting", shouting)
    rows = [("what is this", "loud"), {"line": "a cat", "label": "quiet"}]
    config = asked(rows, task="shouting:tiny", workdir=tmp_path, **{"shouting.sign": "?"})
    assert config.task == "shouting"
    assert [(one.text, one.label) for one in read(config)] == [("what is this", "loud"), ("a cat", "quiet")]
    with pytest.raises(ValueError, match=r"^train, row 0: expected line, label, got 1 parts: "):
        asked([("a",)], task="shouting", workdir=tmp_path)
    TASKS.add("files_alone", dataclasses.replace(shouting, rows=None, keys={}))
    with pytest.raises(ValueError, match=r"^train: the task files_alone takes no rows, only files"):
        asked(rows, task="files_alone", workdir=tmp_path)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([("a",)], {}, r"^train, row 0: expected text, pair, label \(pair may be left out\), got 1 parts: \('a',\)"),
        (["ab"], {}, r"^train, row 0: expected text, pair, label .*, got 'ab'"),
        ([{"text": "ab"}], {}, r"^train, row 0: it lacks label: expected text, pair, label, got the keys 'text'"),
        ([("a", "")], {}, r"^train, row 0: expected a label, got ''"),
        ([("\ud800", "x")], {}, r"^train, row 0: text: expected a text in UTF-8"),
        (3, {}, r"^train: expected rows or the path of a file, got int 3"),
        ([{"text": "a", "class": "b"}], {}, r"^train, row 0: it lacks label: .*, got the keys 'text', 'class'"),
        ([], {}, r"^train: expected rows, found none"),
        ([("a", "b"), ("a", "b", "c")], {}, r"^train, row 1: expected a pair in all rows or in none"),
        ([("a", "b")], {"epoch": 3}, r"^there is no setting 'epoch'; did you mean epochs\?"),
        ([("a", "b")], {"epochs": "many"}, r"^epochs='many': "),
        ([("a", "b")], {"epochs": 0}, r"^train.epochs=0 must be at least 1"),
        ([("a b", ["O"])], {"task": "tag"}, r"^train, row 0: expected a list of words and a list of as many tags"),
        ([(["a b"], ["O"])], {"task": "tag"}, r"^train, row 0: expected words and tags without spaces, got 'a b'"),
        ([("q", "the cat", "dog")], {"task": "answer"}, r"^train, row 0: the answer 'dog' is not in the context"),
    ],
)
def test_mistakes(asked, tmp_path, rows, options, message):
    with pytest.raises(ValueError, match=message):
        asked(rows, workdir=tmp_path, **{"task": "classify"} | options)


def test_a_fine_tuned_model_comes_back(tmp_path):
    rows = [tuple(zip(*sentence, strict=True)) for sentence in sentences(16)]
    with on_devices(1):
        tagger = charlm.finetune(
            charlm.load(release("bert")), rows, rows[:4], task="tag", workdir=tmp_path / "run",
            epochs=1, batch_size=16, eval_batch_size=16, max_length=16,
        )  # fmt: skip
    assert tagger.path == str(tmp_path / "run")
    assert tagger.task == "tagging"
    (words, _), *_ = rows
    assert [tag.word for tag in tagger.tag([list(words)])[0]] == list(words)


@pytest.mark.parametrize(
    ("task", "rows", "message"),
    [
        ("classify", [("a", "x"), (None, "y")], "train, row 1: text: expected a text, got 'None'"),
        ("classify", [("a", "x"), (" ", "y")], "train, row 1: text: expected a text, got ' '"),
        ("classify", [("a", "b", "x"), ("a", 3, "y")], "train, row 1: pair: expected a text, got '3'"),
        ("classify", [("a", None)], "train, row 0: expected a label, got None"),
        ("classify", [("a", float("nan"))], "train, row 0: expected a label, got nan"),
        ("rank", [("a", None, 1)], "train, row 0: passage: expected a text, got 'None'"),
        ("rank", [("a", "b", 1), ("a", "c", 0.7)], "train, row 1: expected a relevance of 0 or 1, got 0.7"),
        ("rank", [("a", "b", "yes")], "train, row 0: expected a relevance of 0 or 1, got 'yes'"),
        ("answer", [(None, "a", None)], "train, row 0: question: expected a text, got 'None'"),
    ],
)
def test_what_is_no_text_is_refused_and_not_left_out(asked, tmp_path, task, rows, message):
    with pytest.raises(ValueError, match=message):
        asked(rows, task=task, workdir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_workdir_that_cannot_be_written_is_named(asked, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^workdir=\S+file cannot be written: Not a directory"):
        asked([("a", "x"), ("b", "y")], task="classify", workdir=tmp_path / "file")


def test_packages_that_are_called_have_the_help_of_their_functions():
    assert list(inspect.signature(charlm.finetune).parameters)[:2] == ["model", "train"]
    assert "Rows are tuples, dicts" in charlm.finetune.__doc__
    assert "charlm.finetune(model" in charlm.finetune.__doc__
    assert list(inspect.signature(charlm.robustness).parameters)[:3] == ["models", "data", "out"]
    assert next(iter(inspect.signature(charlm.show).parameters)) == "model"


def test_an_unknown_setting_of_a_report_is_named():
    with pytest.raises(ValueError, match="unknown setting 'seed' of a report; did you mean seeds"):
        charlm.robustness("runs/none", [("a", "x")], seed=3)


def test_rows_that_a_run_has_learned_from_are_not_replaced(tmp_path):
    rows, others = [("the cat", "animal"), ("a town", "place")] * 8, [("shares fell", "money"), ("a cat", "animal")] * 8
    ask = {"model": "hlm-small-en", "task": "classify:tiny", "workdir": tmp_path / "run", "epochs": 1}
    charlm.finetune(train=rows, **ask)
    (file,) = (tmp_path / "run" / "rows").iterdir()
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"holds a run on other rows \(train\); choose another workdir"):
        charlm.finetune(train=others, **ask)
    assert file.read_bytes() == before
    assert charlm.finetune(train=rows, **ask).labels == ("animal", "place")  # it is finished


def test_what_is_refused_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = [("the cat", "animal"), ("a town", "place")] * 8
    for options, says in (
        ({"epochs": "x"}, "epochs='x'"),
        ({"task": 3}, "task=3: expected a name"),
        ({"model": 3}, "model=3: expected a model"),
        ({"train": rows[:1]}, "dev_share|examples|classes|label"),
    ):
        ask = {"model": "hlm-small-en", "train": rows, "task": "classify:tiny"} | options
        with pytest.raises(ValueError, match=says):
            charlm.finetune(**ask)
    assert list(tmp_path.iterdir()) == []

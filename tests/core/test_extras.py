"""Tests that commands report missing packages, files and folders at their start, not at their end."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest
from finetune.test_fine_tuning import quickest, small, write_data
from small_run import small_config, write_text

from charlm import predict
from charlm.config.pretraining import get_config
from charlm.convert import __main__ as convert
from charlm.core import extras
from charlm.data import corpus
from charlm.data.corpus import prepare
from charlm.families.charbert.text import prepare_subwords
from charlm.families.xrayemb.text import prepare_xray
from charlm.finetune import run as fine_tuning
from charlm.robustness import measure as robustness
from charlm.statistics import __main__ as statistics

pytest.importorskip("sklearn")
pytestmark = pytest.mark.usefixtures("log_lines")


def refuse(*_, **__):
    raise AssertionError("the work began")


def without(monkeypatch, *packages):
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


# ---- the helper ----


def test_the_extra_to_install_is_named(monkeypatch):
    without(monkeypatch, "sklearn", "torch", "transformers", "pyarrow")
    assert extras.missing("sklearn") == 'scikit-learn is not installed: pip install -e ".[eval]"'
    assert extras.missing("pyarrow") == "pyarrow is not installed: pip install pyarrow"
    both = 'scikit-learn and torch and transformers are not installed: pip install -e ".[eval,torch]" transformers'
    assert extras.missing("sklearn", "torch", "transformers") == both
    with pytest.raises(ValueError, match=r"^--plot: scikit-learn is not installed"):
        extras.load("--plot", "sklearn.metrics")
    with pytest.raises(ValueError, match=r"^--plot: torch is not installed"):
        extras.check("--plot", "torch")
    assert extras.missing("no_such_package") == "no_such_package is not installed: pip install no_such_package"


def test_what_is_there_is_loaded_and_what_is_broken_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(extras._PACKAGES, "json", extras._Package("json", ""))
    assert extras.missing("json") == ""
    assert extras.load("reading", "json.decoder").JSONDecoder
    with pytest.raises(
        ValueError, match=r"^reading: json cannot be imported \(it has no json.none\): pip install json"
    ):
        extras.load("reading", "json.none")
    (tmp_path / "broken_package.py").write_text("raise ImportError('its library is gone')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(extras._PACKAGES, "broken_package", extras._Package("broken-package", "eval"))
    with pytest.raises(ValueError, match=r"broken-package cannot be imported \(its library is gone\): pip install -e"):
        extras.load("reading", "broken_package")


def test_every_extra_exists():
    declared = (Path(__file__).parents[2] / "setup.py").read_text()
    assert all(f'"{package.extra}": ' in declared for package in extras._PACKAGES.values() if package.extra)


# ---- fine-tuning ----


@pytest.mark.parametrize(
    ("task", "package", "name"),
    [("classification", "sklearn", "scikit-learn"), ("regression", "scipy", "scipy"), ("tagging", "sklearn", "")],
)
def test_scores_are_tried_before_training(tmp_path, monkeypatch, task, package, name):
    train, dev = write_data(task, tmp_path)
    if task == "tagging":  # parts of speech are scored as classes are
        for path in (train, dev):
            path.write_text(path.read_text().replace("B-", "N").replace("I-", "N"))
    monkeypatch.setattr(fine_tuning, "FineTuning", refuse)
    config = small(task, quickest(), train, dev)
    with pytest.raises(AssertionError, match="the work began"):
        fine_tuning.fine_tune(config, str(tmp_path / "run"))
    without(monkeypatch, package)
    with pytest.raises(ValueError, match=rf"^scores of {task}: {name or 'scikit-learn'} is not installed: pip .*eval"):
        fine_tuning.fine_tune(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_entities_are_scored_without_scikit_learn(tmp_path, monkeypatch):
    train, dev = write_data("tagging", tmp_path)
    monkeypatch.setattr(fine_tuning, "FineTuning", refuse)
    without(monkeypatch, "sklearn", "scipy")
    with pytest.raises(AssertionError, match="the work began"):
        fine_tuning.fine_tune(small("tagging", quickest(), train, dev), str(tmp_path / "run"))


def test_f1_of_three_classes_is_refused_before_training(tmp_path, monkeypatch):
    rows = [f"the {word}\t{word}" for word in ("cat", "dog", "town") * 9]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    monkeypatch.setattr(fine_tuning, "FineTuning", refuse)
    config = small("classification", quickest(), tmp_path / "train.tsv", data__metric="f1")
    with pytest.raises(ValueError, match=r"^data.metric=f1 is that of the second of two classes, and there are 3"):
        fine_tuning.fine_tune(config, str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__dev": ("nowhere.tsv",)}, "data.dev: 'nowhere.tsv' does not exist"),
        ({"data__test": ("nowhere*.tsv",)}, r"data.test: no file matches 'nowhere\*.tsv'"),
        (
            {"data__noise": ("misspelling:0.1",), "data__misspellings": "nowhere.txt"},
            "data.misspellings=nowhere.txt cannot be read: No such file",
        ),
    ],
)
def test_missing_files_are_missed_before_the_model_is_loaded(tmp_path, monkeypatch, changes, message):
    train, dev = write_data("classification", tmp_path)
    monkeypatch.setattr(fine_tuning, "load_source", refuse)
    config = small("classification", "a_model", train, dev, **changes)
    with pytest.raises(ValueError, match=message):
        fine_tuning.fine_tune(config, str(tmp_path / "run"))


def test_a_fold_that_cannot_be_parted_is_known_before_the_first_run(tmp_path, monkeypatch):
    rows = [f"{'cat' if n % 2 else 'town'}\t{'ab'[n % 2]}\t{int(n > 0)}" for n in range(12)]
    (tmp_path / "words.tsv").write_text("\n".join(["word\tkind\tfold", *rows]) + "\n")
    monkeypatch.setattr(fine_tuning, "FineTuning", refuse)
    config = small(
        "classification", quickest(), tmp_path / "words.tsv", data__text="word", data__label="kind",
        data__fold_column="fold",
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"data.train: 1 example is too few to set some aside"):
        fine_tuning.fine_tune(config, str(tmp_path / "run"))


# ---- pre-training ----


def test_held_out_text_is_looked_for_before_any_is_encoded(tmp_path, monkeypatch):
    for module, name in ((corpus, "encode"), (corpus, "load_or_build_vocab")):
        monkeypatch.setattr(module, name, refuse)
    config = small_config(write_text(tmp_path / "text.txt"), tmp_path / "cache")
    with pytest.raises(AssertionError, match="the work began"):
        prepare(config)
    config.data.heldout = ("nowhere.txt",)
    with pytest.raises(ValueError, match=r"^data.heldout: 'nowhere.txt' does not exist"):
        prepare(config)
    (tmp_path / "heldout.parquet").write_bytes(b"")
    config.data.heldout = (str(tmp_path / "heldout.parquet"),)
    without(monkeypatch, "pyarrow")
    with pytest.raises(ValueError, match=r"heldout.parquet is Parquet: pyarrow is not installed: pip install pyarrow"):
        prepare(config)


@pytest.mark.parametrize(
    ("family", "key", "reads"),
    [
        ("charbert", "tokenizer", prepare_subwords),
        ("charbert", "char_vocab", prepare_subwords),
        ("charbert", "term_vocab", prepare_subwords),
        ("xrayemb", "tokenizer", prepare_xray),
    ],
)
def test_vocabularies_are_read_before_text_is_encoded(tmp_path, monkeypatch, family, key, reads):
    monkeypatch.setattr(corpus, "encode", refuse)
    config = get_config(family)
    config.data.train, config.data.cache_dir = (str(write_text(tmp_path / "text.txt")),), str(tmp_path / "cache")
    with pytest.raises(AssertionError, match="the work began"):
        reads(config)
    config.text[key] = "nowhere"
    with pytest.raises(ValueError, match=f"text.{key}.*nowhere"):
        reads(config)


# ---- the other commands ----


def test_the_report_s_folder_and_scores_are_tried_before_anything_is_measured(tmp_path, monkeypatch):
    _, dev = write_data("classification", tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(robustness, "load", refuse)
    with pytest.raises(ValueError, match=r"^--out=.*file.report cannot be written: Not a directory"):
        robustness.measure(["runs/model"], [str(dev)], str(tmp_path / "file" / "report"))
    with pytest.raises(AssertionError, match="the work began"):
        robustness.measure(["runs/model"], [str(dev)], str(tmp_path / "report"))
    assert not (tmp_path / "report").exists()
    from charlm.tasks.classification import Classification
    from charlm.tasks.columns import Columns

    task = Classification(Columns(), ("animal", "place"))
    monkeypatch.setattr(robustness, "load", lambda *_: [types.SimpleNamespace(task=task)])
    monkeypatch.setattr(robustness, "_examples", refuse)
    without(monkeypatch, "sklearn")
    with pytest.raises(ValueError, match=r"^scores of classification: scikit-learn is not installed"):
        robustness.measure(["runs/model"], [str(dev)], str(tmp_path / "report"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fill-mask", "--words=nowhere.txt"], "--words=nowhere.txt cannot be read"),
        (["fill-mask", "--top=0"], "--top=0: expected at least 1"),
        (["answer", "--context={text}", "--top=0"], "--top=0: expected at least 1"),
        (["encode", "--batch-size=0"], "--batch-size=0: expected at least 1"),
        (["tag", "--batch-size=-1"], "--batch-size=-1: expected at least 1"),
    ],
)
def test_mistakes_in_options_come_before_the_model_is_loaded(tmp_path, capsys, arguments, message):
    text = str(write_text(tmp_path / "text.txt"))
    given = [argument.format(text=text) for argument in arguments]
    assert predict.main([*given, "--checkpoint=no_such_model", "a text"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {message}")
    assert captured.out == ""


@pytest.mark.parametrize("how", ["--table-free", "--backbone-only"])
def test_a_folder_that_is_there_is_noticed_before_a_model_is_loaded(tmp_path, monkeypatch, capsys, how):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")
    family = "char2subword" if how == "--table-free" else "xrayemb"
    converter = types.SimpleNamespace(name=family, title=family, load=refuse)
    monkeypatch.setattr(convert, "_converter", lambda args: converter)
    monkeypatch.setattr("charlm.core.checkpoint.find", Path)
    monkeypatch.setattr("charlm.families.stored.metadata_of", lambda *_: {})
    assert convert.main(["export", "--checkpoint=runs/model", f"--output={tmp_path / 'out'}", how]) == 1
    assert "exists already and is not empty" in capsys.readouterr().err


def test_statistics_of_parquet_need_pyarrow_before_a_model_is_loaded(tmp_path, monkeypatch, capsys):
    (tmp_path / "text.parquet").write_bytes(b"")
    without(monkeypatch, "pyarrow")
    assert statistics.main(["--model=no_such_model", "--data", str(tmp_path / "text.parquet")]) == 1
    assert "text.parquet is Parquet: pyarrow is not installed: pip install pyarrow" in capsys.readouterr().err


def test_no_package_is_imported_to_see_that_it_is_there(monkeypatch):
    monkeypatch.setattr(importlib, "import_module", refuse)
    assert extras.missing("scipy") == ""


def test_a_package_is_found_and_not_imported(tmp_path, monkeypatch):
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "__init__.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert extras.folders_of("a_package") == [tmp_path / "a_package"]
    for name in ("no_such_package", "a_package.inside", "", "../a_package", "sys"):
        assert extras.folders_of(name) == []


def test_an_installed_wheel_is_told_the_packages_since_it_has_no_extras(monkeypatch):
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    assert 'pip install -e ".[eval]"' in extras.missing("scipy", "sklearn")
    monkeypatch.setattr(extras, "is_checkout", lambda: False)
    assert extras.missing("scipy", "sklearn").endswith("pip install scipy scikit-learn")

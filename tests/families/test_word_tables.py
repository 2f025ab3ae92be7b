"""Tests tables of word vectors beside a model: what they give, and when they are left alone."""

from __future__ import annotations

import dataclasses
import json
import shutil
import struct

import numpy as np
import pytest
from small_char2subword import spelled
from small_characterbert import characterbert
from tiny_models import release

import charlm
from charlm.benchmark.first_batch import save_model
from charlm.benchmark.hlm import SMOKE
from charlm.config import get_config
from charlm.core import trained
from charlm.core.word_table import FOLDER, WordTable
from charlm.export import __main__ as command
from charlm.families.pretrained import from_pretrained
from charlm.finetune.model import first_params, with_task
from charlm.finetune.predictor import FineTuned
from charlm.predict import Predictor
from charlm.tasks.tagging import Tagging
from charlm.text.chars import CharVocab

TEXTS = ["the cat sat on a mat", "a dog, a cat and teh mouse", "naïve"]
WORDS = ["the", "cat", "a", ",", "dog", "the"]


@pytest.fixture(scope="module")
def hlm(tmp_path_factory):
    """Returns the folder of a small HLM with random weights."""
    config = get_config()
    config.text.splitter = "rules"
    config.model.update(SMOKE)
    folder = tmp_path_factory.mktemp("hlm") / "model"
    save_model(folder, config, CharVocab(sorted("abcdefghijklmnopqrstuvwxyz,.")))
    return folder


@pytest.fixture
def words(tmp_path):
    """Returns a file of words."""
    (tmp_path / "words.txt").write_text("\n".join(WORDS), encoding="utf-8")
    return tmp_path / "words.txt"


def made(model, words, *options):
    """Makes a table by the command; returns it."""
    assert command.main(["--format=words", f"--model={model}", f"--words={words}", *options]) == 0
    (folder,) = model.rglob(FOLDER)
    return WordTable(folder)


@pytest.mark.parametrize("family", ["hlm", "characterbert", "char2subword"])
def test_words_of_the_table_are_not_encoded(family, hlm, words, tmp_path):
    source = {"hlm": lambda: hlm, "characterbert": characterbert, "char2subword": lambda: spelled(mode="full")}
    model = shutil.copytree(source[family](), tmp_path / "model")
    expected = Predictor.from_checkpoint(model).encode(TEXTS)
    table = made(model, words)
    predictor = Predictor.from_checkpoint(model)
    for found, wanted in zip(predictor.encode(TEXTS), expected, strict=True):
        np.testing.assert_allclose(found.vectors_WD, wanted.vectors_WD, atol=1e-5, rtol=1e-5)
    assert predictor.cache is not None
    stats = predictor.cache.stats
    distinct = {word for one in expected for word in one.words}
    assert stats.misses == len(distinct - {*WORDS})  # teh, sat, ...
    assert stats.hits >= len(distinct & {*WORDS})
    names, rows_UC = predictor.word_rows(WORDS[:-1])
    fresh_UD = predictor.cache.encoded(predictor.word_params, rows_UC)
    stored = table.vectors_ND[table.rows([row.tobytes().rstrip(b"\0") for row in rows_UC])]
    np.testing.assert_allclose(stored, fresh_UD, atol=1e-6)
    assert len(names) == len(rows_UC)


def test_a_table_in_bfloat16_is_half_as_large(hlm, words, tmp_path):
    model = shutil.copytree(hlm, tmp_path / "model")
    whole = made(model, words).vectors_ND
    half = made(model, words, "--dtype=bfloat16", "--size=2")  # in place of the other
    assert (half.vectors_ND.itemsize, len(half)) == (2, 4)  # with [CLS] and [SEP]
    np.testing.assert_allclose(half.vectors_ND[0].astype(np.float32), whole[0], rtol=1e-2, atol=1e-2)
    Predictor.from_checkpoint(model).encode(TEXTS)


@pytest.fixture(scope="module")
def with_table(hlm, tmp_path_factory):
    """Returns the folder of a model with a table, and the vectors of a text without that table."""
    folder = tmp_path_factory.mktemp("with_table")
    (folder / "words.txt").write_text("\n".join(WORDS), encoding="utf-8")
    model = shutil.copytree(hlm, folder / "model")
    expected = Predictor.from_checkpoint(model).encode(TEXTS)[0].vectors_WD
    made(model, folder / "words.txt")
    return model, expected


@pytest.mark.parametrize("harm", ["parameters", "cut", "number"])
def test_another_model_s_table_is_refused_in_one_line(harm, with_table, tmp_path, log_lines):
    model, expected = shutil.copytree(with_table[0], tmp_path / "model"), with_table[1]
    (folder,) = model.rglob(FOLDER)
    about = json.loads((folder / "table.json").read_text())
    if harm == "cut":
        (folder / "vectors.npy").write_bytes((folder / "vectors.npy").read_bytes()[:-8])
    else:
        changed = {"identity": "0" * 64} if harm == "parameters" else {"words": 1}
        (folder / "table.json").write_text(json.dumps(about | changed))
    predictor = Predictor.from_checkpoint(model)
    (line,) = [line for line in log_lines.lines if "word_table" in line]
    assert line.endswith("words are encoded instead; charlm export --format=words makes it anew")
    assert "\n" not in line
    assert ("made with other parameters" in line) == (harm == "parameters")
    np.testing.assert_allclose(predictor.encode(TEXTS)[0].vectors_WD, expected, atol=1e-6)


def save_tagger(source, folder, head):
    """Writes a model with a tagging head of random weights."""
    source, task = from_pretrained(source), Tagging(labels=("O", "X"))
    model, target = with_task(source, task, head)
    params = first_params(source, model, target, seed=1)
    dataclasses.replace(model, params=params).save_pretrained(folder)


@pytest.mark.parametrize("family", ["hlm", "characterbert", "char2subword"])
def test_a_fine_tuned_model_keeps_the_words_it_has_read(family, hlm, tmp_path):
    source = {"hlm": lambda: hlm, "characterbert": characterbert, "char2subword": lambda: spelled(mode="full")}
    save_tagger(source[family](), tmp_path / "model", "paper" if family == "hlm" else "")
    loaded = charlm.load(tmp_path / "model")
    first = loaded.tag(TEXTS)
    again = loaded.sized(2).tag(TEXTS)  # shares the words
    stats = loaded.predictor.cache.stats
    assert (stats.hits, stats.misses) == (stats.words, stats.words)
    assert stats.words > len(WORDS)
    computed = FineTuned.from_checkpoint(tmp_path / "model")
    computed.evaluator._words = None
    for found, others, wanted in zip(first, again, computed.tag(TEXTS), strict=True):
        np.testing.assert_allclose([tag.probability for tag in found], wanted.probabilities, atol=1e-5)
        np.testing.assert_allclose([tag.probability for tag in others], wanted.probabilities, atol=1e-5)


@pytest.mark.parametrize("head", [pytest.param("paper", marks=pytest.mark.slow), "reference"])
def test_a_fine_tuned_model_reads_its_table(head, hlm, words, tmp_path, monkeypatch):
    save_tagger(hlm, tmp_path / "model", head)
    expected = FineTuned.from_checkpoint(tmp_path / "model").tag(TEXTS)
    made(tmp_path / "model", words)
    tagger = FineTuned.from_checkpoint(tmp_path / "model")
    asked = []
    take = tagger.evaluator._words
    assert take is not None
    monkeypatch.setattr(tagger.evaluator, "_words", lambda chars: asked.append(chars.shape) or take(chars))
    for found, wanted in zip(tagger.tag(TEXTS), expected, strict=True):
        assert found.tags == wanted.tags
        np.testing.assert_allclose(found.probabilities, wanted.probabilities, atol=1e-5)
    assert asked


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda: release("charbert"), "a CharBERT has no table of word vectors: it reads the characters of a whole"),
        (lambda: release("bert"), "a BERT has no table of word vectors: it reads pieces"),
        (lambda: spelled(mode="full"), "no list of words lies beside the model; --words=FILE names one"),
    ],
)
def test_models_without_such_vectors_say_so(model, says, capsys):
    assert command.main(["--format=words", f"--model={model()}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert not list(model().rglob(FOLDER))


def test_with_an_output_the_model_stays_as_it_is(hlm, words, tmp_path, capsys):
    before = {path.relative_to(hlm): path.read_bytes() for path in hlm.rglob("*") if path.is_file()}
    ask = ["--format=words", f"--model={hlm}", f"--words={words}", f"--output={tmp_path / 'warm'}"]
    assert command.main(ask) == 0
    assert "a copy of" in capsys.readouterr().out
    assert {path.relative_to(hlm): path.read_bytes() for path in hlm.rglob("*") if path.is_file()} == before
    warm = Predictor.from_checkpoint(tmp_path / "warm")
    assert (warm.table is not None, Predictor.from_checkpoint(hlm).table) == (True, None)
    for found, wanted in zip(warm.encode(TEXTS), Predictor.from_checkpoint(hlm).encode(TEXTS), strict=True):
        np.testing.assert_allclose(found.vectors_WD, wanted.vectors_WD, atol=1e-5, rtol=1e-5)
    assert command.main(ask) == 1
    assert capsys.readouterr().err == f"error: --output={tmp_path / 'warm'} exists already and is not empty\n"


def test_a_copy_of_a_run_is_a_model_with_its_weights(trained, words, tmp_path):
    """A run keeps its vocabulary in a folder beside the weights."""
    run, warm = trained.workdir, tmp_path / "warm"
    ask = ["--format=words", f"--model={run}", f"--words={words}", f"--output={warm}"]
    assert command.main(ask) == 0
    copy = Predictor.from_checkpoint(warm)
    assert copy.table is not None
    for found, wanted in zip(copy.encode(TEXTS), Predictor.from_checkpoint(run).encode(TEXTS), strict=True):
        np.testing.assert_allclose(found.vectors_WD, wanted.vectors_WD, atol=1e-5, rtol=1e-5)


def test_beside_a_model_in_a_store_no_table_is_written(capsys):
    assert command.main(["--format=words", "--model=s3://bucket/run"]) == 1
    assert "--model=s3://bucket/run is an address; --output=FOLDER writes a copy" in capsys.readouterr().err


def test_a_table_that_claims_more_than_its_file_holds_is_left_alone(with_table, tmp_path, log_lines):
    model = shutil.copytree(with_table[0], tmp_path / "model")
    (path,) = model.rglob("chars.npy")
    claimed = b"{'descr': '<u2', 'fortran_order': False, 'shape': (1000000000000, 9), }"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(claimed)) + claimed)
    np.testing.assert_allclose(Predictor.from_checkpoint(model).encode(TEXTS)[0].vectors_WD, with_table[1], atol=1e-6)
    assert any("damaged" in line for line in log_lines.lines)


def test_what_is_part_of_charlm_stays_as_it_is(tmp_path, capsys):
    assert command.main(["--format=words", "--model=hlm-small-en", "--size=9"]) == 1
    assert capsys.readouterr().err == (
        "error: hlm-small-en is part of charlm and stays as it is; --output=FOLDER writes a copy with the table\n"
    )
    assert not list((trained.FOLDER / "hlm-small-en").rglob(FOLDER))
    assert command.main(["--format=words", "--model=hlm-small-en", "--size=9", f"--output={tmp_path / 'warm'}"]) == 0
    assert Predictor.from_checkpoint(tmp_path / "warm").table is not None

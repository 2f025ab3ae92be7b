"""Tests the command that trains a speller's context, and readers with one."""

from __future__ import annotations

import json

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import release

import charlm
from charlm.core import checksums
from charlm.families.pretrained import from_pretrained
from charlm.search import context as training
from charlm.search.__main__ import main
from charlm.search.context import UNKNOWN, ContextSettings, train_context, words_of
from charlm.search.vectors import identity
from charlm.text.speller.context import FILE, REACH, Context, ContextWeights, read_context, write_context

RNG = np.random.default_rng(0)
SMALL = ContextSettings(passes=6.0, width=8, batch_size=64)


def test_words_between_texts_are_unknown():
    found = words_of(["The cat-flap", "zq cat"], str.lower, {"the": 0, "cat": 1})
    gap = [UNKNOWN] * REACH
    assert found.tolist() == [*gap, 0, 1, UNKNOWN, *gap, UNKNOWN, 1, *gap]


def test_training_finds_which_words_stand_beside_which():
    """In texts in which every word names the next one, words are told apart by their neighbours, and only there."""
    rows_VD = RNG.normal(3.0, 0.1, (16, 12)).astype(np.float32)
    pairs = RNG.integers(8, size=2000)
    ids_N = np.full(REACH + 12 * len(pairs), UNKNOWN, np.int32)
    ids_N[REACH::12], ids_N[REACH + 1 :: 12] = pairs, pairs + 8  # word n, then word n + 8
    weights, likelier = train_context(rows_VD, ids_N, SMALL)
    assert likelier > 1.0  # by chance 0, and log(16) nats at most
    words = {str(n): row for n, row in enumerate(rows_VD)}
    context = Context(weights, words.get)
    before_NH, behind_NH = context.sides([(("3", 1.0),), ()])
    fits = context.fits(before_NH[1] + behind_NH[2], tuple(words))
    assert np.argmax(fits) == 11
    assert fits[11] > 1.0
    again, _ = train_context(rows_VD, ids_N, SMALL)
    for one, other in zip(weights, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_stored_gives_the_fits_that_were_trained():
    """Rows are brought to mean 0 and variance 1 for training only: the weights do the same to rows as they are."""
    rows_VD = RNG.normal(0.3, 0.05, (30, 12)).astype(np.float32)
    params = training._initial(SMALL, 12)
    mean_D, scale = rows_VD.mean(axis=0), float((rows_VD - rows_VD.mean(axis=0)).std())
    context = Context(training._folded(params, mean_D, scale), {str(n): row for n, row in enumerate(rows_VD)}.get)
    ids_N = RNG.integers(30, size=2 * REACH + 1).astype(np.int32)
    words, around = training._around(ids_N, np.array([REACH]))
    table_VD = jnp.asarray(np.vstack([(rows_VD - mean_D) / scale, np.zeros((1, 12))]), jnp.float32)
    ((expected,),) = np.asarray(training._scores(table_VD, params, words, around))
    before_NH, behind_NH = context.sides([((str(n), 1.0),) for n in ids_N])
    fit = context.fits(before_NH[REACH] + behind_NH[REACH + 1], (str(words[0]),))
    np.testing.assert_allclose(fit, [expected], rtol=1e-3, atol=1e-5)


def test_a_context_is_trained_and_read_through(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))
    encoder, texts = str(tmp_path / "encoder"), tmp_path / "texts.jsonl"
    from_pretrained(release("bert")).save_pretrained(encoder)
    lines = ["they read old stories", "the old tree near a mat", "she tells words"] * 40
    texts.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), encoding="utf-8")
    made = ["context", f"--model={encoder}", f"--texts={texts}", f"--output={tmp_path}/context"]
    assert main([*made, "--batch-size=32", "--width=4", "--passes=2"]) == 0
    assert "nats likelier in its context than anywhere" in capsys.readouterr().out
    weights = read_context(tmp_path / "context")
    assert weights.word_DH.shape == (from_pretrained(encoder).config.hidden, 4)
    reader = [f"--model={encoder}", f"--output={tmp_path}/reader", f"--context={tmp_path}/context"]
    assert main(["speller", *reader]) == 0
    assert "reads words in context" in capsys.readouterr().out
    one = charlm.load(tmp_path / "reader")
    assert one.predictor._speller.context is not None
    assert one.encode("htey raed", normalize=True).shape

    checksums.write(tmp_path / "reader")
    again = ["speller", f"--model={tmp_path}/reader", f"--texts={texts}", f"--output={tmp_path}/again"]
    assert main(again) == 0  # it keeps the context of the model
    np.testing.assert_array_equal(read_context(tmp_path / "again").word_DH, weights.word_DH)
    checksums.check(tmp_path / "again")
    one.pretrained.save_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(read_context(tmp_path / "saved").word_DH, weights.word_DH)

    changed = weights._replace(word_H=weights.word_H + 1)
    before = identity(charlm.load(tmp_path / "again"))
    write_context(tmp_path / "again", changed)
    checksums.write(tmp_path / "again")
    assert identity(charlm.load(tmp_path / "again")) != before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--passes=0"], "--passes=0: expected more than 0"),
        (["--width=0"], "--width=0: expected 1 to 4096"),
        (["--seed=-1"], "--seed=-1: expected 0 to 4,294,967,295"),
        (["--seed=99999999999999999999"], "expected 0 to"),
        (["--batch-size=1"], "--batch-size=1: expected 2 to 65,536"),
        ([], "2 words that the encoder's table has, expected at least 4,096"),
        (["--model={roberta}"], "a model of the kind RoBERTa reads no text through a speller"),
        (["--texts=none.txt"], "none.txt"),
    ],
)
def test_bad_input_of_training_is_told_in_a_line(tmp_path, capsys, options, message):
    (tmp_path / "texts.txt").write_text("they zqorviqa read\n", encoding="utf-8")
    asked = [one.format(roberta=release("roberta")) for one in options]
    made = ["context", f"--model={release('bert')}", f"--texts={tmp_path}/texts.txt", f"--output={tmp_path}/context"]
    assert main([*made, *asked]) == 1
    assert message in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt"}


def test_a_context_that_tells_nothing_is_refused(tmp_path, capsys):
    """Words in random order: what is learned of them by heart does not hold for others."""
    rng = np.random.default_rng(0)
    words = ["they", "read", "old", "the", "tree", "near", "a", "she", "tells", "words"]
    (tmp_path / "texts.txt").write_text("\n".join(" ".join(rng.choice(words, 8)) for _ in range(20)), encoding="utf-8")
    made = ["context", f"--model={release('bert')}", f"--texts={tmp_path}/texts.txt", f"--output={tmp_path}/context"]
    assert main([*made, "--batch-size=32", "--width=64", "--passes=200"]) == 1
    assert "nats less likely in their contexts than anywhere, after --passes=200 of" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt"}


def test_a_context_of_another_table_is_refused(tmp_path, capsys):
    zeros = ContextWeights(np.zeros((8, 5, 2)), np.zeros((8, 2)), np.zeros((5, 2)), np.zeros(2))
    write_context(tmp_path, zeros)
    made = ["speller", f"--model={release('bert')}", f"--output={tmp_path}/reader"]
    assert main([*made, f"--context={tmp_path}"]) == 1
    assert "the speller's context is for a table of width 5" in capsys.readouterr().err
    assert main([*made, f"--context={tmp_path}/none"]) == 1
    assert f"--context={tmp_path}/none: there is no such folder" in capsys.readouterr().err
    (tmp_path / FILE).unlink()
    assert main([*made, f"--context={tmp_path}"]) == 1
    assert f"no {FILE} in it; charlm search context makes one" in capsys.readouterr().err
    assert not (tmp_path / "reader").exists()

"""Tests the vocabulary of characters of subwords: files in the authors' format, built ones, and invalid ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from charlm.text.symbols import SymbolVocab, count_symbols

SYMBOLS = json.loads(
    (Path(__file__).parents[1] / "goldens" / "charbert" / "char_inputs.json").read_text(encoding="utf-8")
)["symbols"]


@pytest.mark.parametrize(("family", "size"), [("bert", 1001), ("roberta", 1050)])
def test_released_files(family, size, tmp_path):
    (tmp_path / "chars").write_text(SYMBOLS[family], encoding="utf-8")
    vocab = SymbolVocab.load(tmp_path / "chars")
    assert (vocab.size, vocab.unknown) == (size, size - 1)
    assert vocab.ids("#").tolist() == [{"bert": 133, "roberta": 78}[family]]
    vocab.save(tmp_path / "again")
    assert (tmp_path / "again").read_text(encoding="utf-8") == SYMBOLS[family]
    again = SymbolVocab.from_dict(json.loads(json.dumps(vocab.to_dict())))
    assert again == vocab
    assert (hash(again), again.digest()) == (hash(vocab), vocab.digest())


def test_lines_may_end_in_crlf(tmp_path):
    (tmp_path / "chars").write_bytes(b" \r\na\r\n<unk>\r\n")
    assert SymbolVocab.load(tmp_path / "chars") == SymbolVocab([" ", "a", "<unk>"])


def test_ids_are_places_the_last_of_a_character_and_never_that_of_the_separator():
    vocab = SymbolVocab([" ", "a", "b", "a", "<unk>"])
    ids = vocab.ids("ab c")
    assert ids.tolist() == [3, 2, 4, 4]
    assert ids.dtype == np.int32
    assert vocab.ids("").shape == (0,)
    assert vocab != SymbolVocab([" ", "b", "a", "<unk>"])


def test_build_ranks_by_frequency_then_by_code_point():
    counts = count_symbols(["the", "tea", "Ġa"], [3, 1, 2])
    assert counts == {"t": 4, "h": 3, "e": 4, "a": 3, "Ġ": 2}
    assert SymbolVocab.build(counts).symbols == (" ", "e", "t", "a", "h", "Ġ", "<unk>")
    assert SymbolVocab.build(counts, 4).symbols == (" ", "e", "t", "<unk>")
    assert count_symbols(["aa", "b c"]) == {"a": 2, "b": 1, " ": 1, "c": 1}
    assert SymbolVocab.build({" ": 9, "\u3000": 9, "x": 1, "y": 0}).symbols == (" ", "x", "<unk>")


def test_mistakes_are_named_in_one_line(tmp_path):
    (tmp_path / "words").write_text("the\nof\n<unk>\n", encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for call, message in (
        (lambda: SymbolVocab.load(tmp_path / "words"), "words: entry 0: expected one character or <unk>, got 'the'"),
        (lambda: SymbolVocab.load(tmp_path / "binary"), "binary: expected UTF-8 text, a character a line"),
        (lambda: SymbolVocab([" ", "a"]), "expected <unk> among the entries, got none in 2"),
        (lambda: SymbolVocab(["<unk>", "a"]), "expected <unk> among the entries"),
        (lambda: SymbolVocab.build({"ab": 1}), "counts: expected single characters, got 'ab'"),
        (lambda: SymbolVocab.build({}, 2), "expected at least 3, got 2"),
        (lambda: SymbolVocab.from_dict({"chars": []}, "x.json"), "x.json: expected a list of characters"),
        (lambda: SymbolVocab([" ", "\r", "<unk>"]).save(tmp_path / "no"), "cannot be a line"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "no").exists()

"""Tests the files beside CharBERT's tensors: characters and tokenizer are found, refused, or kept in a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from charbert_release import KIND, bring, take, write_release
from subword_cases import failure

from charlm.families.charbert.conversion import symbols_of
from charlm.families.lookup import converter_of
from charlm.families.pretrained import from_pretrained
from charlm.predict import Predictor
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab

# ---- Characters ----


def test_characters_are_named_found_or_missed(tmp_path, log_lines, capsys):
    write_release(tmp_path / "release", "bert")
    found = from_pretrained(tmp_path / "release")
    assert "the model can read no text; --char-vocab=FILE names them" in str(log_lines)
    with pytest.raises(ValueError, match=r"the characters of this model are not known; import it with --char-vocab"):
        symbols_of(found)
    symbols = SymbolVocab([" ", *"abcdefg", "<unk>"])
    symbols.save(tmp_path / "chars")
    assert bring(tmp_path / "release", tmp_path / "ours", f"--char-vocab={tmp_path / 'chars'}") == 0
    assert symbols_of(from_pretrained(tmp_path / "ours")) == symbols
    assert take(tmp_path / "ours", tmp_path / "back") == 0
    assert symbols_of(from_pretrained(tmp_path / "back")) == symbols  # beside the tensors
    shutil.copyfile(tmp_path / "chars", tmp_path / "release" / "bert_char_vocab")
    assert symbols_of(from_pretrained(tmp_path / "release")) == symbols
    SymbolVocab([" ", *"abcdefghij", "<unk>"]).save(tmp_path / "long")
    SymbolVocab([" ", *"abcdef", "<unk>"]).save(tmp_path / "short")
    for file, message in (
        ("long", "long has 12 characters, the model rows for 9: they do not belong together"),
        ("short", "short has 8 characters, the model rows for 9: they do not belong together"),
        ("none", "none cannot be read: No such file or directory"),
    ):
        status = bring(tmp_path / "release", tmp_path / "no", f"--char-vocab={tmp_path / file}")
        assert message in failure(capsys, status)
    with pytest.raises(ValueError, match="reads no characters under subwords"):
        symbols_of(dataclasses.replace(found, family="bert"))


@KIND
def test_of_files_beside_the_tensors_ours_comes_first_and_never_that_of_the_other_kind(tmp_path, kind, log_lines):
    release, other = tmp_path / "release", {"bert": "roberta", "roberta": "bert"}[kind]
    write_release(release, kind)
    vocabs = {name: SymbolVocab([" ", *f"{name[0]}xyzuvw", "<unk>"]) for name in ("char", "bert", "roberta")}
    vocabs[other].save(release / f"{other}_char_vocab")
    assert "symbols" not in from_pretrained(release).metadata
    assert f"(char_vocab.txt, {kind}_char_vocab): the model can read no text" in str(log_lines)
    vocabs[kind].save(release / f"{kind}_char_vocab")
    assert symbols_of(from_pretrained(release)) == vocabs[kind]
    vocabs["char"].save(release / "char_vocab.txt")
    assert symbols_of(from_pretrained(release)) == vocabs["char"]


# ---- Tokenizers ----


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "the", "cat", *"abcdefghijkl"]


def with_pieces(tmp_path: Path) -> Path:
    """Returns a release on BERT with what lies beside the authors' tensors, a bare vocabulary, and characters."""
    write_release(tmp_path / "release", "bert")
    (tmp_path / "release" / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    SymbolVocab([" ", *"Theactb", "<unk>"]).save(tmp_path / "release" / "bert_char_vocab")
    return tmp_path / "release"


def test_a_bare_vocabulary_is_cased_and_the_checkpoint_says_so(tmp_path, log_lines):
    release = with_pieces(tmp_path)
    ids = [2, 5, 7, 3]
    assert list(from_pretrained(release).tokenizer().encode("The cat").ids) == ids
    assert not (release / "tokenizer_config.json").exists()  # what is theirs stays as it is
    log_lines.lines.clear()
    assert bring(release, tmp_path / "ours") == 0
    (line,) = [line for line in log_lines.lines if "states its case" in line]
    assert line == f"{release}/vocab.txt: nothing states its case; read as cased, as the released models are"
    assert not any("not the tokenizer" in line for line in log_lines.lines)
    assert take(tmp_path / "ours", tmp_path / "back") == 0
    assert bring(tmp_path / "back", tmp_path / "again") == 0
    for name in ("ours", "back", "again"):
        assert list(SubwordTokenizer.load(tmp_path / name).encode("The cat").ids) == ids
        assert json.loads((tmp_path / name / "tokenizer_config.json").read_text()) == {"do_lower_case": False}
    predictor = Predictor.from_checkpoint(tmp_path / "ours")
    assert predictor.encode(["The cat"])[0].vectors_WD.shape == (2, 16)


def test_a_stated_case_counts(tmp_path):
    release = with_pieces(tmp_path)
    (release / "tokenizer_config.json").write_text('{"do_lower_case": true}', encoding="utf-8")
    assert bring(release, tmp_path / "ours") == 0
    assert list(from_pretrained(tmp_path / "ours").tokenizer().encode("The cat").ids) == [2, 6, 7, 3]
    assert json.loads((tmp_path / "ours" / "tokenizer_config.json").read_text()) == {"do_lower_case": True}
    (release / "tokenizer_config.json").write_text('{"max_len": 512}', encoding="utf-8")
    with pytest.raises(ValueError, match="expected do_lower_case"):  # their code takes such a file as lower-cased
        from_pretrained(release).tokenizer()


def test_of_a_bert_a_bare_vocabulary_stays_an_error(tmp_path):
    with pytest.raises(ValueError, match="expected do_lower_case"):
        converter_of("bert").open_tokenizer(with_pieces(tmp_path))


def test_on_roberta_the_two_files_are_enough(tmp_path, log_lines):
    write_release(tmp_path / "release", "roberta")
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "T", "h", "e", "\u0120", "c", "a", "t", "Th", "The"]
    content = json.dumps({token: index for index, token in enumerate(tokens)})
    (tmp_path / "release" / "vocab.json").write_text(content, encoding="utf-8")
    (tmp_path / "release" / "merges.txt").write_text("#version: 0.2\nT h\nTh e\n", encoding="utf-8")
    assert bring(tmp_path / "release", tmp_path / "ours") == 0
    assert not any("tokenizer" in line or "cased" in line for line in log_lines.lines)
    assert take(tmp_path / "ours", tmp_path / "back") == 0
    for name in ("ours", "back"):
        tokenizer = from_pretrained(tmp_path / name).tokenizer()
        assert tokenizer.family == "roberta"
        assert list(tokenizer.encode("The cat").ids) == [0, 13, 8, 9, 10, 11, 2]

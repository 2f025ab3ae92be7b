"""Tests lengths of texts, by hand and on whole sentences, and parameter counts against the paper's figures."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_char2subword import spelled
from small_run import python
from subword_cases import bring, failure, write_release

from charlm.convert.__main__ import main as convert
from charlm.core import checkpoint as checkpoints
from charlm.core.sharding import path_name
from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig
from charlm.families.subword.bert import Bert, BertConfig
from charlm.statistics import Lengths, read_sentences, text_statistics
from charlm.statistics.__main__ import main
from charlm.statistics.lengths import sample
from charlm.statistics.movement import Moved, movements, table
from charlm.statistics.parameters import by_kind, count, open_model
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import RulesSplitter

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIALS, "the", "cat", "##s", "sat", "s", "##a", "##t", ".", "house"]
SENTENCES = [["the", "cats", "sat", "."], ["The", "cat", "&"], [], ["the"]]


@pytest.fixture
def vocab(tmp_path):
    """A WordPiece vocabulary that lower-cases nothing."""
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def tokenizer(vocab):
    return SubwordTokenizer.load(vocab, lowercase=False)


def run(capsys, *arguments):
    """Returns what a successful command printed."""
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_how_far_parameters_moved(capsys):
    before = {"a": {"layer_0": {"kernel": np.zeros((2, 2))}, "layer_1": {"kernel": np.ones((2, 2))}}, "old": np.ones(1)}
    after = {"a": {"layer_0": {"kernel": np.full((2, 2), 3.0)}, "layer_1": {"kernel": np.ones((2, 2))}}, "new": 1.0}
    before["table"], after["table"] = np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])
    found = movements(before, after)
    assert found == [Moved("a/kernel", 0, 6.0, 4), Moved("a/kernel", 1, 0.0, 4), Moved("table", -1, 5.0, 2)]
    assert table(found).splitlines() == [
        "| parameters | - | 0 | 1 |",
        "|---|---:|---:|---:|",
        "| a/kernel |  | 6 | 0 |",
        "| table | 5 |  |  |",
    ]
    with pytest.raises(ValueError, match="no parameter is in both: a/layer_0/kernel and others, new"):
        movements(before, {"new": 1.0})
    with pytest.raises(ValueError, match=r"table is \[1, 2\] before, \[2\] after"):
        movements(before, {"table": np.zeros(2)})
    assert main(["--model=x", "--before=y", "--table"]) == 1
    assert "--before compares two models: leave --data and --table out" in capsys.readouterr().err


def test_the_command_says_how_far_parameters_moved(release, capsys):
    lines = run(capsys, "--model", release, "--before", release, "--json").splitlines()
    found = [json.loads(line) for line in lines]
    assert {one["distance"] for one in found} == {0.0}
    assert [one["layer"] for one in found if one["kind"].endswith("embed/token/embedding")] == [None]
    assert {one["layer"] for one in found if one["kind"].endswith("attention/query/kernel")} > {0}


def test_statistics_by_hand(tokenizer):
    found = text_statistics(SENTENCES, tokenizer)
    assert (found.sentences, found.words, found.types, found.subwords) == (3, 8, 7, 9)  # cat ##s; The, & are unknown
    assert found.words_per_sentence == Lengths(8 / 3, math.sqrt(14 / 9), 1, 4)
    assert found.subwords_per_sentence == Lengths(3, math.sqrt(8 / 3), 1, 5)
    assert (found.subwords_per_word, found.types_per_word) == (9 / 8, 7 / 8)
    assert found.added_tokens == pytest.approx(1 / 8)
    assert (found.cut, found.entries, found.unknown) == (1 / 8, 5 / 8, 2 / 8)
    assert (found.cut_types, found.entries_types, found.unknown_types) == (1 / 7, 4 / 7, 2 / 7)


def test_an_entry_is_what_the_tokenizer_reads(vocab):
    found = text_statistics(SENTENCES, SubwordTokenizer.load(vocab, lowercase=True))
    assert (found.entries, found.unknown) == (6 / 8, 1 / 8)


def byte_level(folder, words):
    """Returns a small byte-level vocabulary."""
    from tokenizers import ByteLevelBPETokenizer

    model = ByteLevelBPETokenizer()
    model.train_from_iterator([" ".join(words)], 270, show_progress=False, special_tokens=["<|endoftext|>"])
    model.save_model(str(folder))
    return SubwordTokenizer.load(folder, family="gpt2")


@pytest.mark.parametrize("kind", ["wordpiece", "byte-level"])
def test_words_alone_give_what_whole_sentences_do(kind, tokenizer, tmp_path):
    words = ["the", "cats", "sat", "on", "a", "häuschen", ".", "हिन्दी", "\x00", "the-cat", "s", "houses"]
    (tmp_path / "bpe").mkdir()
    used = tokenizer if kind == "wordpiece" else byte_level(tmp_path / "bpe", words)
    rng = np.random.default_rng(0)
    sentences = [[words[i] for i in rng.integers(0, len(words), rng.integers(1, 9))] for _ in range(5000)]
    lengths_S = np.array([len(item.ids) - sum(item.special) for item in used.encode_words_batch(sentences)])
    found = text_statistics(iter(sentences), used)
    assert found.subwords_per_sentence == Lengths.of(lengths_S)
    assert found.subwords == lengths_S.sum()


def test_samples_have_so_many_words_and_are_drawn_evenly():
    sentences = [[str(n)] * (1 + n % 3) for n in range(300)]
    for seed in range(3):
        found = sample(iter(sentences), 50, seed)
        assert 50 <= sum(map(len, found)) < 53
        assert found == sorted(found, key=sentences.index)
        assert found == sample(sentences, 50, seed)
    places = [int(words[0]) for seed in range(40) for words in sample(sentences, 50, seed)]
    assert abs(np.mean(places) - 149.5) < 15
    assert sample(sentences, 10**6) == sentences
    with pytest.raises(ValueError, match="a sample of 0 words"):
        sample(sentences, 0)


def test_the_table_of_xrayemb(vocab, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("the cats sat.\nthe cat\n\n", encoding="utf-8")
    arguments = ("--model", vocab, "--lowercase=no", "--data", tmp_path / "a.txt", "--table", "--splitter=spaces")
    lines = run(capsys, *arguments).splitlines()
    assert lines[0] == "| text | instances | words | types | TTR | multitoks | token mass increase |"
    # the(2) cats=cat ##s, "sat."=sat . ; five words, four types, two of them in two pieces
    assert lines[2:] == [f"| {tmp_path / 'a.txt'} | 2 | 5 | 4 | 0.800 | 50.00% | 40.00% |"]
    (row,) = run(capsys, *arguments, "--sample=2", "--seed=1").splitlines()[2:]
    assert row.split(" | ")[1:3] in (["1", "3"], ["1", "2"])
    for wrong, message in ((["--json"], "--table: expected --data, and no --json"), (["--sample=0"], "--sample=0")):
        assert message in failure(capsys, main([*map(str, arguments), *wrong]))


def test_no_words_are_an_error(tokenizer):
    with pytest.raises(ValueError, match="no words"):
        text_statistics([[], []], tokenizer)


CONLLU = "# text = im Haus\n1-2\tim" + "\t_" * 8 + "\n1\tin" + "\t_" * 8 + "\n2\tdem" + "\t_" * 8 + "\n\n"


@pytest.mark.parametrize(
    ("name", "content", "options", "sentences"),
    [
        ("a.txt", "One. Two three!\nFour", {}, [["One", "."], ["Two", "three", "!"], ["Four"]]),
        ("a.jsonl", '{"body": "One two"}\n', {"text": "body"}, [["One", "two"]]),
        ("a.conll", "One\tO\ntwo\tB-X\n\nThree\tI-Y\n", {}, [["One", "two"], ["Three"]]),
        ("a.data", "O\tOne\nO\ttwo\n", {"format": "columns", "word": 1}, [["One", "two"]]),
        ("a.conllu", CONLLU.replace("_\n", "_\n"), {}, [["in", "dem"]]),
        ("a.tsv", "id\tquery\n1\tOne two.\n", {"format": "table", "text": "query"}, [["One", "two", "."]]),
        ("a.csv", "1,One\n2,two\n", {"format": "table", "text": "1"}, [["One"], ["two"]]),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_files(tmp_path, name, content, options, sentences, zipped):
    path = tmp_path / (name + ".gz" * zipped)
    path.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    assert [list(words) for words in read_sentences(str(path), RulesSplitter(), **options)] == sentences


def test_skipped_documents_are_said(tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n" * 9 + b"b\xffd\n")
    assert len([*read_sentences(str(path), RulesSplitter())]) == 9
    assert capsys.readouterr().err == f"{path}: skipped 1: invalid UTF-8\n"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.tsv", {}, "say --format=table or columns"),
        ("a.txt", {"format": "connlu"}, "format='connlu': expected one of auto, .*conllu"),
        ("a.conll", {"word": 3}, "line has 1 columns; expected at least 4"),
        ("a.tsv", {"format": "table", "text": "query"}, "query"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, options, message):
    path = tmp_path / name
    path.write_text("One\nTwo\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        [*read_sentences(str(path), RulesSplitter(), **options)]


def shapes_of(module, *inputs):
    """Returns the shapes of a module's parameters by name."""
    params = jax.eval_shape(module.init, jax.random.key(0), *inputs)["params"]
    return {path_name(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


def test_the_figures_of_the_paper(tokenizer):
    """Section 5: 177M parameters, 91M in the table, more than half; a module of 50M, 45 % less than the table."""
    table = shapes_of(Bert(BertConfig(vocab_size=119547, pooler=True)), jnp.zeros((1, 2), jnp.int32))
    module = shapes_of(Char2Subword(Char2SubwordConfig()), jnp.zeros((1, 8), jnp.int32))
    alone = count("bert", table, tokenizer)
    assert (alone.total, alone.table, alone.module, alone.kept) == (177_853_440, 91_812_096, 0, 0)
    assert alone.table_share == pytest.approx(0.5162, abs=1e-4)
    assert "saved" not in alone.to_dict()
    both = count(
        "char2subword",
        {f"bert/{name}": shape for name, shape in table.items()} | {f"char2subword/{n}": s for n, s in module.items()},
        tokenizer,
    )
    assert both.total == alone.total + both.module
    assert both.kept == 5 * 768
    found = both.to_dict()
    assert found["table_share"] == alone.table_share
    assert found["saved"] == 91_812_096 - 5 * 768 - both.module
    assert found["saved_share_of_table"] == pytest.approx(0.447, abs=1e-3)
    assert found["saved_share_of_model"] == pytest.approx(0.231, abs=1e-3)


def test_a_module_without_a_table_saves_nothing():
    parameters = count("char2subword", {"char2subword/table/embedding": (9, 4)}, None)
    assert parameters.to_dict() == {"family": "char2subword", "total": 36, "table": 0, "table_share": 0.0}
    assert str(parameters) == "36 parameters (char2subword)"


def test_a_table_that_was_left_out_is_counted_as_it_was(tmp_path, capsys):
    assert convert(["export", f"--checkpoint={spelled()}", f"--output={tmp_path / 'free'}", "--table-free"]) == 0
    whole, free = open_model(spelled()).parameters, open_model(tmp_path / "free").parameters
    shapes = checkpoints.parameter_shapes(checkpoints.find(spelled()))
    head = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("head/"))
    assert (free.table, free.module, free.kept, free.saved) == (whole.table, whole.module, whole.kept, whole.saved)
    assert free.total == whole.total - head - free.left_out
    assert free.left_out == whole.table - whole.kept > 0
    assert free.table_share == pytest.approx(whole.table / (whole.total - whole.module - head))
    assert f"{whole.table:,} were in the table of subwords, which was left out" in run(
        capsys, "--model", tmp_path / "free"
    )


@pytest.fixture
def release(tmp_path):
    """A BERT as Hugging Face has it, with a vocabulary of its own."""
    folder = write_release(tmp_path / "theirs", "bert")
    (folder / "sentencepiece.bpe.model").unlink()
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}', encoding="utf-8")
    return folder


def test_a_release_and_its_import_have_the_same_size(release, tmp_path):
    assert bring("bert", release, tmp_path / "ours") == 0
    (theirs_tokenizer, theirs), (our_tokenizer, ours) = open_model(release), open_model(tmp_path / "ours")
    assert ours == theirs
    assert ours.total > ours.table > 0
    assert theirs_tokenizer.digest() == our_tokenizer.digest()


def test_a_char2subword_and_a_file(tokenizer, vocab, tmp_path, capsys):
    folder = tmp_path / "model"
    params = {
        "bert": {"embed": {"token": {"embedding": np.zeros((14, 4))}, "norm": {"scale": np.zeros(6)}}},
        "char2subword": {"out": {"kernel": np.zeros((3, 4))}},
    }
    metadata = {"family": "char2subword", "backbone": "bert", "model": {}, "head": "encoder"}
    checkpoints.save_params(folder, params, metadata)
    tokenizer.save(folder)
    file = tmp_path / "a.txt"
    file.write_text("the cats sat.\n", encoding="utf-8")
    model, text = map(json.loads, run(capsys, "--model", folder, "--data", file, "--json").splitlines())
    assert model["vocabulary"] == 14
    assert model["parameters"] == {
        "family": "char2subword",
        "total": 74,
        "table": 56,
        "table_share": 56 / 62,
        "module": 12,
        "kept": 20,
        "left_out": 0,
        "saved": 24,
        "saved_share_of_table": 24 / 56,
        "saved_share_of_model": 24 / 62,
    }
    assert text["file"] == str(file)
    assert text["words_per_sentence"] == {"mean": 4, "deviation": 0, "shortest": 4, "longest": 4}
    assert {*text} - {"file"} == {f.name for f in dataclasses.fields(text_statistics(SENTENCES, tokenizer))}
    shown = run(capsys, "--model", folder, "--data", file)
    assert "74 parameters (char2subword)" in shown
    assert "12 in the module: in full mode 24 fewer than with the table, 42.9% of it and 38.7% of the model" in shown
    assert "4 words, 4.0 ± 0.0 [4, 4] a sentence; 4 distinct, 1.000 a word" in shown
    assert "1.250 a word: +25.0% tokens" in shown
    assert "words cut into several pieces: 25.0% (25.0% of the distinct words)" in shown


def test_globs_and_a_tokenizer_alone(vocab, tmp_path, capsys):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"text": "the cat"}\n', encoding="utf-8")
    lines = run(capsys, "--model", vocab, "--lowercase=no", "--data", tmp_path / "*.jsonl", "--json").splitlines()
    assert [json.loads(line).get("file", "") for line in lines] == ["", *(f"{tmp_path}/{name}.jsonl" for name in "ab")]
    assert json.loads(lines[0]) == {"model": str(vocab), "vocabulary": 14, "parameters": None}


@pytest.fixture
def hlm(tmp_path):
    """A checkpoint of a family without subwords."""
    checkpoints.save_params(tmp_path / "hlm", {"hlm": {"scale": np.zeros(7)}}, {"family": "hlm", "model": {}})
    return tmp_path / "hlm"


def test_mistakes_are_one_line(vocab, tmp_path, hlm, capsys):
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    (tmp_path / "bad.conll").write_text("a b\nc\n", encoding="utf-8")
    (tmp_path / "nothing").mkdir()
    model = f"--model={vocab}"
    for arguments, message in (
        (["--model", tmp_path / "none"], "does not exist"),
        (["--model", tmp_path / "nothing"], "nothing"),
        ([model], "lowercase"),
        ([model, "--lowercase=no"], "a tokenizer alone: expected a model, or --data"),
        ([model, "--lowercase=no", "--data", tmp_path / "none.txt"], "--data: .*does not exist"),
        ([model, "--lowercase=no", "--data", tmp_path / "empty.txt"], "empty.txt"),
        ([model, "--lowercase=no", "--data", tmp_path / "bad.conll", "--word=1"], "bad.conll:2: line has 1 columns"),
        ([model, "--splitter=rule"], "did you mean rules"),
        (["--model", hlm, "--data", tmp_path / "bad.conll"], "reads characters: it has no subwords"),
    ):
        line = failure(capsys, main([str(argument) for argument in arguments]))
        assert re.search(message, line), line


def test_an_hlm_has_parameters(hlm, capsys):
    found = json.loads(run(capsys, "--model", hlm, "--json"))
    assert found["vocabulary"] is None
    assert found["parameters"] == {"family": "hlm", "total": 7, "table": 0, "table_share": 0.0}
    assert run(capsys, "--model", hlm) == f"{hlm}\n  7 parameters (hlm)\n"


def test_help_needs_no_jax():
    start = "runpy.run_module('charlm.statistics', run_name='__main__')"
    end = "assert 'jax' not in sys.modules and 'tokenizers' not in sys.modules"
    done = python("-c", f"import sys, runpy; sys.argv = ['x', '--help']\ntry:\n {start}\nfinally:\n {end}")
    assert done.returncode == 0, done.stderr
    assert "Table 5" in done.stdout


def test_parameters_are_counted_by_kind():
    shapes = {
        "bert/embed/token/embedding": (10, 4),
        "bert/encoder/layer_0/ffn_in/kernel": (4, 8),
        "head/output_kernel": (4, 10),
        "head/encoder/positions/embedding": (3, 4),
    }
    assert by_kind(shapes) == {"total": 124, "tables": 52, "head": 40, "body": 32}

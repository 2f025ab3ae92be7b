"""Tests the command line of the predictor: JSON lines as output, mistakes in one line."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys

import pytest
from damage import without_checksums
from small_run import ROOT, WORDS, python
from tiny_models import release

import charlm
from charlm.convert.__main__ import main as convert
from charlm.core.checkpoint import files_of
from charlm.predict import Predictor, main


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs the command line; returns status, JSON lines and what went to standard error."""

    def run(name, checkpoint, *arguments, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = main([name, f"--checkpoint={checkpoint}", *arguments])
        captured = capsys.readouterr()
        return status, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return run


@pytest.fixture(scope="module")
def kept():
    """Models by path, loaded and compiled once for all tests that only ask them."""
    return {}


@pytest.fixture
def ask_kept(command, kept, monkeypatch):
    """Runs a command on a model that stays as it is."""

    def run(name, checkpoint, *arguments, stdin=""):
        with monkeypatch.context() as patch:
            load = Predictor.from_checkpoint
            once = lambda path, **options: (
                kept.get((path, *options.items())) or kept.setdefault((path, *options.items()), load(path, **options))
            )
            patch.setattr(Predictor, "from_checkpoint", once)
            return command(name, checkpoint, *arguments, stdin=stdin)

    return run


@pytest.fixture
def ask(trained, ask_kept):
    """Runs a command on the finished run."""
    return lambda name, *arguments, stdin="": ask_kept(name, trained.workdir, *arguments, stdin=stdin)


def test_encode_arguments(ask):
    status, lines, errors = ask("encode", "Naïve cat.", "a")
    assert (status, errors) == (0, "")
    assert [line["text"] for line in lines] == ["Naïve cat.", "a"]
    assert [(w["word"], w["start"], w["end"]) for w in lines[0]["words"]] == [
        ("Naïve", 0, 5),
        ("cat", 6, 9),
        (".", 9, 10),
    ]
    assert {len(word["vector"]) for word in lines[0]["words"]} == {len(lines[0]["sentence"])} == {16}
    mean = [sum(column) / 3 for column in zip(*(word["vector"] for word in lines[0]["words"]), strict=True)]
    assert lines[0]["sentence"] == pytest.approx(mean, abs=1e-5)


def test_encode_lines_of_standard_input(ask):
    _, by_argument, _ = ask("encode", "--sentence-only", "a cat", "")
    status, lines, _ = ask("encode", "--sentence-only", stdin="a cat\n\n")
    assert status == 0
    assert lines == by_argument
    assert [set(line) for line in lines] == [{"text", "sentence"}] * 2


def test_encode_says_how_many_words_were_there_already(command, trained):
    lines = "a cat\n" * 200  # more than are read at a time
    status, _, errors = command("encode", trained.workdir, "--stats", stdin=lines)
    assert status == 0
    assert re.fullmatch(
        r"word cache: \d+ of \d+ distinct words read were there \(\d+\.\d %\), it holds 4 of .*\n", errors
    )
    assert not errors.startswith("word cache: 0")


def test_fill_mask(ask):
    status, lines, errors = ask("fill-mask", "--any", "--top=3", stdin="the [MASK] sat\na [MASK:4] and [MASK:2]\n")
    assert (status, errors) == (0, "")
    assert [[len(gap) for gap in line["fills"]] for line in lines] == [[3], [3, 3]]
    assert [{len(fill["word"]) for fill in gap} for gap in lines[1]["fills"]] == [{4}, {2}]
    assert all(set(fill) == {"word", "score"} for gap in lines[1]["fills"] for fill in gap)
    _, lines, _ = ask("fill-mask", "--any", "--length=4", "a [MASK] sat")
    assert {len(fill["word"]) for fill in lines[0]["fills"][0]} == {4}
    assert len(lines[0]["fills"][0]) == 5


def test_fill_mask_from_a_list_of_words(ask, tmp_path):
    (tmp_path / "words.txt").write_text("cat\ndog\nhouse\n", encoding="utf-8-sig")
    _, lines, _ = ask("fill-mask", f"--words={tmp_path / 'words.txt'}", "the [MASK] sat")
    assert sorted(fill["word"] for fill in lines[0]["fills"][0]) == ["cat", "dog", "house"]


def written(lines):
    return [fill["word"] for fill in lines[0]["fills"][0]]


def test_fill_mask_ranks_the_words_of_the_training_text(ask, command, trained, tmp_path):
    """They lie with every checkpoint; a checkpoint from before that says that it has none."""
    words = (trained.workdir / "known_words.txt").read_text().split()
    # Each occurs often; "3.14" is no word, nor is what is left of one of more than the seven characters that are read.
    assert set(words) == {word for word in WORDS if word.isalpha() and len(word) <= 7}
    status, lines, errors = ask("fill-mask", "--top=9", "the [MASK] sat")
    assert (status, errors) == (0, "")
    assert len(written(lines)) == 9
    assert set(written(lines)) <= set(words)
    _, free, errors = ask("fill-mask", "--top=9", "--any", "the [MASK] sat")
    assert not set(written(free)) <= set(words)
    assert errors == ""
    alone = shutil.copytree(trained.workdir / "checkpoints" / "12", tmp_path / "12")
    assert command("fill-mask", alone, "--top=9", "the [MASK] sat")[1] == lines
    (files_of(alone) / "known_words.txt").unlink()
    without_checksums(alone)  # nor were there any then
    status, old, errors = command("fill-mask", alone, "--top=9", "the [MASK] sat")
    assert (status, old) == (0, free)
    assert errors == f"{alone} keeps no known words: any spelling is ranked; --words=FILE names some\n"


def test_known_words_are_exported_and_imported(trained, command, tmp_path):
    source = Predictor.from_checkpoint(trained.workdir)
    convert(["export", f"--checkpoint={trained.workdir}", f"--output={tmp_path / 'theirs'}"])
    convert(["import", f"--input={tmp_path / 'theirs'}", f"--output={tmp_path / 'ours'}"])
    charlm.from_pretrained(trained.workdir).save_pretrained(tmp_path / "saved")
    for folder in (tmp_path / "ours", tmp_path / "saved"):
        copy = Predictor.from_checkpoint(folder)
        assert len(copy.words) == len(source.words) > 20
        assert copy.fill_mask("the [MASK:3] sat") == source.fill_mask("the [MASK:3] sat")
    with pytest.raises(ValueError, match="any_spelling=True ranks no list of words"):
        source.fill_mask("the [MASK]", known=["cat"], any_spelling=True)


def test_on_a_terminal_fills_are_a_table(trained, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert (
        main(["fill-mask", f"--checkpoint={trained.workdir}", "--top=2", "the [MASK:3] sat", "[MASK] and [MASK:6]"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "the [MASK:3] sat"
    assert all(re.fullmatch(r"  0\.\d{3}  \w{3}", line) for line in lines[1:3])
    assert [lines[3], lines[4], lines[7:]] == [
        "[MASK] and [MASK:6]",
        "  gap 1",
        ["  gap 2", "  no word that is known fits"],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no gap", 'no "[MASK]" in the text'),
        ("[MASK:30]", "length=30: the model holds words of 1 to 7 characters"),
        ("a [MASK:99999999999999] b", "length=99999999999999: the model holds words of 1 to 7 characters"),
        (f"a [MASK:{'9' * 5000}] b", f"[MASK:{'9' * 18}...]: expected a length of at most 18 digits"),
    ],
)
def test_a_gap_that_cannot_be_filled_is_one_line_and_the_others_are_filled(ask, text, message):
    status, lines, errors = ask("fill-mask", "--top=1", text, "the [MASK] sat")
    assert (status, [line["text"] for line in lines]) == (1, [text, "the [MASK] sat"])
    assert set(lines[0]) == {"text", "error"}
    assert message in lines[0]["error"]
    assert errors == f"error: text 1: {lines[0]['error']}\n"
    assert len(lines[1]["fills"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--length=long", "[MASK]"], "--length=long: expected a positive number of characters"),
        ([f"--length={'9' * 5000}", "[MASK]"], "expected a positive number of characters"),
        (["--top=0", "[MASK]"], "--top=0: expected at least 1"),
        (["--top=1000000000000", "[MASK]"], "--top=1000000000000: expected at most 10000"),
        (["--words=nowhere.txt", "[MASK]"], "--words=nowhere.txt cannot be read"),
    ],
)
def test_mistakes_are_one_line(ask, arguments, message):
    status, lines, errors = ask("fill-mask", *arguments)
    assert (status, lines) == (1, [])
    assert errors.startswith("error: ")
    assert message in errors
    assert errors.count("\n") == 1


def test_missing_checkpoint_is_one_line(tmp_path):
    done = python("-m", "charlm.predict", "encode", "--checkpoint=nowhere", "a", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "nowhere" in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_needs_no_jax(tmp_path):
    code = "import sys, charlm.predict as p\ntry: p.main(['encode', '--help'])\nexcept SystemExit: print(*sys.modules)"
    done = python("-c", code, cwd=tmp_path)
    assert "--sentence-only" in done.stdout
    assert not {"jax", "flax", "orbax", "tokenizers"} & set(done.stdout.split())


# ---- Subword models ----


@pytest.fixture
def ask_tiny(ask_kept):
    """Runs a command on a tiny model of a family."""
    return lambda family, name, *arguments, stdin="": ask_kept(name, release(family), *arguments, stdin=stdin)


def test_a_hugging_face_folder_is_asked_like_a_run(ask_tiny):
    status, lines, errors = ask_tiny("bert", "encode", "Naïve birds.", "")
    assert (status, errors) == (0, "")
    assert [(w["word"], w["start"], w["end"]) for w in lines[0]["words"]] == [
        ("Naïve", 0, 5),
        ("birds", 6, 11),
        (".", 11, 12),
    ]
    assert (lines[1]["words"], len(lines[1]["sentence"])) == ([], 24)
    _, (pieces,), _ = ask_tiny("bert", "encode", "--unit=pieces", "birds running")
    assert [(p["piece"], p["start"], p["end"]) for p in pieces["pieces"][:2]] == [("bird", 0, 4), ("##s", 4, 5)]
    assert {len(piece["vector"]) for piece in pieces["pieces"]} == {24}
    _, (fills,), _ = ask_tiny("roberta", "fill-mask", "--top=3", "She had <mask> birds.")
    assert [len(gap) for gap in fills["fills"]] == [3]


def test_known_words_that_are_left_out_are_counted(ask_tiny, tmp_path):
    (tmp_path / "words.txt").write_text("birds\nrunning 🧿\n")
    _, (line,), errors = ask_tiny("bert", "fill-mask", f"--words={tmp_path / 'words.txt'}", "a [MASK]")
    assert sorted(fill["word"] for fill in line["fills"][0]) == ["birds", "running"]
    assert "1 of 3 words are too long for the model or hold characters that it does not know" in errors


def test_score(ask_tiny):
    predictor = Predictor.from_checkpoint(release("gpt2"))
    texts = [f"{'birds ' * (n % 4)}run" for n in range(11)]
    status, lines, errors = ask_tiny("gpt2", "score", "--batch-size=2", stdin="\n".join(texts) + "\n")
    assert (status, errors) == (0, "")
    assert [line["text"] for line in lines] == texts
    for line, score in zip(lines, predictor.score(texts), strict=True):
        assert line["log_prob"] == pytest.approx(score.log_prob, abs=1e-4)
        assert line["bits_per_char"] == pytest.approx(score.bits_per_char, abs=1e-4)
        assert [piece["piece"] for piece in line["pieces"]] == score.pieces
        assert [(piece["start"], piece["end"]) for piece in line["pieces"]] == score.offsets
        assert sum(piece["log_prob"] for piece in line["pieces"]) == pytest.approx(score.log_prob, abs=1e-4)
    _, (line,), _ = ask_tiny("gpt2", "score", "--no-start", "birds run")
    assert line["pieces"][0]["log_prob"] is None
    _, (line,), _ = ask_tiny("gpt2", "score", "--total-only", "birds run")
    assert set(line) == {"text", "log_prob", "bits_per_char"}


def test_generate(ask_tiny):
    predictor = Predictor.from_checkpoint(release("gpt2"))
    status, lines, errors = ask_tiny("gpt2", "generate", "--max-new=5", "She", "The birds")
    assert (status, errors) == (0, "")
    for line, one in zip(lines, predictor.generate(["She", "The birds"], 5), strict=True):
        assert (line["generated"], line["finished"]) == (one.text, one.finished)
        assert line["log_prob"] == pytest.approx(float(one.log_probs_T.sum()), abs=1e-4)
    options = ["--max-new=5", "--temperature=1", "--top-k=50", "--top-p=0.9", "--seed=3", "--batch-size=2"]
    _, lines, _ = ask_tiny("gpt2", "generate", *options, stdin="She\n" * 5)
    want = predictor.generate(["She"] * 5, 5, temperature=1.0, top_k=50, top_p=0.9, seed=3, batch_size=2)
    assert [line["generated"] for line in lines] == [one.text for one in want]  # whatever lines are read together
    assert len({one.text for one in want}) > 1


def test_a_bad_text_does_not_lose_the_others(ask_tiny):
    long = "birds " * 60
    status, lines, errors = ask_tiny("gpt2", "generate", "--max-new=5", stdin=f"She\n{long}\nThe\n")
    assert (status, [line["text"] for line in lines]) == (1, ["She", long, "The"])
    assert ["generated" in line for line in lines] == [True, False, True]
    assert errors.startswith("error: line 2: max_new=5: the model has room for 40 tokens")
    assert errors.count("\n") == 1
    status, lines, errors = ask_tiny("bert", "encode", "a", "b\udcff", "c")
    assert (status, [line["text"] for line in lines]) == (1, ["a", "b\udcff", "c"])
    assert lines[1] == {"text": "b\udcff", "error": "expected a text in UTF-8"}
    assert errors == "error: text 2: expected a text in UTF-8\n"


@pytest.mark.parametrize("name", ["encode", "score", "generate", "fill-mask"])
@pytest.mark.parametrize("error", [MemoryError("no room"), TypeError("a defect\nof ours"), ValueError("out of range")])
def test_whatever_a_text_raises_the_others_are_answered(ask_tiny, monkeypatch, name, error):
    family = "bert" if name == "fill-mask" else "gpt2"
    model = type(Predictor.from_checkpoint(release(family)))
    method = "fill_masks" if name == "fill-mask" else name
    answer = getattr(model, method)

    def fails(self, texts, *args, **options):
        if "[MASK] bad" in texts:
            raise error
        return answer(self, texts, *args, **options)

    monkeypatch.setattr(model, method, fails)
    texts = ["[MASK] a", "[MASK] bad", "[MASK] b"]
    options = ["--max-new=2"] if name == "generate" else []
    status, lines, errors = ask_tiny(family, name, *options, stdin="\n".join(texts) + "\n")
    assert (status, [line["text"] for line in lines]) == (1, texts)
    assert [set(line) == {"text", "error"} for line in lines] == [False, True, False]
    kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
    assert errors == f"error: line 2: {kind}{' '.join(str(error).split())}\n"


def test_standard_input_that_is_no_utf8_is_named_by_its_line(capsys, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO("naïve\n".encode() + b"\xff\nbirds\n"), encoding="ascii")
    monkeypatch.setattr("sys.stdin", stdin)
    status = main(["encode", f"--checkpoint={release('bert')}", "--sentence-only"])
    captured = capsys.readouterr()
    assert [json.loads(line)["text"] for line in captured.out.splitlines()] == ["naïve", "\udcff", "birds"]
    assert (status, captured.err) == (1, "error: line 2: expected a text in UTF-8\n")


@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        ("bert", ["score", "a"], "a model of the kind BERT scores no texts: it can encode, fill-mask"),
        (
            "gpt2",
            ["fill-mask", "[MASK]", "a [MASK]"],
            "a model of the kind GPT-2 fills no gaps: it can encode, score, generate",
        ),
        ("gpt2", ["generate", "--top-p=2", "a", "b"], "top_p=2.0: expected a probability from 1e-06 to 1"),
        ("gpt2", ["generate", "--max-new=0", "a", "b"], "max_new=0: expected a whole number from 1 on"),
        ("gpt2", ["generate", f"--max-new={10**21}", "a", "b"], "positions, prompt included"),
        (
            "gpt2",
            ["generate", f"--top-k={10**11}", "a", "b"],
            "top_k=100000000000: expected a whole number from 0",
        ),
        ("gpt2", ["generate", "--temperature=1e-50", "a", "b"], "temperature=1e-50: expected 0 (always the likeliest"),
        (
            "gpt2",
            ["generate", "--top-p=1e-50", "a", "b"],
            "top_p=1e-50: expected a probability from 1e-06",
        ),
        ("gpt2", ["generate", "--seed=-1", "a", "b"], "seed=-1: expected a whole number from 0 to 4294967295"),
        ("bert", ["fill-mask", "--length=²", "[MASK]"], "--length=²: expected a positive number of characters"),
        ("bert", ["fill-mask", "--length=0", "[MASK]", "[MASK]"], "--length=0: expected a positive number"),
        ("gpt2", ["score", "--batch-size=0", "a", "b"], "--batch-size=0: expected at least 1"),
        ("bert", ["encode", "--batch-size=0", "a", "b"], "--batch-size=0: expected at least 1"),
        ("bert", ["encode", "--stats", "a", "b"], "--stats: a BERT keeps no words in a cache"),
        ("bert", ["fill-mask", "--any", "[MASK]"], "--any: a BERT spells no words"),
    ],
)
def test_what_cannot_be_asked_is_said_once(ask_tiny, family, arguments, message):
    status, lines, errors = ask_tiny(family, *arguments)
    assert (status, lines) == (1, [])
    assert errors.startswith("error: ")
    assert message in errors
    assert errors.count("\n") == 1


def test_hlm_has_no_pieces(ask):
    status, lines, errors = ask("encode", "--unit=pieces", "a", "b")
    assert (status, lines) == (1, [])
    assert errors == "error: unit='pieces': an HLM reads characters and has no pieces; expected 'words'\n"


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m charlm.predict encode --checkpoint={release('bert')} a b c | true"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")

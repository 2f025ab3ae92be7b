"""Tests the cloze test: what is left out, what models read, scores by hand, reports, and the command."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_models import release

import charlm
from charlm.evaluate_cloze import measure as measuring
from charlm.evaluate_cloze.__main__ import main
from charlm.evaluate_cloze.measure import Cloze, measure
from charlm.evaluate_cloze.questions import Question, candidates_in, is_candidate, questions_of, read_candidates
from charlm.evaluate_cloze.report import report_of, write_report
from charlm.evaluate_cloze.settings import ClozeSettings
from charlm.text.noise import Noise, Noiser

SENTENCES = (
    "The cat slept near every tree.",
    "Every Tree stood near that town.",
    "A dog ran to that town, then slept.",
    "The old cat sat on a mat.",  # no word of four letters
)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return path


class Reader:
    """A rewriter that notes what it reads and writes capitals."""

    def __init__(self):
        self.seen = []

    def text(self, text, key, protected=()):
        self.seen.append((text, key))
        return SimpleNamespace(text=text.upper())


# ---- Questions ----


@pytest.mark.parametrize(
    ("word", "expected"),
    [("slept", True), ("that", True), ("cat", False), ("Tree", False), ("don't", False), ("naïve", True),
     ("x86y", False), ("كتاب", True), ("ΣΟΦΟΣ", False)],
)  # fmt: skip
def test_candidates_are_longer_words_without_capitals(word, expected):
    assert is_candidate(word) is expected


def test_the_commonest_words_come_first():
    assert candidates_in(SENTENCES) == ["near", "slept", "that", "town", "every", "stood", "then", "tree"]
    assert candidates_in(SENTENCES, most=2) == ["near", "slept"]


def test_each_sentence_with_a_candidate_is_a_question():
    found = list(questions_of(SENTENCES, ["near", "that", "slept"], seed=0))
    assert [one.sentence for one in found] == list(SENTENCES[:3])
    assert all(one.word in ("near", "that", "slept") for one in found)
    assert found == list(questions_of(SENTENCES, ["slept", "that", "near"], seed=0))
    with_gap = [SENTENCES[0], "[MASK] slept.", SENTENCES[1]]  # its own gap would be asked for, too
    assert list(questions_of(with_gap, ["slept"], seed=0)) == [Question(SENTENCES[0], 8, 13)]
    drawn = {tuple(one.word for one in questions_of(SENTENCES, candidates_in(SENTENCES), seed)) for seed in range(9)}
    assert len(drawn) > 1


def test_nobody_reads_the_word_that_is_left_out():
    question, reader = Question("The cat slept near town.", 8, 13), Reader()
    assert question.read_by([], "k") == "The cat [MASK:5] near town."
    assert question.read_by([reader, reader], "k") == "THE CAT [MASK:5] NEAR TOWN."
    assert reader.seen == [
        ("The cat ", "k/before"), (" near town.", "k/behind"), ("THE CAT ", "k/before"), (" NEAR TOWN.", "k/behind"),
    ]  # fmt: skip
    for seed in range(20):
        read = question.read_by([Noiser(Noise("spaces", 1.0), seed)], "k")
        assert re.fullmatch(r".*\[MASK:5\].*", read)
        assert "slept" not in read


# ---- Scores ----


def brute(model, questions, words):
    """Whether each first answer, and one of five, is right: asked one by one, words of the right length alone."""
    found = []
    for question in questions:
        fitting = [word for word in words if len(word) == len(question.word)]
        asked = question.sentence[: question.start] + "[MASK]" + question.sentence[question.end :]
        (gap,) = model.fill_mask(asked.replace("[MASK]", f"[MASK:{len(question.word)}]"), top=5, words=fitting)
        answers = [word.word for word in gap.words]
        found.append((answers[0] == question.word, question.word in answers))
    return np.array(found, float)


@pytest.fixture(scope="module")
def bert():
    return str(release("bert"))


def test_a_report(text, tmp_path, bert):
    settings = ClozeSettings(
        models=(bert,), data=(str(text),), out=str(tmp_path / "out"), noise=("swap:0.3", "drop:0.2"), seeds=2,
        samples=50, defence=("nfkc",), command="the command",
    )  # fmt: skip
    results = measure(settings)
    words, model = candidates_in(SENTENCES), charlm.load(bert)
    questions = list(questions_of(SENTENCES, words, 0))
    assert (results["questions"], results["candidates"]) == (3, 8)
    assert results["noise"] == ["clean", "swap:0.3", "drop:0.2"]
    of = {(one["system"], one["noise"], one["score"]): one for one in results["scores"]}
    first, five = brute(model, questions, words).mean(axis=0)
    assert of[bert, "clean", "accuracy"]["value"] == pytest.approx(first)
    assert of[bert, "clean", "accuracy@5"]["value"] == pytest.approx(five)
    noisy = of[bert, "swap:0.3", "accuracy"]
    assert noisy["value"] == pytest.approx(np.mean(noisy["by_seed"]))
    assert len(noisy["by_seed"]) == 2
    assert noisy["low"] <= noisy["value"] <= noisy["high"]
    assert all(one["difference"] == 0 for one in results["comparisons"])  # ASCII stays as it is
    assert results["systems"][0]["writable"] == 8
    *_, markdown, page = write_report(results, tmp_path / "out")
    assert "# Words left out, under typos" in markdown.read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page.read_text(encoding="utf-8")
    rows = sorted((tmp_path / "out" / "rows").iterdir())
    before = {path: path.stat().st_mtime_ns for path in rows}
    assert measure(settings) == results
    assert {path: path.stat().st_mtime_ns for path in rows} == before
    rows[0].write_bytes(b"damaged")
    assert measure(settings) == results
    assert rows[0].stat().st_mtime_ns > before[rows[0]]


class Knowing:
    """A model that knows every answer as long as nothing is misspelled."""

    path, pretrained, predictor = (
        "knowing",
        SimpleNamespace(title="K"),
        SimpleNamespace(known_words=lambda words: words),
    )

    def __init__(self, questions):
        self.right = {question.read_by([], ""): question.word for question in questions}

    def fill_mask(self, texts, top, words):
        answer = lambda text: [SimpleNamespace(word=self.right.get(text, "wrong"))]
        return [[SimpleNamespace(words=answer(text))] for text in texts]


def test_what_a_model_loses_is_the_share_of_sentences_that_it_cannot_read(text, tmp_path, monkeypatch):
    questions = list(questions_of(SENTENCES, candidates_in(SENTENCES), 0))
    monkeypatch.setattr(measuring, "load", lambda _: Knowing(questions))
    monkeypatch.setattr(measuring, "identity", lambda _: "knowing")
    results = measure(
        ClozeSettings(("knowing",), (str(text),), str(tmp_path / "out"), noise=("drop:0.05",), seeds=8, samples=20)
    )
    of = {(one["noise"], one["score"]): one for one in results["scores"]}
    noiser = [Noiser(Noise("drop", 0.05), seed) for seed in range(8)]
    same = [[q.read_by([n], q.sentence) == q.read_by([], "") for q in questions] for n in noiser]
    assert 0 < np.mean(same) < 1
    assert of["clean", "accuracy"]["value"] == 1
    assert of["drop:0.05", "accuracy"]["by_seed"] == pytest.approx(np.mean(same, axis=1))
    assert of["drop:0.05", "accuracy"]["value"] == of["drop:0.05", "accuracy@5"]["value"] == np.mean(same)
    failed = [one for one in results["shown"] if one["noise"] == "drop:0.05"]
    wrong = [q.sentence for q, right in zip(questions, same[0], strict=True) if not right]
    assert [one["sentence"] for one in failed] == wrong
    assert all(one["found"][0]["read"] == one["asked"] for one in failed)


def test_models_of_several_families_choose_from_the_same_words(text, tmp_path, bert, trained):
    out = str(tmp_path / "out")
    test = Cloze(ClozeSettings((bert, str(trained.workdir)), (str(text),), out, noise=("drop:0.1",)))
    read = [question.read_by([], "") for question in test.questions]
    for system in test.systems:
        for question, answers in zip(test.questions, test.answers(system, read), strict=True):
            assert answers
            assert {len(answer) for answer in answers} == {len(question.word)}
            assert set(answers) <= set(test.candidates)
    report = report_of(measure(test._settings))
    assert "each can write" in str(report)


# ---- What is wrong ----


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"noise": ("keybord",)}, "did you mean keyboard"),
        ({"noise": ("misspelling",)}, "needs a list of misspellings"),
        ({"defence": ("symspel",)}, "did you mean symspell"),
        ({"seeds": 0}, "seeds=0: expected a whole number of at least 1"),
        ({"models": ()}, "models=.*expected a sequence of at least one"),
        ({"data": "text.txt"}, "data='text.txt': expected a sequence"),
        ({"data": ("gone.txt",)}, "gone.txt"),
        ({"words": "gone.txt"}, "--words=gone.txt cannot be read"),
        ({"models": (str(release("gpt2")),)}, "--models: .*gaps"),
    ],
)
def test_wrong_settings_are_named(changed, message, text, tmp_path, bert):
    given = {"models": (bert,), "data": (str(text),), "out": str(tmp_path / "out"), "noise": ("drop",)}
    with pytest.raises(ValueError, match=message) as raised:
        measure(ClozeSettings(**(given | changed)))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_lists_and_texts_without_candidates(tmp_path, bert):
    path = tmp_path / "words.txt"
    path.write_text("the 10\nslept 3\nTree 4\nnear\n", encoding="utf-8")
    assert read_candidates(str(path)) == ["slept", "near"]
    path.write_text("the 10\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"words\.txt: expected words of at least 4 letters, none a capital; got none"):
        read_candidates(str(path))
    path.write_text("The old cat sat on a mat.\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"words\.txt: no sentence with a word to leave out"):
        measure(ClozeSettings((bert,), (str(path),), str(tmp_path / "out")))


def test_the_command(text, tmp_path, bert, capsys):
    out = tmp_path / "out"
    asked = ["--models", bert, "--data", str(text), "--noise", "drop:0.1", "--samples", "20", "--out", str(out)]
    assert main(asked) == 0
    results = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert results["settings"]["command"].startswith("python -m charlm.evaluate_cloze --models")
    assert results["settings"]["sentences"] == 1000
    assert main([*asked, "--defence", "symspel"]) == 1
    assert "did you mean symspell" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--data", str(text), "--out", str(out)])
    assert "required: --models" in capsys.readouterr().err

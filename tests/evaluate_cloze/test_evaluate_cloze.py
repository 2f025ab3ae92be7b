"""Tests the cloze test: what is left out, what models read, scores by hand, reports, and the command."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_models import release

from charlm.evaluate_cloze import measure as measuring
from charlm.evaluate_cloze.__main__ import main
from charlm.evaluate_cloze.measure import Cloze, measure
from charlm.evaluate_cloze.questions import Question, candidates_in, is_candidate, questions_of, read_candidates
from charlm.evaluate_cloze.report import report_of, write_report
from charlm.evaluate_cloze.settings import ClozeSettings
from charlm.evaluate_cloze.systems import COMMONEST
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
     ("x86y", False), ("كتاب", True), ("ΣΟΦΟΣ", False), ("हिन्दी", True)],
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
    drawn = {tuple(one.word for one in questions_of(SENTENCES, candidates_in(SENTENCES), seed)) for seed in range(9)}
    assert len(drawn) > 1


@pytest.mark.parametrize(
    ("sentence", "asked"),
    [
        ("The dog would run.", True),
        ("The dog wouldn't run.", False),  # tokenizers cut this word in different ways
        ("A would-be dog ran.", False),
        ("It would run, Would it?", False),  # the other one could be read
        ("The <would> ran.", False),
        ("“would” it, (would_ it", False),
        ("So would.", True),
        ("“would”", True),
    ],
)
def test_words_are_left_out_that_stand_alone_and_once(sentence, asked):
    assert bool(list(questions_of([sentence], ["would"], seed=0))) is asked


def test_nobody_reads_the_word_that_is_left_out():
    question, reader = Question("The cat slept near town.", 8, 13), Reader()
    assert question.read_by([], "k") == ("The cat [MASK:5] near town.", 8)
    assert question.read_by([reader, reader], "k") == ("THE CAT [MASK:5] NEAR TOWN.", 8)
    assert reader.seen == [
        ("The cat ", "k/before"), (" near town.", "k/behind"), ("THE CAT ", "k/before"), (" NEAR TOWN.", "k/behind"),
    ]  # fmt: skip
    for seed in range(20):
        text, gap = question.read_by([Noiser(Noise("spaces", 1.0), seed)], "k")
        assert text[gap:].startswith("[MASK:5]")
        assert "slept" not in text


# ---- Scores ----


@pytest.fixture(scope="module")
def bert():
    return str(release("bert"))


class Knowing:
    """A model that knows the answers to some questions, as long as nothing is misspelled."""

    pretrained = SimpleNamespace(title="Knowing")
    predictor = SimpleNamespace(known_words=lambda words: SimpleNamespace(words=words))

    def __init__(self, name, known):
        self.name, self.right = name, {question.read_by([], "").text: question.word for question in known}

    def gaps(self, text):
        return text.count("[MASK")

    def fill_mask(self, texts, top, words):
        answer = lambda text: [SimpleNamespace(word=self.right.get(text, "wrong"))]
        return [[SimpleNamespace(words=answer(text), start=text.index("[MASK"))] for text in texts]


@pytest.fixture
def questions():
    return list(questions_of(SENTENCES, candidates_in(SENTENCES), 0))


def results_of(known, text, out, monkeypatch, **options):
    """Measures models that know these questions."""
    monkeypatch.setattr(measuring, "load", lambda name: Knowing(name, known[name]))
    monkeypatch.setattr(measuring, "identity", lambda model: model.name)
    return measure(ClozeSettings((*known,), (str(text),), str(out), samples=50, **options))


def test_what_a_model_loses_is_the_share_of_sentences_that_it_cannot_read(text, questions, tmp_path, monkeypatch):
    asked = {"noise": ("drop:0.05",), "seeds": 8}
    results = results_of({"knowing": questions}, text, tmp_path / "out", monkeypatch, **asked)
    of = {(one["noise"], one["score"]): one for one in results["scores"] if one["system"] == "knowing"}
    noisers = [Noiser(Noise("drop", 0.05), seed) for seed in range(8)]
    same = [[q.read_by([n], q.sentence) == q.read_by([], "") for q in questions] for n in noisers]
    assert 0 < np.mean(same) < 1
    assert of["clean", "cloze_accuracy"]["value"] == 1
    assert of["drop:0.05", "cloze_accuracy"]["by_seed"] == pytest.approx(np.mean(same, axis=1))
    for score in ("cloze_accuracy", "cloze_accuracy@5"):
        assert of["drop:0.05", score]["value"] == pytest.approx(np.mean(same))
    wrong = [q.sentence for q, right in zip(questions, same[0], strict=True) if not right]
    assert [one["sentence"] for one in results["shown"]] == wrong
    assert all(one["found"][0]["read"] == one["asked"] for one in results["shown"])


def test_differences_are_of_the_same_sentences(text, questions, tmp_path, monkeypatch):
    known = {"all": questions, "two": questions[:2], "none": []}
    results = results_of(known, text, tmp_path / "out", monkeypatch, noise=("drop:0.0",))
    gaps = {(one["a"], one["b"]): one for one in results["comparisons"] if one["noise"] == "clean"}
    assert gaps["all", "two"]["difference"] == pytest.approx(1 / 3)
    assert gaps["two", "none"]["difference"] == pytest.approx(2 / 3)
    assert gaps["all", "none"]["low"] == gaps["all", "none"]["high"] == 1
    assert gaps["all", "two"]["low"] <= 1 / 3 <= gaps["all", "two"]["high"]
    first = [SimpleNamespace(word=q.word, n=len(q.word)) for q in questions]
    commonest = [next(word for word in candidates_in(SENTENCES) if len(word) == one.n) for one in first]
    least = next(one for one in results["scores"] if one["system"] == COMMONEST and one["score"] == "cloze_accuracy")
    assert least["value"] == pytest.approx(np.mean([a == one.word for a, one in zip(commonest, first, strict=True)]))
    report = str(report_of(results))
    assert "all 8; two 8; none 8" in report
    assert results["candidates"]["of_the_length"] == pytest.approx(
        np.mean([sum(len(word) == one.n for word in candidates_in(SENTENCES)) for one in first])
    )


def test_a_report_is_read_again_where_it_is_whole(text, tmp_path, bert):
    settings = ClozeSettings(
        models=(bert,), data=(str(text),), out=str(tmp_path / "out"), noise=("swap:0.3", "drop:0.2"), seeds=2,
        samples=50, defence=("nfkc",), command="the command",
    )  # fmt: skip
    results = measure(settings)
    assert (results["questions"], results["candidates"]["shared"]) == (3, 8)
    assert results["noise"] == ["clean", "swap:0.3", "drop:0.2"]
    assert [one["name"] for one in results["systems"]] == [COMMONEST, bert, f"{bert} behind nfkc"]
    of = {(one["system"], one["noise"], one["score"]): one for one in results["scores"]}
    noisy = of[bert, "swap:0.3", "cloze_accuracy@5"]
    assert noisy["value"] == pytest.approx(np.mean(noisy["by_seed"]))
    assert len(noisy["by_seed"]) == 2
    *_, markdown, page = write_report(results, tmp_path / "out")
    assert "# Words left out, under typos" in markdown.read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page.read_text(encoding="utf-8")
    rows = sorted((tmp_path / "out" / "rows").iterdir())
    before = {path: path.stat().st_mtime_ns for path in rows}
    assert measure(settings) == results
    assert {path: path.stat().st_mtime_ns for path in rows} == before
    for damage in (b"damaged", b"PK\x03\x04 no zip"):
        rows[0].write_bytes(damage)
        assert measure(settings) == results
    np.save(rows[0], np.full((3, 3), np.nan))
    assert measure(settings) == results
    assert rows[0].stat().st_mtime_ns > before[rows[0]]


def test_models_of_several_families_choose_from_the_words_that_all_can_write(text, tmp_path, bert, trained):
    long = "counterrevolutionaries"  # longer than the slots of that HLM
    text.write_text(text.read_text(encoding="utf-8") + f"The dog saw {long} near town.\n", encoding="utf-8")
    test = Cloze(ClozeSettings((bert, str(trained.workdir)), (str(text),), str(tmp_path / "out"), noise=("drop:0.1",)))
    assert long in candidates_in([f"The dog saw {long}."])
    assert long not in test.candidates
    assert test.listed == len(test.candidates) + 1 == test.writable[str(trained.workdir)] + 1
    assert len(test.questions) == 4
    read = [question.read_by([], "") for question in test.questions]
    for system in test.systems:
        for question, answers in zip(test.questions, system.answers(read, test._lengths, test.candidates), strict=True):
            fitting = {word for word in test.candidates if len(word) == len(question.word)}
            assert len(answers) == min(5, len(fitting))
            assert set(answers) <= fitting


def test_what_looks_like_another_gap_is_none(tmp_path):
    text, roberta = tmp_path / "text.txt", str(release("roberta"))
    lines = ("The dog <mask> near that town.", "The ［MASK］ dog slept near town.", "The [MASK] sat near.")
    text.write_text("\n".join(lines), encoding="utf-8")
    test = Cloze(ClozeSettings((roberta,), (str(text),), str(tmp_path / "out"), defence=("nfkc",)))
    assert [question.sentence for question in test.questions] == [lines[1]]
    behind = test.systems[-1]
    (read,) = test.read(test.questions, measuring.planned((), "")[0][0], 0, behind.spec)
    assert read.text.startswith("The [MASK] dog")
    (answers,) = behind.answers([read], test._lengths, test.candidates)
    assert {len(answer) for answer in answers} == {test._lengths[0]}


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


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("The old cat sat on a mat.\n", None, "no word to leave out"),
        ("", None, "holds no text|no word to leave out|no documents"),
        (SENTENCES[0], "zebra\n", "there is none that all models can write|in no sentence is there one of the 1 words"),
        (SENTENCES[0], "the 10\n", r"words\.txt: expected words of at least 4 letters, none a capital; got none"),
    ],
)
def test_texts_and_lists_without_candidates(tmp_path, bert, content, words, message):
    text, listed = tmp_path / "text.txt", tmp_path / "words.txt"
    text.write_text(content, encoding="utf-8")
    if words is not None:
        listed.write_text(words, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as raised:
        measure(ClozeSettings((bert,), (str(text),), str(tmp_path / "out"), words=str(listed) if words else ""))
    assert "\n" not in str(raised.value)


def test_a_list_has_the_order_of_its_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("the 10\nslept 3\nTree 4\nnear\n", encoding="utf-8")
    assert read_candidates(str(path)) == ["slept", "near"]


def test_a_folder_that_is_a_file_is_named(text, tmp_path, bert):
    (tmp_path / "out").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match=r"--out=.* cannot be made: File exists"):
        measure(ClozeSettings((bert,), (str(text),), str(tmp_path / "out"), noise=("drop",)))


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

"""Tests the object that `charlm.load` returns: each of its methods, for one text and for several."""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from robustness.conftest import Models
from small_run import ROOT, on_devices
from tiny_models import release

import charlm
import charlm.finetune.predictor
from charlm.api.results import Answer, Class, Encoding, Gap, Generation, Ranked, Score
from charlm.data.examples import TaggedExample
from charlm.finetune.predictor import FineTuned
from charlm.predict import Predictor
from charlm.text.words import get_splitter

TEXTS = ["the cat sat on a mat", "dog", "we slept near every old tree"]


def test_importing_charlm_is_quick_and_needs_no_jax():
    code = "import sys, time; start = time.process_time(); import charlm; seconds = time.process_time() - start\n"
    code += "assert not {'jax', 'numpy', 'flax'} & sys.modules.keys(); print(seconds)"
    run = lambda: subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert min(float(run().stdout) for _ in range(3)) < 0.3


def test_the_package_of_fine_tuning_can_be_called():
    """Whether or not a module of it was imported before."""
    with pytest.raises(ValueError, match=r"^task='tga': expected one of answer, .*; did you mean tag\?"):
        charlm.finetune("nowhere", [], task="tga")
    assert charlm.finetune is sys.modules["charlm.finetune"]
    assert charlm.finetune.predictor.FineTuned
    code = "import charlm\ntry:\n    charlm.finetune('x', [], task='')\nexcept ValueError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("task='': expected one of answer, classification")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        charlm.nothing  # noqa: B018


@pytest.fixture(scope="module")
def hlm(trained):
    return charlm.load(trained.workdir)


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory):
    """Returns tiny BERTs with a random head for a task."""
    models = Models(tmp_path_factory.mktemp("models"), Path())  # no HLM
    return lambda task: charlm.load(models.untrained(task), batch_size=8)


def test_a_model_with_masks_encodes_or_fills(hlm, trained):
    assert hlm.abilities == ("encode", "fill_mask")
    assert repr(hlm) == f"<HLM from {trained.workdir}: it can encode, fill_mask>"
    one = hlm(TEXTS[0])
    assert isinstance(one, Encoding)
    assert one.words == tuple(TEXTS[0].split())
    assert one.offsets[1] == (4, 7)
    expected = Predictor.from_checkpoint(trained.workdir).encode(TEXTS)
    for found, wanted in zip(hlm.encode(iter(TEXTS)), expected, strict=True):
        np.testing.assert_allclose(found.vectors, wanted.vectors_WD, atol=1e-5)
        np.testing.assert_allclose(found.sentence, wanted.sentence_D, atol=1e-5)
    unit = hlm(TEXTS, normalize=True)  # no gap, so the argument is that of `encode`
    np.testing.assert_allclose(np.linalg.norm(unit, axis=-1), 1, atol=1e-5)
    both = hlm([TEXTS[0], "the [MASK:3]"], top=2)  # an argument of gaps has no effect on the other
    assert (isinstance(both[0], Encoding), len(both[1][0].words)) == (True, 2)
    with pytest.raises(TypeError, match="nonsense"):
        hlm("the [MASK:3]", nonsense=1)
    text = "the [MASK:3] sat on a [MASK:3]"
    words = {"words": ["cat", "dog", "mat"], "top": 2}
    gaps = hlm(text, **words)
    assert [(gap.start, gap.end, len(gap.words)) for gap in gaps] == [(4, 12, 2), (22, 30, 2)]
    assert gaps[0].word == gaps[0].words[0].word in words["words"]
    assert gaps[0].words[0].score >= gaps[0].words[1].score
    mixed = hlm([TEXTS[0], text], **words)
    assert isinstance(mixed[0], Encoding)
    assert mixed[1] == gaps
    assert hlm([]) == hlm.encode([]) == []
    with pytest.raises(ValueError, match=r"was fine-tuned for no task: it can encode, fill_mask, not tag"):
        hlm.tag(TEXTS)
    with pytest.raises(ValueError, match=r"^a model of the kind HLM scores no texts"):
        hlm.score(TEXTS)


def test_the_mask_token_of_a_vocabulary_is_a_gap():
    model = charlm.load(release("roberta"))
    (gap,) = model("the <mask> sat")
    assert isinstance(gap, Gap)
    assert (gap.start, gap.end) == (4, 10)
    assert isinstance(model("the cat sat"), Encoding)


def test_a_causal_model_scores_and_writes():
    model = charlm.load(release("gpt2"))
    written = model(TEXTS[0], 3)
    assert isinstance(written, Generation)
    assert model.generate(TEXTS[:1], max_new=3) == [written]
    score = model.score(TEXTS[0])
    assert isinstance(score, Score)
    assert sum(piece.log_prob for piece in score.pieces) == pytest.approx(score.log_prob, rel=1e-5)
    assert TEXTS[0][score.pieces[0].start : score.pieces[0].end].strip() == score.pieces[0].piece.strip("Ġ")
    assert score.bits_per_char == pytest.approx(-score.log_prob / math.log(2) / len(TEXTS[0]))


def test_a_tagger_tells_words_places_labels_and_probabilities(fine_tuned):
    model = fine_tuned("tagging")
    assert model.abilities[0] == "tag"
    text = "the cat didn't sleep"
    found = model(text)
    assert [(tag.start, tag.end) for tag in found] == get_splitter("rules", "en").spans(text)
    assert [tag.word for tag in found] == [text[tag.start : tag.end] for tag in found]
    assert model([text]) == [found]
    assert model.tag([["the", "cat"]])[0][1].end == 7
    assert [*dataclasses.asdict(found[0])] == ["word", "start", "end", "label", "probability"]
    tuned = FineTuned.from_checkpoint(model.path, batch_size=8)
    prepared = tuned.evaluator.prepare([TaggedExample("0", "", tuple(tag.word for tag in found))])
    logits = tuned.evaluator.logits(tuned.params, prepared)
    assert len(logits) > 1  # windows
    for row, logits_LN in zip(prepared.rows, logits, strict=True):
        for word, position in zip(*row.places, strict=True):
            shares = np.exp(logits_LN[position] - logits_LN[position].max())
            assert found[word].probability == pytest.approx(shares.max() / shares.sum(), rel=1e-5)
            assert found[word].label == model.labels[shares.argmax()]
    assert isinstance(model.encode("the cat"), Encoding)  # its encoder still encodes
    with pytest.raises(ValueError, match=r"fine-tuned for tagging: it can tag, not classify"):
        model.classify(TEXTS)


def test_predict_reads_files_of_the_task_and_says_so_to_who_gives_texts(fine_tuned, tmp_path):
    model = fine_tuned("tagging")
    words = " ".join(TEXTS).split()
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n\n")
    ((_, found),) = model.predict(str(tmp_path / "words.txt"))
    assert list(found) == [tag.label for tag in model.tag([words])[0]]
    assert len(set(found)) > 1  # words that differ
    with pytest.raises(ValueError, match=r"^the cat: cannot be read: No such file .*; predict reads files, tag texts$"):
        model.predict("the cat")
    (tmp_path / "words.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"words\.txt") as broken:
        model.predict([str(tmp_path / "words.txt")])
    assert "predict reads" not in str(broken.value)


def test_a_classifier(fine_tuned):
    model = fine_tuned("classification")
    found = model(TEXTS, ["in the town"] * 3)
    assert [type(one) for one in found] == [Class] * 3
    alone = model(TEXTS[1], "in the town")  # in a batch of another size, whose sums round in another way
    assert alone.probabilities == pytest.approx(found[1].probabilities, abs=1e-6)
    assert found[0].probabilities[found[0].label] == found[0].probability == max(found[0].probabilities.values())
    assert sum(found[0].probabilities.values()) == pytest.approx(1)
    assert tuple(found[0].probabilities) == model.labels


def test_numbers_answers_and_ranks(fine_tuned):
    numbers = fine_tuned("regression")
    assert numbers(TEXTS[:2]) == pytest.approx([numbers.measure(TEXTS[0]), numbers.measure(TEXTS[1])], abs=1e-6)
    reader = fine_tuned("question_answering")
    answer = reader("which animal ?", TEXTS[0])
    assert isinstance(answer, Answer)
    assert answer.text == TEXTS[0][answer.start : answer.end]
    best = answer.candidates[0]
    assert TEXTS[0][best.start : best.end] == best.text
    among = reader(["which animal ?", "who ?"], TEXTS[0])[0]
    assert (among.text, among.start, among.end) == (answer.text, answer.start, answer.end)
    assert among.probability == pytest.approx(answer.probability, abs=1e-6)
    ranker = fine_tuned("ranking")
    ranked = ranker("which animal", TEXTS)
    assert [type(one) for one in ranked] == [Ranked] * 3
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
    assert [TEXTS[one.index] for one in ranked] == [one.passage for one in ranked]
    with pytest.raises(ValueError, match="expected a list of texts"):
        ranker("which animal", "the cat")


def test_options_and_mistakes(tmp_path):
    assert charlm.load(str(release("bert")), head="encoder").abilities == ("encode",)
    assert charlm.load(release("bert"), dropout=0.25).pretrained.config.dropout == 0.25
    with pytest.raises(ValueError, match="nowhere"):
        charlm.load(tmp_path / "nowhere")


@pytest.mark.slow
def test_the_lines_of_the_readme_run(trained, tmp_path, monkeypatch, capsys):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## Use it from Python")[2].partition("\n## ")[0]
    code = "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    trained.copy(tmp_path / "runs" / "hlm")
    monkeypatch.chdir(tmp_path)
    with on_devices(1):
        exec(compile(code, "README.md", "exec"), {})
    *tags, words, shapes, word, found = capsys.readouterr().out.splitlines()
    assert {"teh DET", "frist ADJ", "u PRON", "kno VERB"} < set(tags)
    assert words.startswith("('teh', 'frist', 'elment') ((0, 3), (4, 9)")
    assert shapes == "(3, 16) (16,)"
    assert len(word) == 4
    assert found.startswith("Class(label=")


class Frame:
    """As much of a pandas.DataFrame as is used."""

    def __iter__(self):
        return iter(["text", "label"])

    def iterrows(self):
        raise AssertionError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Frame(), "expected texts, got a DataFrame: give one of its columns text, label"),
        ({"text": "a b"}, "expected a text or several, got dict"),
        (None, "expected a text or several, got NoneType"),
        (b"a b", "expected a text or several, got bytes"),
        ([["a", "b"]], "text 0: expected a text, got list"),
        (["a", None], "text 1: expected a text, got NoneType"),
        (["a", 3], "text 1: expected a text, got int"),
    ],
)
def test_what_is_no_text_is_refused(hlm, given, message):
    for ask in (hlm, hlm.encode, lambda texts: hlm.encode(texts, normalize=True)):
        with pytest.raises(ValueError, match=message):
            ask(given)


def test_whether_vectors_are_normalised_is_true_or_false(hlm):
    with pytest.raises(ValueError, match="encode: normalize='no', expected True or False"):
        hlm.encode(TEXTS, normalize="no")


def test_what_names_no_model_or_noise_is_refused():
    with pytest.raises(ValueError, match="load: expected the name or folder of a model, got 'None'"):
        charlm.load(None)
    with pytest.raises(ValueError, match=r"noise: expected kind\[:rate\], such as 'keyboard:0.1', got None"):
        charlm.noise(None)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda hlm: charlm.load(hlm.path, batch_size=0), "batch_size=0: expected a whole number from 1 on"),
        (lambda hlm: charlm.load("a" * 5000), "load: 'a+' cannot be read: File name too long|does not exist"),
        (lambda hlm: hlm.fill_mask("the [MASK]", top="3"), "top='3': expected a whole number from 1 on"),
        (lambda hlm: hlm.fill_mask("the [MASK]", words=[1]), "known words: expected words, got int '1'"),
    ],
)
def test_wrong_arguments_are_named(hlm, ask, says):
    with pytest.raises(ValueError, match=says):
        ask(hlm)

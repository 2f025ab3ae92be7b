"""Tests the readers on real files of every task, if they are there, against a list of their contents."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from charlm.data.conll import read_tagged, write_conll
from charlm.data.examples import Skipped
from charlm.data.squad import read_squad
from charlm.data.tag_schemes import detect_scheme, entities, is_iob
from charlm.data.text_tables import read_passages, read_texts

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"

TABLES = {
    "goemotions": {"text": 0, "label": 1, "id": 2},
    "hindi_discourse": {"text": "Sentence", "label": "Discourse Mode", "group": "Story_no"},
    "hinglish_top": {"text": "cs_query", "pair": "en_query", "label": "domain"},
    "jnli": {"text": "sentence1", "pair": "sentence2", "label": "label", "id": "sentence_pair_id"},
    "mnli": {"text": 1, "pair": 2, "label": 0},
    "nytwit": {"text": "Word", "label": "Category", "group": "Fold"},
    "snli": {"text": 1, "pair": 2, "label": 0},
    "wisesight": {"text": "texts", "label": "category"},
}
TAGGED = r"(pos|ner)/.*|codeswitch/.*conllu.*"
TABLED = r"(cls/.*|nytwit/.*|codeswitch/.*)(?<!conllu\.gz)(?<!labels\.txt)"
ASKED = r"qa/[^/]*|qa/xquad/.*"


def listed(kind):
    """The files that `kind` matches, with the numbers and the most frequent labels that the list of files gives."""
    if not SHARED.exists():
        return [pytest.param("", {}, {}, marks=pytest.mark.skip(reason="no shared data"))]
    found = []
    for line in (SHARED / "README.md").read_text().split("\n"):
        cells = line.split("|")
        name = cells[1].strip(" `") if len(cells) > 6 else ""
        if re.fullmatch(kind, name):
            counts = cells[6].replace(",", "") + ";"
            numbers = {key.strip(): int(value) for key, value in re.findall(r"([\w ]+) (\d+) ?;", counts)}
            labels = re.search(r"labels \(\d+\): ([^;]*)", cells[6])
            pairs = re.findall(r"(?:^|, )(.+?) (\d+)(?= ?(?:,|\.|$))", labels[1].strip()) if labels else []
            found.append(pytest.param(name, numbers, {label: int(count) for label, count in pairs}, id=name))
    assert found
    return found


@pytest.mark.skipif(not SHARED.exists(), reason="no shared data")
def test_every_file_is_read():
    names = {param.id for kind in (TAGGED, TABLED, ASKED) for param in listed(kind)}
    folders = ("pos", "ner", "cls", "qa", "qa/xquad", "codeswitch", "nytwit")
    there = {
        str(path.relative_to(SHARED)) for folder in folders for path in (SHARED / folder).iterdir() if path.is_file()
    }
    assert there - names == {"cls/goemotions_labels.txt"}


def check_labels(counts, expected):
    assert expected
    assert {label: counts[label] for label in expected} == expected


@pytest.mark.parametrize(("name", "numbers", "labels"), listed(TAGGED))
def test_tagged_files(name, numbers, labels, tmp_path):
    skipped = Skipped()
    examples = read_tagged(str(SHARED / name), skipped=skipped)
    assert len(examples) == numbers["sentences"]
    assert sum(len(example.words) for example in examples) == numbers["tokens"]
    check_labels(Counter(tag for example in examples for tag in example.tags), labels)
    assert len({example.id for example in examples}) == len(examples)
    assert skipped.report() == []
    assert all(word for example in examples for word in example.words)
    scheme = detect_scheme(example.tags for example in examples)
    assert scheme == ("iob2" if name.startswith("ner/") else "none")
    if scheme == "iob2":
        assert sum(len(entities(example.tags)) for example in examples) == numbers["entities"]
    if re.search(r"/(zh|ja|th)_|uner_zh", name):
        assert sum(sum(example.spaces) for example in examples) < 0.2 * numbers["tokens"]
    if "train" not in name:
        predicted = [example.tags for example in examples]
        assert write_conll(str(tmp_path / "out"), examples, predicted, offsets=True) == 0
        again = read_tagged(str(tmp_path / "out"))
        assert [(e.words, e.tags) for e in again] == [(e.words, e.tags) for e in examples]


@pytest.mark.skipif(not SHARED.exists(), reason="no shared data")
def test_languages_of_words():
    examples = read_tagged(str(SHARED / "codeswitch/qtd_sagt-ud-dev.conllu.gz"), tag="misc:CSID")
    counts = Counter(tag for example in examples for tag in example.tags)
    assert counts == {"DE": 6456, "TR": 5111, "OTHER": 1286, "MIXED": 142, "LANG3": 62}
    assert not is_iob(counts)


@pytest.mark.parametrize(("name", "numbers", "labels"), listed(TABLED))
def test_tables(name, numbers, labels):
    columns = next(columns for part, columns in TABLES.items() if part in name)
    skipped = Skipped()
    examples = read_texts(str(SHARED / name), **columns, skipped=skipped)
    assert len(examples) == numbers["rows"]
    assert skipped.report() == []
    parts = (part for example in examples for part in example.label.split(","))
    check_labels(Counter(parts if "goemotions" in name else (example.label for example in examples)), labels)
    if "stories" in numbers:
        assert len({example.group for example in examples}) == numbers["stories"]
    if "nytwit" in name:
        assert {example.group for example in examples} == set("01234567")
        part = read_texts(str(SHARED / name), **columns, skip_labels=["filtered"])
        assert len(part) == numbers["rows"] - labels["filtered"]
    if "goemotions" in name:
        assert len({example.id for example in examples}) == len(examples)
        first = read_texts(str(SHARED / name), **columns, separator=",", multi_label="first")
        assert [example.label for example in first] == [example.label.split(",")[0] for example in examples]


@pytest.mark.parametrize(("name", "numbers", "labels"), listed(ASKED))
def test_questions(name, numbers, labels):
    skipped = Skipped()
    examples = read_squad(str(SHARED / name), training=True, skipped=skipped)
    assert len(examples) == numbers["questions"]
    assert len({example.context for example in examples}) == numbers["paragraphs"]
    assert sum(len(example.answers) for example in examples) == numbers["answers"]
    assert sum(example.impossible for example in examples) == numbers.get("unanswerable", 0)
    assert skipped.repaired.total() == numbers.get("bad spans", numbers.get("bad_spans"))
    for example in examples:
        for answer in example.answers:
            assert example.context[answer.start : answer.start + len(answer.text)] == answer.text


@pytest.mark.skipif(not SHARED.exists(), reason="no shared data")
def test_passages():
    examples = read_passages(str(SHARED / "ranking/squad_passage_ranking.jsonl.gz"), passage_id="passage_id")
    assert len(examples) == 6492
    sizes = Counter(example.group for example in examples)
    assert len(sizes) == 1082
    assert {*sizes.values()} == {6}
    assert sum(example.label for example in examples) == 1082
    assert len({example.id for example in examples}) == len(examples)

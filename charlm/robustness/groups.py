"""Scores by groups of words: in the vocabulary or split, seen or unseen in training, changed or unchanged by noise.

Open it to add a group of words.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from charlm.core.reading import read_text
from charlm.core.types import JsonObject
from charlm.data.files import matching_files
from charlm.metrics.compare import Metric
from charlm.robustness.cells import Cell
from charlm.robustness.scoring import CHANGED, ENTITIES, RIGHT, STATISTICS
from charlm.robustness.segmentation import pieces_of
from charlm.robustness.subjects import Subject
from charlm.robustness.versions import sentences_of, split, words_of
from charlm.tasks.base import AnyExample, AnyTask
from charlm.text.subwords import SubwordTokenizer

log = logging.getLogger("charlm")

WHOLE, SPLIT, SEEN, UNSEEN = "in vocabulary", "split", "seen in training", "unseen in training"


def known_words(file: str, subject: Subject, notes: list[str]) -> set[str] | None:
    """Returns the words seen in training; None, with an entry in `notes`, if they are not available.

    Args:
      file: a file of words separated by whitespace; "": the training files of `subject` are read instead.
      subject: a model.
      notes: notes for the report, to which one may be added.

    Raises:
      ValueError: the file cannot be read.
    """
    if file:
        try:
            return set(read_text(file).split())
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"--train-words={file} cannot be read: {error}") from error
    task, files = subject.task, []
    try:
        for spec in subject.train_files:
            files += [spec] if spec.startswith("tfds:") else matching_files(spec, "data.train")
        examples = task.read(files, training=False) if files else []
    except (ValueError, OSError) as error:
        notes.append(f"no words seen in training: {error} (--train-words FILE gives them)")
        return None
    if not examples:
        notes.append(f"no words seen in training: {subject.name} names no files (--train-words FILE gives them)")
        return None
    words = {word for sentence in sentences_of(task, examples) for word in sentence}
    return words | {word for context in {task.context(example) for example in examples} for word in split(context)}


def reference_tokenizer(folder: str, subjects: Sequence[Subject], notes: list[str]) -> SubwordTokenizer | None:
    """Returns the tokenizer that decides which words are split: from a folder, or of the first model that has one.

    Without a tokenizer the result is None, with an entry in `notes`.

    Raises:
      ValueError: the folder holds no tokenizer.
    """
    if folder:
        return SubwordTokenizer.load(folder)
    for subject in subjects:
        if subject.tokenizer is not None:
            return subject.tokenizer
    notes.append("no groups of split words: no model has a tokenizer of pieces (--tokenizer FOLDER names one)")
    return None


def masks(
    task: AnyTask,
    examples: Sequence[AnyExample],
    tokenizer: SubwordTokenizer | None,
    known: set[str] | None,
    named: Sequence[str] | None = None,
) -> dict[str, np.ndarray]:
    """Returns the groups by name, each a bool array over words (tagging) or over rows of the statistics.

    A word is `WHOLE` if it is one piece, and not the unknown token. A row of several words is `SPLIT` or `UNSEEN` if
    any of its words is, else `WHOLE` or `SEEN`.

    Args:
      task, examples: the examples and their task.
      tokenizer: cuts words into pieces; None: there are no such groups.
      known: the words seen in training; None: there are no such groups.
      named: a further group of each example, each with a row of its own; None: there are none.
    """
    rows = [[word for words in words_of(texts) for word in words] for texts in task.scored(examples)]
    words = [word for row in rows for word in row]
    found: dict[str, np.ndarray] = {}
    if tokenizer is not None:
        pieces = pieces_of(tokenizer, words)
        found[SPLIT] = np.array([any(pieces[word] != 1 for word in row) for row in rows], bool)
        found[WHOLE] = ~found[SPLIT]
    if known is not None:
        found[UNSEEN] = np.array([any(word not in known for word in row) for row in rows], bool)
        found[SEEN] = ~found[UNSEEN]
    for name in sorted(set(named or ())):
        found[name] = np.array([one == name for one in named or ()], bool)
    return found


def entries(masks: Mapping[str, np.ndarray], cells: Sequence[Cell], metric: Metric) -> list[JsonObject]:
    """Returns the entries of the results for all groups: group, count and score, over all draws of a noise.

    The count is the number of words or examples that were scored, added up over the draws; the score of an empty group
    is None. For tagging, the score is the share of correct tags, and there are further groups of words that noise
    changed or left unchanged. If tags mark entities, an entry also has the number and the F1 of the entities with a
    word of the group (CharBERT, figure 4).
    """
    found = [_entry("all", None, cells, metric)]
    found += [_entry(name, [mask] * len(cells), cells, metric) for name, mask in masks.items()]
    if RIGHT in cells[0].arrays and any(cell.arrays[CHANGED].any() for cell in cells):
        found.append(_entry("changed", [cell.arrays[CHANGED] for cell in cells], cells, metric))
        found.append(_entry("unchanged", [~cell.arrays[CHANGED] for cell in cells], cells, metric))
    return found


def _entry(name: str, of_cells: list[np.ndarray] | None, cells: Sequence[Cell], metric: Metric) -> JsonObject:
    array = RIGHT if RIGHT in cells[0].arrays else STATISTICS
    parts = [cell.arrays[array] for cell in cells]
    if of_cells is not None:
        parts = [part[mask] for part, mask in zip(parts, of_cells, strict=True)]
    rows = np.concatenate(parts)
    score = None
    if len(rows):
        score = float(rows.mean()) if array == RIGHT else float(metric(rows.sum(axis=0)[None])[0])
    entry = {"group": name, "count": len(rows), "score": score}
    if ENTITIES not in cells[0].arrays:
        return entry
    masks = of_cells or [np.ones(len(part), bool) for part in parts]
    number, f1 = _entity_f1([cell.arrays[ENTITIES] for cell in cells], masks)
    return entry | {"entities": number, "entity_f1": f1}


def _entity_f1(spans: Sequence[np.ndarray], masks: Sequence[np.ndarray]) -> tuple[int, float | None]:
    """Returns the number of gold entities with a word of the group, and the F1 of all entities with such a word."""
    gold = found = both = 0
    for spans_N4, mask_W in zip(spans, masks, strict=True):
        before_W = np.concatenate([[0], np.cumsum(mask_W)])
        inside = spans_N4[before_W[spans_N4[:, 1]] > before_W[spans_N4[:, 0]], 2:]
        gold, found, both = gold + inside[:, 0].sum(), found + inside[:, 1].sum(), both + inside.all(axis=1).sum()
    return int(gold), float(2 * both / (gold + found)) if gold + found else None

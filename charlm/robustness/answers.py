"""Chooses the examples that the report shows with their typos, and asks the models about them.

The choice follows a rule that the report states: no sample is fair in ten examples, but a rule cannot pick favourites.
Open it to change the rule; `render.sentences` shows the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from charlm.core.types import Json, JsonObject
from charlm.robustness.cells import Cell, Cells
from charlm.robustness.scoring import RIGHT, STATISTICS
from charlm.robustness.settings import Level
from charlm.robustness.subjects import Subject
from charlm.robustness.versions import version_of, words_of
from charlm.tasks.base import AnyExample, AnyTask
from charlm.text.noise import Noise
from charlm.text.noise.misspellings import Misspellings

SHOWN = 10  # number of examples
LEVEL = 0.1  # each kind of noise is shown at its level nearest this one
WORDS = 30  # longer texts are left out, unless all are longer
_MODELS = 4  # of more models, only the best and the worst under noise are shown
_TRIES = 50  # how many examples of a kind are tried until noise has changed one
_EQUAL = 1e-9


class _Pool(NamedTuple):
    """The examples that may be shown, grouped as they are scored.

    Attributes:
      task: their task.
      groups: the examples of each group; most tasks score each example on its own.
      allowed: bool [groups]: whether a group's text is short enough.
    """

    task: AnyTask
    groups: list[list[AnyExample]]
    allowed: np.ndarray

    @classmethod
    def of(cls, task: AnyTask, examples: Sequence[AnyExample]) -> _Pool:
        """Groups the examples in the order of the rows of `Task.statistics`."""
        found: dict[object, list[AnyExample]] = {}
        for n, example in enumerate(examples):
            group = task.group(example)
            found.setdefault(n if group is None else ("group", group), []).append(example)
        groups = list(found.values())
        counts = [sum(map(len, words_of(_texts(task, group)))) for group in groups]
        short = np.array(counts) <= WORDS
        return cls(task, groups, short if short.any() else np.ones(len(groups), bool))

    def right(self, cell: Cell, by: str) -> np.ndarray:
        """Returns how right a model is on each group, float64 [groups]: more is better.

        Args:
          by: the name of what is counted, see `_measure`.
        """
        if RIGHT in cell.arrays:
            lengths = [sum(len(self.task.scored([example])) for example in group) for group in self.groups]
            total = np.concatenate([[0], np.cumsum(cell.arrays[RIGHT])]).astype(np.float64)
            return np.diff(total[np.concatenate([[0], np.cumsum(lengths)])])
        with np.errstate(all="ignore"):  # some scores of a single example are not defined
            scores = self.task.scores_of_sums(cell.values["kind"], cell.arrays[STATISTICS].astype(np.float64))
        return np.nan_to_num(np.asarray(scores[by], np.float64)) * (-1 if by == "mse" else 1)


class _Choice(NamedTuple):
    """An example to show: the number of its group, and the noise in it."""

    group: int
    level: Level
    noise: Noise


def answers(
    subjects: Sequence[Subject],
    examples: Sequence[AnyExample],
    clean: Mapping[str, Cell],
    noisy: Mapping[tuple[str, Level], Sequence[Cell]],
    misspellings: Misspellings | None,
    depends_on: Json,
    cells: Cells,
) -> JsonObject | None:
    """Returns the entry "answers" of the results; None if there is nothing to show.

    Args:
      subjects: the models.
      examples: all examples, with labels.
      clean, noisy: the cells of scores, as in `charlm.robustness.measurement.Measured`.
      misspellings: the list of misspellings, if there is one.
      depends_on: digests of examples and misspellings, for the names of the cells.
      cells: the cache.
    """
    task = subjects[0].task
    pool = _Pool.of(task, examples)
    by = _measure(clean[subjects[0].name], task)
    levels = _levels([level for name, level in noisy if name == subjects[0].name])
    right = {
        (s.name, at): pool.right(clean[s.name] if at is None else noisy[s.name, at][0], by)
        for s, at in itertools.product(subjects, [None, *levels])
    }
    subjects = _shown(subjects, levels, right)
    chosen = _chosen(pool, subjects, levels, right, misspellings)
    asked = [_asked(pool, subject, chosen, misspellings, depends_on, cells) for subject in subjects] if chosen else []
    if not asked or not any(entry["clean"] for entry in asked[0]):
        return None
    counts = _counts(pool, subjects, levels, right)
    shown = [_entry(pool, choice, subjects, found, misspellings) for choice, *found in zip(chosen, *asked, strict=True)]
    return {"level": LEVEL, "words": WORDS, "by": by, **counts, "examples": shown}


def _measure(cell: Cell, task: AnyTask) -> str:
    """Returns what is counted: "right tags", or the score of a single example that says most."""
    if RIGHT in cell.arrays:
        return "right tags"
    scores = task.scores_of_sums(cell.values["kind"], cell.arrays[STATISTICS].sum(axis=0).astype(np.float64))
    return next((name for name in ("accuracy", "mse") if name in scores), task.metric)


def _levels(levels: Sequence[Level]) -> list[Level]:
    """Returns for each kind of noise its level nearest `LEVEL`, of two the lower."""
    found: dict[str, Level] = {}
    for level in sorted(levels, key=lambda level: (abs(level.level - LEVEL), level.level)):
        if level.noise is not None:
            found.setdefault(level.kind, level)
    order = list(dict.fromkeys(level.kind for level in levels))
    return [found[kind] for kind in order if kind in found]


_Right = Mapping[tuple[str, Level | None], np.ndarray]


def _shown(subjects: Sequence[Subject], levels: Sequence[Level], right: _Right) -> list[Subject]:
    """Returns the models to show: all, or of many the best and the worst under noise."""
    if len(subjects) <= _MODELS or not levels:
        return list(subjects)
    order = sorted(subjects, key=lambda subject: -sum(float(right[subject.name, at].sum()) for at in levels))
    return [subject for subject in subjects if subject in (order[0], order[-1])]


def _counts(pool: _Pool, subjects: Sequence[Subject], levels: Sequence[Level], right: _Right) -> JsonObject:
    """Returns how many pairs of text and noise there are, and how many each model answers best, or better than clean.

    Of one model, "better" and "worse" compare it with itself without noise.
    """
    better, worse = dict.fromkeys((subject.name for subject in subjects), 0), 0
    for level in levels:
        for subject in subjects:
            others = [right[other.name, level] for other in subjects if other.name != subject.name]
            rival = np.max(others, axis=0) if others else right[subject.name, None]
            ahead = (right[subject.name, level] - rival)[pool.allowed]
            better[subject.name] += int((ahead > _EQUAL).sum())
            worse += 0 if others else int((ahead < -_EQUAL).sum())
    return {"pairs": len(levels) * int(pool.allowed.sum()), "better": better, "worse": worse}


def _chosen(
    pool: _Pool,
    subjects: Sequence[Subject],
    levels: Sequence[Level],
    right: _Right,
    misspellings: Misspellings | None,
) -> list[_Choice]:
    """Returns the examples to show: of each kind in turn, the costliest first, the one where models differ most."""
    queues: list[tuple[float, Iterator[_Choice]]] = []
    for level in levels:
        of_models = np.stack([right[subject.name, level] for subject in subjects])
        lost = np.mean([right[subject.name, None] for subject in subjects], axis=0) - of_models.mean(axis=0)
        spread = np.ptp(of_models, axis=0)
        order = [n for n in np.lexsort((-lost, -spread)).tolist() if pool.allowed[n] and max(spread[n], lost[n]) > 0]
        queues.append((float(lost.sum()), _changed(pool, order, level, misspellings)))
    waiting = [queue for _, queue in sorted(queues, key=lambda item: -item[0])]
    found: list[_Choice] = []
    taken: set[int] = set()
    while waiting and len(found) < SHOWN:
        queue = waiting.pop(0)
        choice = next((choice for choice in queue if choice.group not in taken), None)
        if choice is not None:
            found.append(choice)
            taken.add(choice.group)
            waiting.append(queue)
    return found


def _changed(pool: _Pool, order: Sequence[int], level: Level, misspellings: Misspellings | None) -> Iterator[_Choice]:
    """Yields those of the groups in whose shown text noise has changed something; only the first ones are tried."""
    assert level.noise is not None
    for group in order[:_TRIES]:
        noisy = version_of(pool.task, pool.groups[group], level.noise, 0, misspellings).examples
        if _texts(pool.task, noisy) != _texts(pool.task, pool.groups[group]):
            yield _Choice(group, level, level.noise)


def _asked(
    pool: _Pool,
    subject: Subject,
    chosen: Sequence[_Choice],
    misspellings: Misspellings | None,
    depends_on: Json,
    cells: Cells,
) -> list[JsonObject]:
    """Returns for each choice what a model answers to the clean and to the noisy text."""

    def compute() -> Cell:
        groups = [pool.groups[choice.group] for choice in chosen]
        versions = [
            version_of(pool.task, group, choice.noise, 0, misspellings)
            for group, choice in zip(groups, chosen, strict=True)
        ]
        flat = lambda parts: list(itertools.chain.from_iterable(parts))
        clean = subject.batches.predict(flat(groups))
        noisy = subject.batches.predict(flat(version.examples for version in versions))
        traces = flat(version.traces for version in versions)
        noisy = [subject.task.restored(p, trace) for p, trace in zip(noisy, traces, strict=True)]
        rows, start = [], 0
        for group in groups:
            part = slice(start, start := start + len(group))
            of = lambda found, group=group, part=part: [one._asdict() for one in subject.task.asked(group, found[part])]
            rows.append({"clean": of(clean), "noisy": of(noisy)})
        return Cell({"rows": rows}, {})

    key = [subject.digest, depends_on, [[choice.group, str(choice.noise)] for choice in chosen]]
    return cells.get(f"answers-{subject.family}", key, compute).values["rows"]


def _entry(
    pool: _Pool,
    choice: _Choice,
    subjects: Sequence[Subject],
    found: Sequence[JsonObject],
    misspellings: Misspellings | None,
) -> JsonObject:
    """Returns an example: its texts clean and noisy, and for each thing that it asks for the answers of the models."""
    group = pool.groups[choice.group]
    noisy = version_of(pool.task, group, choice.noise, 0, misspellings).examples
    pairs = zip(_texts(pool.task, group).items(), _texts(pool.task, noisy).values(), strict=True)
    asked = []
    for n, first in enumerate(found[0]["clean"]):
        given = [
            {
                "model": subject.name,
                "clean": answer["clean"][n]["answer"],
                "noisy": answer["noisy"][n]["answer"],
                "right": answer["noisy"][n]["right"],
            }
            for subject, answer in zip(subjects, found, strict=True)
        ]
        asked.append({"what": first["what"], "gold": first["gold"], "answers": given})
    return {
        "place": group[0].place,
        "kind": choice.level.kind,
        "level": choice.level.level,
        "spec": choice.level.spec,
        "texts": [{"field": name, "clean": _plain(a), "noisy": _plain(b)} for (name, a), b in pairs],
        "asked": asked,
    }


def _texts(task: AnyTask, group: Sequence[AnyExample]) -> dict[str, str | tuple[str, ...]]:
    """Returns the texts to show: those of the example, or what the examples of a group share."""
    return task.texts(group[0]) if task.by_word else task.scored(group)[0]


def _plain(text: str | tuple[str, ...]) -> str:
    return text if isinstance(text, str) else " ".join(text)

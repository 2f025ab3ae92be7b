"""Asks models for words that are left out, clean and under every noise, with and without a spelling corrector.

`measure` returns what `report` writes. All models choose from the same words, those that all of them can write, and
know how many characters the right one has, whatever they read and predict. Open it to change what is asked or how the
shown questions are chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from charlm.api.model import Model, load
from charlm.core.kept_rows import kept_rows
from charlm.core.types import JsonObject
from charlm.data.sentences import sentences_of
from charlm.evaluate_cloze.questions import Asked, Question, candidates_in, questions_of, read_candidates
from charlm.evaluate_cloze.settings import ClozeSettings
from charlm.evaluate_cloze.systems import COMMONEST, TOP, System
from charlm.metrics.compare import Metric
from charlm.metrics.systems import Measured, comparisons_of, differing, in_turn, scores_of
from charlm.search.vectors import digest_of, identity
from charlm.text.defences import Defence, defence_of, parsed
from charlm.text.noise import Noiser, Rewriter
from charlm.text.noise.levels import Level, planned
from charlm.text.noise.misspellings import Misspellings
from charlm.wordrec.defences import KNOWN

log = logging.getLogger("charlm")

FORMAT = 1
TASK = "cloze"
SHOWN = 10  # questions that the report shows with every system's answers
METRIC = "cloze_accuracy"
_ROWS = 1  # format of the rows; to be raised if what they hold, or how it is computed, changes
_FIRST, _AMONG = 1, 2  # columns of the rows: whether the right word is the first answer, or among the answers; 0: 1


def measure(settings: ClozeSettings) -> JsonObject:
    """Returns all numbers of a report, see `charlm.evaluate_cloze.report.write_report`.

    Raises:
      ValueError: a setting, a corpus or a model is wrong, no sentence has a word to leave out, or the folder of the
        report cannot be made.
    """
    levels, notes = planned(settings.noise, settings.misspellings)
    test = Cloze(settings)
    try:
        Path(settings.out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out={settings.out} cannot be made: {error.strerror}") from error
    measured = test.run(levels)
    return {
        "format": FORMAT,
        "task": TASK,
        "settings": settings.to_dict(),
        "metric": METRIC,
        "questions": len(test.questions),
        "candidates": {"listed": test.listed, "shared": len(test.candidates), "of_the_length": test.of_a_length},
        "systems": [
            {"name": one.name, "model": one.path, "defence": one.spec}
            | ({"title": one.model.pretrained.title, "writable": test.writable[one.path]} if one.model else {})
            for one in test.systems
        ],
        "noise": [level.name for level in levels],
        "scores": list(
            scores_of(measured, {METRIC: _share(_FIRST), f"{METRIC}@{TOP}": _share(_AMONG)}, settings.samples)
        ),
        "comparisons": list(comparisons_of(measured, _share(_FIRST), settings.samples)),
        "shown": test.shown(levels, measured),
        "notes": notes,
    }


def _share(column: int) -> Metric:
    """Returns the share of the questions for which a column of the rows is 1, as a function of sums of rows."""
    return lambda sums_RS: sums_RS[:, column] / sums_RS[:, 0]


class Cloze:
    """Questions and the systems that answer them.

    Args:
      settings: which they are.

    Attributes:
      listed: how many words were to be chosen from.
      candidates: those that all models can write, the most frequent first.
      writable: by model, how many of the listed words it can write.
      questions: what is asked.
      of_a_length: how many candidates have the length of the right one, the mean over questions.
      systems: the systems, in the order of the report.

    Raises:
      ValueError: a corpus, list or model cannot be read, a model fills no gaps, or there is no question.
    """

    def __init__(self, settings: ClozeSettings) -> None:
        self._settings = settings
        self._misspellings = Misspellings.read(settings.misspellings) if settings.misspellings else None
        self._chains: dict[str, list[Defence]] = {"": []}
        for spec in settings.defence:
            self._chains[spec] = [defence_of(part, KNOWN) for part in parsed(spec, KNOWN)]
        words = read_candidates(settings.words) if settings.words else candidates_in(sentences_of(settings.data))
        models = {path: load(path) for path in settings.models}
        self.listed, self.writable = len(words), {}
        for path, model in models.items():
            try:
                can_write = {*model.predictor.known_words(words).words} if words else set()
            except ValueError as error:
                raise ValueError(f"--models: {path}: {error}") from None
            self.writable[path] = len(can_write)
            words = [word for word in words if word in can_write]
        self.candidates = words
        asked = questions_of(sentences_of(settings.data, settings.sentences), words, settings.seed)
        self.questions = [one for one in asked if _has_one_gap(one, models.values())]
        if not self.questions:
            raise ValueError(self._nothing_to_ask())
        self._lengths = [len(question.word) for question in self.questions]
        self.of_a_length = float(np.mean([sum(len(word) == n for word in words) for n in self._lengths]))
        log.info("%d questions, %d words to choose from", len(self.questions), len(self.candidates))
        self.systems = list(self._systems(models))

    def _nothing_to_ask(self) -> str:
        where = ", ".join(self._settings.data)
        if not self.listed:
            return f"{where}: no word to leave out: expected sentences with words of small letters"
        if not self.candidates:
            return f"--models: of {self.listed} words to choose from, there is none that all models can write"
        return f"{where}: in no sentence is there one of the {len(self.candidates)} words to choose from"

    def _systems(self, models: dict[str, Model]) -> Iterator[System]:
        yield System(COMMONEST)
        asked = digest_of([str(_ROWS), str(TOP), *self.candidates, "", *(question.word for question in self.questions)])
        for path, model in models.items():
            key = digest_of([identity(model), asked])
            for spec in self._chains:
                yield System(f"{path} behind {spec}" if spec else path, path, model, spec, key)

    def read(self, questions: Sequence[Question], level: Level, seed: int, spec: str) -> list[Asked]:
        """Returns questions as a system reads them: with a gap, under a noise, behind a corrector."""
        rewriters: list[Rewriter] = list(self._chains[spec])
        if level.noise is not None:
            rewriters.insert(0, Noiser(level.noise, seed, self._misspellings))
        return [question.read_by(rewriters, question.sentence) for question in questions]

    def run(self, levels: Sequence[Level]) -> Measured:
        """Returns the rows of every system under every noise: 1, and whether it is right at once, or among five."""
        by_seed: dict[tuple[str, str], list[np.ndarray]] = {}
        for level in levels:
            for seed in range(self._settings.seeds if level.noise else 1):
                read = {spec: self.read(self.questions, level, seed, spec) for spec in self._chains}
                for system in self.systems:
                    rows = self._rows(system, read[system.spec])
                    by_seed.setdefault((system.name, level.name), []).append(rows)
                    if system.model is not None:
                        log.info("%s, %s: right at once %.3f", level.name, system.name, rows.mean(axis=0)[_FIRST])
        return Measured.of_seeds(by_seed)

    def _rows(self, system: System, asked: Sequence[Asked]) -> np.ndarray:
        """Returns the rows for texts as a system reads them, from the folder of the report if they are there."""

        def compute() -> np.ndarray:
            pairs = zip(self.questions, system.answers(asked, self._lengths, self.candidates), strict=True)
            return np.array([(1, question.word in got[:1], question.word in got) for question, got in pairs], float)

        if system.model is None:
            return compute()
        path = Path(self._settings.out) / "rows" / f"{digest_of([system.key, *(one.text for one in asked)])[:40]}.npy"
        return kept_rows(path, (len(asked), 3), compute)

    def shown(self, levels: Sequence[Level], measured: Measured) -> list[JsonObject]:
        """Returns questions with typos and what each system answers.

        They are taken from the noises in turn, each time the next question, in the order of the data, on which the
        models differ in whether they are right. With one model it is the next one on which it fails.
        """
        noisy = {level.name: level for level in levels if level.noise is not None}
        able = [one for one in self.systems if one.model is not None]
        right = {name: [measured.by_seed[one.name, name][0][:, _FIRST] == 1 for one in able] for name in noisy}
        chosen = in_turn({name: differing(of_systems) for name, of_systems in right.items()}, SHOWN)
        return [self._entry(noisy[name], self.questions[n], able) for name, n in chosen]

    def _entry(self, level: Level, question: Question, systems: Sequence[System]) -> JsonObject:
        (asked,) = self.read([question], level, 0, "")
        found = []
        for system in systems:
            (read,) = self.read([question], level, 0, system.spec)
            (answers,) = system.answers([read], [len(question.word)], self.candidates)
            found.append({"system": system.name, "read": read.text, "answers": answers})
        return {
            "noise": level.name, "sentence": question.sentence, "word": question.word, "asked": asked.text,
            "found": found,
        }  # fmt: skip


def _has_one_gap(question: Question, models: Iterable[Model]) -> bool:
    """Says whether no model takes anything else in a sentence for a gap, such as the mask token of its vocabulary."""
    text = question.read_by([], "").text
    return all(model.gaps(text) == 1 for model in models)

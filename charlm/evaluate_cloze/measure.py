"""Asks models for words that are left out, clean and under every noise, with and without a spelling corrector.

`measure` returns what `report` writes. All models choose from the same words and know how many characters the right one
has, whatever they read and predict. Open it to change what is asked or how the shown questions are chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from charlm.api.model import Model, load
from charlm.core.kept_rows import kept_rows
from charlm.core.types import JsonObject
from charlm.data.sentences import sentences_of
from charlm.evaluate_cloze.questions import Question, candidates_in, questions_of, read_candidates
from charlm.evaluate_cloze.settings import ClozeSettings
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
SHOWN = 10  # questions that the report shows with every system's answers
TOP = 5  # answers to a question that are looked at
METRIC = "accuracy"
_FIRST, _AMONG = 1, 2  # columns of the rows: whether the right word is the first answer, or among the answers; 0: 1


class System(NamedTuple):
    """A model, behind a spelling corrector or alone.

    Attributes:
      name: in the report.
      model: the model that guesses.
      spec: the corrector; "": none.
      key: what its rows are known by.
      writable: how many of the words to choose from it can write.
    """

    name: str
    model: Model
    spec: str
    key: str
    writable: int


def measure(settings: ClozeSettings) -> JsonObject:
    """Returns all numbers of a report, see `charlm.evaluate_cloze.report.write_report`.

    Raises:
      ValueError: a setting, a corpus or a model is wrong, or no sentence has a word to leave out.
      OSError: the folder of the report cannot be written.
    """
    levels, notes = planned(settings.noise, settings.misspellings)
    test = Cloze(settings)
    measured = test.run(levels)
    return {
        "format": FORMAT,
        "settings": settings.to_dict(),
        "metric": METRIC,
        "questions": len(test.questions),
        "candidates": len(test.candidates),
        "systems": [
            {"name": one.name, "model": one.model.path, "defence": one.spec, "title": one.model.pretrained.title}
            | {"writable": one.writable}
            for one in test.systems
        ],
        "noise": [level.name for level in levels],
        "scores": list(scores_of(measured, {METRIC: _share(_FIRST), f"{METRIC}@{TOP}": _share(_AMONG)},
                                 settings.samples)),
        "comparisons": list(comparisons_of(measured, _share(_FIRST), settings.samples)),
        "shown": test.shown(levels, measured),
        "notes": notes,
    }  # fmt: skip


def _share(column: int) -> Metric:
    """Returns the share of the questions for which a column of the rows is 1, as a function of sums of rows."""
    return lambda sums_RS: sums_RS[:, column] / sums_RS[:, 0]


class Cloze:
    """Questions and the systems that answer them.

    Args:
      settings: which they are.

    Attributes:
      questions, candidates: what is asked, and the words to choose from.
      systems: the systems, in the order of the report.

    Raises:
      ValueError: a corpus, list or model cannot be read, a model fills no gaps, or there is no question.
    """

    def __init__(self, settings: ClozeSettings) -> None:
        self._settings = settings
        sentences = list(sentences_of(settings.data, settings.sentences))
        self.candidates = read_candidates(settings.words) if settings.words else candidates_in(sentences)
        self.questions = list(questions_of(sentences, self.candidates, settings.seed))
        if not self.questions:
            raise ValueError(f"{', '.join(settings.data)}: no sentence with a word to leave out")
        log.info("%d questions, %d words to choose from", len(self.questions), len(self.candidates))
        self._misspellings = Misspellings.read(settings.misspellings) if settings.misspellings else None
        self._chains: dict[str, list[Defence]] = {"": []}
        for spec in settings.defence:
            self._chains[spec] = [defence_of(part, KNOWN) for part in parsed(spec, KNOWN)]
        self.systems = list(self._systems())

    def _systems(self) -> Iterator[System]:
        asked = digest_of([*self.candidates, "", *(question.word for question in self.questions)])
        for path in self._settings.models:
            model = load(path)
            try:
                writable = len(model.predictor.known_words(self.candidates))
            except ValueError as error:
                raise ValueError(f"--models: {path}: {error}") from None
            key = digest_of([identity(model), asked, str(TOP)])
            for spec in self._chains:
                yield System(f"{path} behind {spec}" if spec else path, model, spec, key, writable)

    def read(self, questions: Sequence[Question], level: Level, seed: int, spec: str) -> list[str]:
        """Returns questions as a system reads them: with a gap, under a noise, behind a corrector."""
        rewriters: list[Rewriter] = list(self._chains[spec])
        if level.noise is not None:
            rewriters.insert(0, Noiser(level.noise, seed, self._misspellings))
        return [question.read_by(rewriters, question.sentence) for question in questions]

    def answers(self, system: System, texts: Sequence[str]) -> list[list[str]]:
        """Returns the likeliest words for the gap of each text, best first."""
        return [
            [word.word for word in gaps[0].words] for gaps in system.model.fill_mask(texts, TOP, words=self.candidates)
        ]

    def run(self, levels: Sequence[Level]) -> Measured:
        """Returns the rows of every system under every noise: 1, and whether it is right at once, or among five."""
        by_seed: dict[tuple[str, str], list[np.ndarray]] = {}
        for level in levels:
            for seed in range(self._settings.seeds if level.noise else 1):
                read = {spec: self.read(self.questions, level, seed, spec) for spec in self._chains}
                for system in self.systems:
                    rows = self._rows(system, read[system.spec])
                    by_seed.setdefault((system.name, level.name), []).append(rows)
            for system in self.systems:
                found = np.mean(by_seed[system.name, level.name], axis=(0, 1))
                log.info("%s, %s: %s %.3f", level.name, system.name, METRIC, found[_FIRST])
        return Measured.of_seeds(by_seed)

    def _rows(self, system: System, texts: Sequence[str]) -> np.ndarray:
        """Returns the rows for texts as a system reads them, from the folder of the report if they are there."""
        path = Path(self._settings.out) / "rows" / f"{digest_of([system.key, *texts])[:40]}.npy"

        def compute() -> np.ndarray:
            pairs = zip(self.questions, self.answers(system, texts), strict=True)
            return np.array([(1, question.word in got[:1], question.word in got) for question, got in pairs], float)

        return kept_rows(path, (len(texts), 3), compute)

    def shown(self, levels: Sequence[Level], measured: Measured) -> list[JsonObject]:
        """Returns questions with typos and what each system answers.

        They are taken from the noises in turn, each time the next question, in the order of the data, on which the
        systems differ in whether they are right. With one system it is the next one on which it fails.
        """
        noisy = {level.name: level for level in levels if level.noise is not None}
        right = {name: [measured.by_seed[one.name, name][0][:, _FIRST] == 1 for one in self.systems] for name in noisy}
        chosen = in_turn({name: differing(of_systems) for name, of_systems in right.items()}, SHOWN)
        return [self._entry(noisy[name], self.questions[n]) for name, n in chosen]

    def _entry(self, level: Level, question: Question) -> JsonObject:
        (asked,) = self.read([question], level, 0, "")
        found = []
        for system in self.systems:
            (read,) = self.read([question], level, 0, system.spec)
            found.append({"system": system.name, "read": read, "answers": self.answers(system, [read])[0]})
        return {
            "noise": level.name, "sentence": question.sentence, "word": question.word, "asked": asked, "found": found
        }  # fmt: skip

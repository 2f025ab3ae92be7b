"""Computes all cells of a report: every model reads the same noisy texts, one noise after the other.

Open it to add a measurement, or to change the order in which models and noises are measured.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from charlm.core.files import stable_hash
from charlm.core.types import Json, JsonObject
from charlm.robustness import attacks, scoring
from charlm.robustness.answers import answers
from charlm.robustness.cells import Cell, Cells
from charlm.robustness.sensitivity import sensitivity_of, word_states
from charlm.robustness.settings import Level, ReportSettings
from charlm.robustness.subjects import Subject
from charlm.robustness.versions import STREAM, sentences_of, versions_of
from charlm.tasks.base import AnyExample, AnyTask
from charlm.text.noise import KINDS, Noise, Noiser
from charlm.text.noise.misspellings import Misspellings

log = logging.getLogger("charlm")

SENTENCES = 1000  # maximum number of sentences for the sensitivity, since their states are held in memory


def first_of(task: AnyTask, examples: Sequence[AnyExample], count: int) -> list[AnyExample]:
    """Returns the first `count` examples (0: all), and all examples that are scored in a group with one of them."""
    if not count:
        return list(examples)
    groups = {task.group(example) for example in examples[:count]} - {None}
    return [example for n, example in enumerate(examples) if n < count or task.group(example) in groups]


class Measured(NamedTuple):
    """All measurements of a report.

    Attributes:
      clean: the cell of the clean text, by model.
      noisy: a cell for each draw of the noise, by model and level; at level 0, the cell of the clean text.
      sensitivity, adversarial, answers: entries of the results.
    """

    clean: dict[str, Cell]
    noisy: dict[tuple[str, Level], list[Cell]]
    sensitivity: list[JsonObject]
    adversarial: list[JsonObject]
    answers: JsonObject | None


class Measurement:
    """The measurement of one report.

    Args:
      settings: the settings of the report.
      levels: the noises and levels to measure.
      words: the list of misspellings, if there is one.
      subjects: the models.
      examples: the examples of the task, with labels.
    """

    def __init__(
        self,
        settings: ReportSettings,
        levels: Sequence[Level],
        words: Misspellings | None,
        subjects: Sequence[Subject],
        examples: list[AnyExample],
    ) -> None:
        self._settings, self._levels = settings, levels
        self._words, self._subjects, self._examples = words, subjects, examples
        self._task = subjects[0].task
        self._cells = Cells(Path(settings.out))
        self._versions = versions_of(self._task, examples, words)
        self._data_digest = self._digest(examples)
        self._words_digest = "" if words is None else stable_hash(Path(settings.misspellings).read_bytes().hex())
        self._clean_states: dict[str, np.ndarray] = {}

    def run(self) -> Measured:
        """Computes the missing cells and returns all measurements."""
        self._count_found()
        clean = {subject.name: self._scored(subject, None, 0) for subject in self._subjects}
        noisy: dict[tuple[str, Level], list[Cell]] = {}
        sensed: list[JsonObject] = []
        for level in self._levels:
            for subject in self._subjects:
                noisy[subject.name, level] = [clean[subject.name]] if level.noise is None else []
            for noise, seed, subject in self._draws(level):
                noisy[subject.name, level].append(self._scored(subject, noise, seed))
                # Sensitivity is that of a model's own states, so a defence has none.
                if seed == 0 and not KINDS[noise.kind].resizes and not subject.defence:
                    place = {"model": subject.name, "kind": level.kind, "level": level.level}
                    sensed.append(place | self._sensed(subject, noise).values)
        self._clean_states.clear()
        depends_on = [self._data_digest, self._words_digest]
        answered = answers(self._subjects, self._examples, clean, noisy, self._words, depends_on, self._cells)
        attacked = self._attacked() + self._attacked_by_recipes()
        log.info(
            "%d scores, sensitivities and answers were there, %d computed", self._cells.found, self._cells.computed
        )
        return Measured(clean, noisy, sensed, attacked, answered)

    def _draws(self, level: Level) -> Iterator[tuple[Noise, int, Subject]]:
        """Yields the draws of a level; all models read one draw before the next draw is made."""
        if level.noise is not None:
            for seed, subject in itertools.product(range(self._settings.seeds), self._subjects):
                yield level.noise, seed, subject

    def _digest(self, examples: Sequence[AnyExample]) -> str:
        """Returns a digest of the examples and of the settings of the task that affect noise."""
        in_context = self._task.noise_context
        return stable_hash(self._task.name, in_context, [example._replace(place="") for example in examples])

    def _depends(self, subject: Subject, noise: Noise | None, seed: int) -> list[Json]:
        words = self._words_digest if noise is not None and KINDS[noise.kind].listed else ""
        by_class = [self._task.metric] if self._task.metric in scoring.MEANS_OF_CLASSES else []
        return [subject.digest, self._data_digest, str(noise), seed, words, *by_class]

    def _count_found(self) -> None:
        wanted: list[tuple[Subject, Noise | None, int]] = [(subject, None, 0) for subject in self._subjects]
        wanted += [(subject, noise, n) for level in self._levels for noise, n, subject in self._draws(level)]
        found = sum(self._cells.has(_name("score", *one), self._depends(*one)) for one in wanted)
        log.info("%d examples; %d of %d scores are there", len(self._examples), found, len(wanted))

    def _scored(self, subject: Subject, noise: Noise | None, seed: int) -> Cell:
        def compute() -> Cell:
            version = None if noise is None else self._versions(noise, seed)
            cell = scoring.score(subject, self._examples, version)
            metric = self._task.metric
            where = "clean" if noise is None else f"{noise}  seed {seed}"
            log.info("%s  %s  %s %.4f", subject.name, where, metric, cell.values["scores"][metric])
            return cell

        return self._cells.get(_name("score", subject, noise, seed), self._depends(subject, noise, seed), compute)

    def _sensed(self, subject: Subject, noise: Noise) -> Cell:
        key = [*self._depends(subject, noise, 0), SENTENCES]
        compute = lambda: Cell(self._sensitivity(subject, noise), {})
        return self._cells.get(_name("sensitivity", subject, noise, 0), key, compute)

    def _sensitivity(self, subject: Subject, noise: Noise) -> JsonObject:
        task = self._task
        sentences = [words for words in sentences_of(task, self._examples) if words][:SENTENCES]
        if task.by_word:  # use the same noisy text that is scored
            noisy = [words for words in sentences_of(task, self._versions(noise, 0).examples) if words][:SENTENCES]
        else:
            noiser = Noiser(noise, 0, self._words)
            noisy = [noiser.words(words, f"{STREAM}/{n}").words for n, words in enumerate(sentences)]
        if subject.name not in self._clean_states:
            self._clean_states[subject.name] = word_states(subject.model, sentences, subject.batches)
        found = sensitivity_of(subject.model, sentences, noisy, subject.batches, self._clean_states[subject.name])
        log.info("%s  %s  sensitivity %.4f", subject.name, noise, found.all or 0.0)
        return found._asdict()

    def _attacked(self) -> list[JsonObject]:
        if not self._settings.adversarial:
            return []
        examples = first_of(self._task, self._examples, self._settings.adversarial_examples)
        found = []
        for subject in self._subjects:
            key = [subject.digest, self._digest(examples)]
            entry, rows = attacks.attacked(subject, examples, key, self._settings, self._cells)
            path = attacks.write(Path(self._settings.out), subject.name, self._task, rows)
            log.info("adversarial examples: %s", path)
            found.append(entry)
        return found

    def _attacked_by_recipes(self) -> list[JsonObject]:
        examples = first_of(self._task, self._examples, self._settings.adversarial_examples)
        found = []
        for subject, recipe in itertools.product(self._subjects, self._settings.attack):
            key = [subject.digest, self._digest(examples)]
            entry, rows = attacks.attacked_by_recipe(subject, examples, key, recipe, self._cells)
            name = f"{subject.name}.{recipe}"
            log.info("attacked examples: %s", attacks.write(Path(self._settings.out), name, self._task, rows))
            found.append(entry)
        return found


def _name(what: str, subject: Subject, noise: Noise | None, seed: int) -> str:
    """Returns the name of a cell; it names the family, since the model may have another name in the next run."""
    kind = "clean" if noise is None else f"{noise}-{seed}".replace(":", "-").replace("@", "-")
    return f"{what}-{subject.family}-{kind}"

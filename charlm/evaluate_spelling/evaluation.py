"""Runs an evaluation: makes the sentences, asks every system, and writes the report.

`python -m charlm.evaluate_spelling` calls it. Open it to change which systems are compared.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from charlm.core.reading import read_text
from charlm.core.stores import here
from charlm.core.types import JsonObject
from charlm.data.sentences import sentences_of
from charlm.evaluate_spelling.data import Example, misspelled, read_typos
from charlm.evaluate_spelling.measure import Measured, differences, run, summary, warm
from charlm.evaluate_spelling.report import shown_sentences, write_report
from charlm.evaluate_spelling.rewritten import read_rewritten
from charlm.evaluate_spelling.settings import RIVALS, SpellingSettings
from charlm.evaluate_spelling.systems import AsItIs, Model, OfTexts, OfWords, System
from charlm.families.corrections import counted_words
from charlm.families.predictor import Predictor
from charlm.text.defences import new_defence
from charlm.text.noise.misspellings import Misspellings
from charlm.text.noise.mixture import parted

log = logging.getLogger("charlm")


def evaluate(settings: SpellingSettings) -> list[Path]:
    """Runs the evaluation; returns the files of the report, the table first.

    Raises:
      ValueError: a model, list, text or program cannot be read, or a model is no speller.
    """
    systems = list(systems_of(settings))
    sets: list[JsonObject] = []
    shown = ""
    for name, about, examples in sets_of(settings):
        log.info("%s: %s", name, about)
        found = [_measured(system, examples) for system in systems]
        ours = [one for one, system in zip(found, systems, strict=True) if isinstance(system, Model)]
        rivals = [one for one, system in zip(found, systems, strict=True) if isinstance(system, OfTexts | OfWords)]
        gaps = [
            gap for one in ours for other in rivals for gap in differences(one, other, settings.samples, settings.seed)
        ]
        said = [summary(one, settings.samples, settings.seed) for one in found]
        sets.append({"name": name, "about": about, "systems": said, "differences": gaps})
        shown += shown_sentences(examples, found)
    results = {
        "sets": sets,
        "about": {system.name: system.about for system in systems},
        "samples": settings.samples,
        "notes": _notes(settings),
        "command": settings.command,
    }
    return write_report(results, Path(settings.out), shown)


def _measured(system: System, examples: list[Example]) -> Measured:
    warm(system, examples)
    found = run(system, examples)
    log.info("%s: %d sentences in %.1f s", system.name, len(examples), found.seconds)
    return found


def systems_of(settings: SpellingSettings) -> Iterator[System]:
    """Yields the systems in the order of the tables; ValueError if one cannot be had."""
    yield AsItIs()
    for rival in settings.rivals:
        # One each, or what the first has found would make the second look faster.
        yield from (OfTexts(rival, new_defence(rival, RIVALS)), OfWords(rival, new_defence(rival, RIVALS)))
    words = further_words(settings)
    for path in settings.models:
        predictor = Predictor.from_checkpoint(here(path))
        try:
            predictor.require("correct")
        except ValueError as error:
            raise ValueError(f"--models: {path}: {error}") from None
        _warn_of_words_seen(path, predictor, settings)
        for threshold in settings.threshold:
            yield Model(path, predictor, settings.batch_size, None, threshold)
            if words:
                yield Model(path, predictor, settings.batch_size, words, threshold)


def further_words(settings: SpellingSettings) -> dict[str, float] | None:
    """Returns the words of --words with their counts; None without that option."""
    path = settings.words
    return counted_words(read_text(path).splitlines(), f"--words={path}") if path else None


def kept_from_training(predictor: Predictor) -> float:
    """Returns the share of the words of lists whose misspellings a speller was not trained on."""
    config = getattr(predictor, "config", {})
    return config["spelling"]["heldout_words"] if "spelling" in config else 0.0


def _warn_of_words_seen(path: str, predictor: Predictor, settings: SpellingSettings) -> None:
    """Warns where a model may have been trained on misspellings of the words that it is asked about."""
    kept = kept_from_training(predictor)
    if settings.lists and settings.heldout_words > kept:
        log.warning(
            "%s: --heldout-words=%g, but training kept %g of the words of its lists (spelling.heldout_words): it may "
            "have seen some of these misspellings",
            path,
            settings.heldout_words,
            kept,
        )


def sets_of(settings: SpellingSettings, listed: Misspellings | None = None) -> Iterator[tuple[str, str, list[Example]]]:
    """Yields the sets of sentences with their names and a line about each; ValueError if one has no sentence.

    Args:
      listed: the misspellings that are put into --data; None: of the lists, those of `settings.heldout_words`.
    """
    if settings.data:
        if listed is None:
            listed = parted(settings.lists, settings.heldout_words, held_out=True)
        sentences = sentences_of(settings.data, settings.sentences)
        how = settings.rate, settings.clean, settings.seed, not settings.no_real_words
        yield _described("Listed misspellings in real text", misspelled(sentences, listed, *how), settings.data)
    for path in settings.typos:
        yield _described("Misspellings as they were written", read_typos(path), [path])
    if settings.rewritten:
        path, *rewrites = settings.rewritten
        yield _described("Misspellings that most rewrites mend", read_rewritten(path, rewrites), settings.rewritten)


def _described(name: str, examples: list[Example], files: list[str]) -> tuple[str, str, list[Example]]:
    if not examples:
        raise ValueError(f"{', '.join(files)}: no sentence to correct")
    pairs = [pair for one in examples for pair in zip(one.read, one.meant, strict=True) if pair[1] is not None]
    wrong = sum(read != meant for read, meant in pairs)
    clean = sum(all(m in (r, None) for r, m in zip(one.read, one.meant, strict=True)) for one in examples)
    names = ", ".join(Path(file).name for file in files)
    about = f"{len(examples):,} sentences of {names}, {clean:,} of them without a misspelling; {len(pairs):,} words "
    return name, f"{about}and marks, {wrong:,} of them misspelled.", examples


def _notes(settings: SpellingSettings) -> list[str]:
    if not settings.data:
        return []
    real = "left out" if settings.no_real_words else "among them"
    return [
        f"Misspellings put in: those of {settings.heldout_words:g} of the words of the lists, chosen by the SHA-256 of "
        f"the word; {settings.rate:g} of the words that have one in {1 - settings.clean:g} of the sentences, seed "
        f"{settings.seed}. Misspellings that are another word of the lists are {real}.",
    ]

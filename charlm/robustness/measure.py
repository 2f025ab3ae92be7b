"""The main function of the report: measures models under noise and writes all numbers to `results.json`.

Open it to follow a report from its options to its numbers; `render` writes the readable files. `DESCRIPTION` explains
the contents of `results.json`.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from charlm.core.durable import write_text
from charlm.core.reading import read_object
from charlm.core.types import JsonObject, Option
from charlm.core.version import __version__
from charlm.data.examples import noted
from charlm.data.files import matching_files
from charlm.robustness import groups
from charlm.robustness.measurement import SENTENCES, Measurement, first_of
from charlm.robustness.results import RESULTS_FORMAT, plain, tables
from charlm.robustness.settings import Level, ReportSettings, planned
from charlm.robustness.subjects import load
from charlm.robustness.sums import write_sums
from charlm.robustness.versions import sentences_of
from charlm.tasks.base import AnyExample, AnyTask, Task
from charlm.tasks.classification import Classification, Regression
from charlm.tasks.tagging import Tagging
from charlm.text.noise.misspellings import Misspellings
from charlm.training import workdir as workdirs

log = logging.getLogger("charlm")

RESULTS_FILE = "results.json"

DESCRIPTION = """
format, task, metric, examples  of the file; the task's name and its score; how many examples were read
settings       `charlm.robustness.settings.ReportSettings`, and the version of charlm
models         name, path, family, trained_with (noise in training), seed (of training), defence (in front; "": none)
clean          of each model its scores
noise          of each model, kind and level (0: clean, with no draw): spec; seen (such noise was in training); seeds;
               scores (mean, sd, values); drop (clean minus noisy, with its interval); changed (share of words)
comparisons    a minus b with its interval, of every two models clean (kind null, level 0) and under each noise
groups         count and score of groups of words (tagging: share of right tags) or examples (else: the metric), over
               all draws: "all"; "split", "in vocabulary" (one piece of the reference tokenizer); "unseen in training",
               "seen in training"; of tagging "changed", "unchanged" by noise. A group of examples is of those with such
               a word (split, unseen), or of those without any. With --columns group=COLUMN also
               "COLUMN=VALUE" of each value. Of entities: how many have a word of the group, their F1
segmentation   of the first draw: units_per_word; split (share of words); unknown (share of units; HLM: of characters);
               cut (share of words that lose characters). Of question answering: of the questions
sensitivity    mean (1 - cos) / 2 of the states of words before and after noise: all words, and those changed
adversarial    edits (allowed), examples, clean and attacked (scores), flipped (share), edits_used (mean); of published
               attacks: recipe, examples, skipped (wrong before), clean, attacked, success (share of those not skipped),
               queries (mean), words (mean share of words changed, of successes)
answers        examples with their typos and the models' answers, null if there are none: level (each kind is shown at
               its own one nearest this), words (longest text), by (what models differ in), pairs (of text and noise to
               choose from), better (by model, how many it answers best; of one model: better than clean), worse (of one
               model), examples: place, kind, level, spec, texts (field, clean, noisy), asked (what, gold, answers:
               model, clean, noisy, right: whether the noisy one is)
notes          what was left out, and why
Numbers that are not there are null.
"""


def measure(models: Sequence[str], data: Sequence[str], out: str, **options: Option) -> JsonObject:
    """Measures models and returns the results, which are also written to `RESULTS_FILE` in the folder `out`.

    Earlier measurements of the same models, data and noise are read from `out`.

    Args:
      models, data, out, options: see `charlm.robustness.settings.ReportSettings`.

    Raises:
      ValueError: the settings are wrong, or data or models are missing, damaged or do not fit together.
    """
    settings = ReportSettings(tuple(models), tuple(data), str(out), **options)
    levels, notes = planned(settings)
    misspellings = _misspellings(settings.misspellings)
    files = [file for spec in settings.data for file in _files(spec)]
    with workdirs.created(Path(settings.out), "--out"):
        workdirs.check_writable(Path(settings.out), "--out")
        _warn_of_loss(settings)
        return _measure(settings, levels, notes, misspellings, files)


def _warn_of_loss(settings: ReportSettings) -> None:
    """Logs that the folder has a report on other models and other data, which this one replaces."""
    path = Path(settings.out) / RESULTS_FILE
    if not path.is_file():
        return
    before = read_object(path).get("settings", {})
    models, data = ([str(one) for one in before.get(name, ())] for name in ("models", "data"))
    if models and not {*models} & {*settings.models} and {*data} != {*settings.data}:
        log.warning("%s: the report on %s and %s is replaced", settings.out, ", ".join(models), ", ".join(data))


def _measure(
    settings: ReportSettings, levels: list[Level], notes: list[str], misspellings: Misspellings | None, files: list[str]
) -> JsonObject:
    subjects = load(settings.models, settings.batch_size, settings.task, settings.defence)
    task = subjects[0].task
    task.check_scores()
    if settings.attack and type(task).answer is Task.answer:
        raise ValueError(f"--attack: {task.name} predicts numbers, which no attack makes wrong (--adversarial works)")
    with noted(notes):
        examples = _examples(task, files, settings)
    column = settings.columns_by_name().get("group")
    named = [f"{column}={example.group}" for example in examples] if column else None
    known = groups.known_words(settings.train_words, subjects[0], notes)
    tokenizer = groups.reference_tokenizer(settings.tokenizer, subjects, notes)
    measured = Measurement(settings, levels, misspellings, subjects, examples).run()
    if measured.sensitivity and len(sentences_of(task, examples)) > SENTENCES:
        notes.append(f"sensitivity is that of the first {SENTENCES} sentences")
    results = {
        "format": RESULTS_FORMAT,
        "task": task.name,
        "metric": task.metric,
        "settings": settings.to_dict() | {"charlm": __version__},
        "models": [subject.described() for subject in subjects],
        "examples": len(examples),
        **tables(measured, subjects, groups.masks(task, examples, tokenizer, known, named), settings.samples),
        "sensitivity": measured.sensitivity,
        "adversarial": measured.adversarial,
        "answers": measured.answers,
        "notes": list(dict.fromkeys(notes)),
    }
    results = plain(results)
    write_sums(Path(settings.out), measured.clean, measured.noisy)
    path = Path(settings.out) / RESULTS_FILE
    write_text(path, json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    log.info("results: %s", path)
    return results


def _misspellings(file: str) -> Misspellings | None:
    try:
        return Misspellings.read(file) if file else None
    except OSError as error:
        raise ValueError(f"--misspellings={file} cannot be read: {error.strerror}") from error


def _files(spec: str) -> list[str]:
    return [spec] if spec.startswith("tfds:") else matching_files(spec, "--data")


def _examples(task: AnyTask, files: Sequence[str], settings: ReportSettings) -> list[AnyExample]:
    """Returns the examples; raises ValueError if there are none, or if one has no label."""
    reader = task
    if named := settings.columns_by_name():
        if not isinstance(task, Classification | Regression):
            raise ValueError(f"--columns: {task.name} reads other files than tables of texts, which have columns")
        reader = copy.copy(task)
        reader.columns = dataclasses.replace(task.columns, **named)
    examples = first_of(task, reader.read(files, training=False), settings.examples)
    if not examples:
        raise ValueError(f"--data: no examples in {', '.join(settings.data)}")
    if isinstance(task, Tagging):
        tags = {tag for example in examples for tag in example.tags or ()}
        if tags and not tags & {*task.labels}:
            known, found = (", ".join(sorted(some)[:20]) for some in (task.labels, tags))
            raise ValueError(f"--data: none of its tags is one of the model's: {found}; expected {known}")
    for example in examples:
        if not task.is_labelled(example):
            raise ValueError(f"--data: {example.place} has no label: nothing to compare predictions with")
    return examples

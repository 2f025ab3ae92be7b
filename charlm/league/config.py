"""Declares what a league is: every key of its config once, with its meaning, and the checks of a whole config.

A file such as configs/league.py starts from `get_config`, and adds systems, tasks and claims by `add_system`,
`add_task` and `Claim`. Open it to add a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ml_collections

from charlm.config import flatten, is_fine_tuning, load_config_file, no_config_file
from charlm.core.keys import Key, amount, count, defaults, natural, put, set_typed, share
from charlm.core.nearest import did_you_mean
from charlm.families.family import family
from charlm.league.settings import check_settings
from charlm.text.defences import parsed
from charlm.text.noise import KINDS, Noise

TASK = "league"  # in place of the task of a config that trains
FOLDER = "{folder}"  # in names of files: stands for the key data.folder
ALL = "all"  # in place of kinds of noise: every kind; in claims: the mean over tasks

KEYS: dict[str, Key] = {
    "title": Key("League", "title of the report"),
    "data.folder": Key("", "what {folder} stands for in the names of files below"),
    "corpora.train": Key(("builtin",), "corpora that every system is pre-trained on, as data.train names them"),
    "corpora.heldout": Key((), "corpora to evaluate on; empty: a part of `train` set aside by document"),
    "corpora.heldout_fraction": share(0.02, "share of documents set aside when `heldout` is empty"),
    "corpora.splitter": Key("rules", "whose words are counted by the budget, whatever a system itself reads"),
    "budget.words": count(10_000_000, "words that a system of share 1 sees in pre-training, repeated ones too"),
    "budget.flops": amount(0.0, "useful operations that a system of share 1 costs, instead of budget.words; 0: words"),
    "pretraining.runs": count(1, "runs of pre-training of each system, of seeds 0, 1, ...; 1: of the config's seed"),
    "pretraining.baseline": Key(
        "", "without tasks: the system that others are compared with; empty: the first by name"
    ),
    "budget.batches": count(20, "training batches from which the words of a step are measured"),
    "budget.warmup_share": share(0.1, "share of the steps in which the learning rate rises"),
    "budget.evaluations": count(5, "evaluations on held-out text"),
    "budget.checkpoints": count(20, "checkpoints written in the course of pre-training"),
    "budget.reports": count(50, "lines of metrics; words seen and FLOPs are taken from them"),
    "tuning.seeds": Key((0, 1, 2), "seeds of fine-tuning: one run for each, of each system and task"),
    "robustness.noise": Key((ALL,), 'kinds, or "kind:rate"; a kind alone has its usual rate; "all": every kind'),
    "robustness.draws": count(1, "draws of each noise"),
    "robustness.misspellings": Key("", 'list of misspellings for the kind "misspelling"; empty: not measured'),
    "robustness.examples": natural(0, "use only the first examples of each task; 0: all"),
    "robustness.batch_size": count(32, "rows predicted at a time"),
    "robustness.samples": count(2000, "resamples for each interval"),
    "claims": Key((), 'statements that the report answers: "A ahead of B on TASK under NOISE by POINTS"'),
}
SYSTEM: dict[str, Key] = {
    "title": Key("", "name in the report; empty: the name in the config"),
    "config": Key("", "config of pre-training, such as hlm_base:tiny, or path/to/file.py:variant"),
    "set": Key((), 'settings of pre-training, each "key=value"'),
    "start": Key("", "system whose model this one starts from; empty: from nothing"),
    "share": Key(1.0, "share of budget.words that it sees itself", least=0, finite=True),
    "stage": Key("", "stage of pre-training that reads text, of families with stages; its steps follow the budget"),
    "subwords": Key("", 'tokenizer trained from the corpora first: "wordpiece", or byte-level "bytes:KIND"'),
    "pieces": count(8000, "subwords of that tokenizer"),
    "tune": Key((), 'settings of fine-tuning for this system alone, each "key=value"'),
    "same": Key("", "this entry is the pre-trained model of that system, fine-tuned by settings of its own (`tune`)"),
    "tasks": Key((), "of an entry with `same`: the tasks that it is fine-tuned for; empty: all"),
    "behind": Key("", "this entry is the system of that name behind `defence`, not trained again"),
    "defence": Key("", "what corrects texts before `behind` reads them, such as symspell"),
    "ranked": Key(True, "False: only a model that others start from, not fine-tuned itself"),
}
TASK_KEYS: dict[str, Key] = {
    "title": Key("", "name in the report; empty: the name in the config"),
    "config": Key("", "config of fine-tuning, such as tag:tiny, or path/to/file.py:variant"),
    "train": Key((), "files to learn from"),
    "dev": Key((), "files to choose the best epoch by; empty: a part of `train` set aside"),
    "measure": Key((), "files to measure on; empty: every `measure_every`-th example of `train`, which learns none"),
    "measure_every": Key(5, "where `measure` is empty: one of so many examples is measured on", least=2),
    "set": Key((), 'settings of fine-tuning, each "key=value"'),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_-]*")
_CLAIM = re.compile(r"(\S+) ahead of (\S+) on (\S+)(?: under (\S+))?(?: by (\d+(?:\.\d+)?))?")
SECTIONS = {"systems": SYSTEM, "tasks": TASK_KEYS}


class Claim(NamedTuple):
    """A statement that one system is ahead of another.

    Attributes:
      text: the statement as it was written.
      a, b: the systems; `a` is said to be ahead.
      task: the task, or "all": the mean over tasks.
      noise: "": clean; "noise": the mean over all noises; else a noise as `kind:rate`.
      points: by how many hundredths of the metric at least; 0: by any.
    """

    text: str
    a: str
    b: str
    task: str
    noise: str = ""
    points: float = 0.0


def get_config() -> ml_collections.ConfigDict:
    """Returns a league without systems and tasks."""
    config = ml_collections.ConfigDict({"task": TASK, "systems": {}, "tasks": {}})
    put(config, defaults(KEYS))
    return config


def add_system(league: ml_collections.ConfigDict, name: str, /, **values: object) -> None:
    """Adds a system to a league; `values` are keys of `SYSTEM`, ValueError for another."""
    _add(league, "systems", name, values)


def add_task(league: ml_collections.ConfigDict, name: str, /, **values: object) -> None:
    """Adds a task to a league; `values` are keys of `TASK_KEYS`, ValueError for another."""
    _add(league, "tasks", name, values)


def _add(config: ml_collections.ConfigDict, section: str, name: str, values: Mapping[str, object]) -> None:
    entry = ml_collections.ConfigDict(defaults(SECTIONS[section]))
    for key, value in values.items():
        if key not in entry:
            raise ValueError(f"{section}.{name}: no key {key!r}{did_you_mean(key, entry.keys())}")
        entry[key] = value
    with config.unlocked():
        config[section][name] = entry


def set_key(config: ml_collections.ConfigDict, setting: str) -> None:
    """Sets a key of a league; see `charlm.core.keys.set_typed`."""
    set_typed(config, setting, KEYS, "the league")


def resolved(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Returns the checked config with {folder} replaced, noises with their rates, and paths of config files found.

    Raises:
      ValueError: a wrong value; names key, value and what is expected.
    """
    if config.get("task") != TASK:
        raise ValueError("the config is none of a league: charlm.league.config.get_config() makes one")
    config = config.copy_and_resolve_references()
    _check(config)
    folder = config.data.folder.rstrip("/")
    with config.unlocked():
        config.corpora.train = _in_folder("corpora.train", config.corpora.train, folder)
        config.corpora.heldout = _in_folder("corpora.heldout", config.corpora.heldout, folder)
        lists = _in_folder("robustness.misspellings", (config.robustness.misspellings,), folder)
        config.robustness.misspellings = lists[0]
        config.robustness.noise = noises(config.robustness.noise, bool(lists[0]))
        for name, entry in config.tasks.items():
            for key in ("train", "dev", "measure"):
                entry[key] = _in_folder(f"tasks.{name}.{key}", entry[key], folder)
            entry.config = config_file(f"tasks.{name}.config", entry.config, fine_tunes=True)
        for name, entry in config.systems.items():
            if is_trained(entry):
                entry.config = config_file(f"systems.{name}.config", entry.config, fine_tunes=False)
    check_settings(config.systems, config.tasks)
    _check_without_tasks(config)
    for text in config.claims:
        claim_of(text, config)
    return config


def config_file(key: str, spec: str, fine_tunes: bool) -> str:
    """Returns path/to/file.py[:variant] for a name of a config that charlm carries, "configs/NAME.py", or for a path.

    Raises:
      ValueError: there is no such file or variant, or it is for another kind of training; names `key`.
    """
    path, colon, variant = spec.partition(":")
    path = path if path.endswith(".py") else f"configs/{path}.py"
    try:
        found = load_config_file(f"{path}{colon}{variant}")
    except ValueError as error:
        raise ValueError(f"{key}={spec!r}: {no_config_file(path) if not spec else error}") from None
    if is_fine_tuning(found) != fine_tunes:
        raise ValueError(f"{key}={spec!r} is a config of {'pre-training' if fine_tunes else 'fine-tuning'}")
    return f"{path}{colon}{variant}"


def noises(specs: Sequence[str], listed: bool) -> tuple[str, ...]:
    """Returns noises with their rates, as `charlm.text.noise.Noise` writes them, each once.

    Args:
      listed: whether there is a list of misspellings.

    Raises:
      ValueError: a spec is not valid, or needs a list.
    """
    found = []
    for spec in specs:
        kinds = [name for name, kind in KINDS.usable() if listed or not kind.listed] if spec == ALL else [spec]
        for one in kinds:
            noise = Noise.parse(one)
            if KINDS[noise.kind].listed and not listed:
                raise ValueError(f"robustness.noise: {one} needs a list: robustness.misspellings names none")
            found.append(str(noise))
    return tuple(dict.fromkeys(found))


def _in_folder(key: str, names: Sequence[str], folder: str) -> tuple[str, ...]:
    if any(FOLDER in name for name in names) and not folder:
        raise ValueError(f"{key} names files in {FOLDER}: set data.folder (--set data.folder=PATH)")
    return tuple(name.replace(FOLDER, folder) for name in names)


def _check(config: ml_collections.ConfigDict) -> None:
    flat = {name: value for name, value in flatten(config).items() if name.split(".")[0] not in SECTIONS}
    for name, value in flat.items():
        if name != "task" and name not in KEYS:
            raise ValueError(f"unknown key {name} of a league{did_you_mean(name, KEYS)}")
        if name != "task":
            KEYS[name].check(name, value)
    if not config.systems:
        raise ValueError("a league needs at least one of systems")
    if config.tasks and config.pretraining.runs > 1:
        raise ValueError(
            f"pretraining.runs={config.pretraining.runs}: a league with tasks has one run of pre-training a system, "
            "expected 1"
        )
    seeds = config.tuning.seeds
    if not seeds or len(set(seeds)) < len(seeds) or not all(isinstance(seed, int) and seed >= 0 for seed in seeds):
        raise ValueError(f"tuning.seeds={seeds}: expected different whole numbers from 0, at least one")
    for section, keys in SECTIONS.items():
        for name, entry in config[section].items():
            if not _NAME.fullmatch(name) or name in (ALL, "noise"):
                raise ValueError(f"{section}.{name}: expected a name of letters, digits, +, - and _")
            for key, value in entry.items():
                if key not in keys:
                    raise ValueError(f"unknown key {section}.{name}.{key}{did_you_mean(key, keys)}")
                keys[key].check(f"{section}.{name}.{key}", value)
    for name, entry in config.systems.items():
        _check_system(name, entry, config.systems)
        for task in entry.tasks:
            if task not in config.tasks:
                raise ValueError(f"systems.{name}.tasks: {task!r} is no task{did_you_mean(task, config.tasks.keys())}")
        if entry.tasks and not entry.same:
            raise ValueError(f"systems.{name}.tasks={entry.tasks} is for entries with `same`: others do all tasks")
    for name, entry in config.tasks.items():
        if not entry.train:
            raise ValueError(f"tasks.{name}.train names no file")


def _check_without_tasks(config: ml_collections.ConfigDict) -> None:
    """Raises ValueError if there are no tasks and systems' losses on held-out text cannot be compared."""
    baseline = config.pretraining.baseline
    if baseline and (baseline not in config.systems or not is_trained(config.systems[baseline])):
        near = did_you_mean(baseline, [name for name, entry in config.systems.items() if is_trained(entry)])
        raise ValueError(f"pretraining.baseline={baseline!r} is no trained system{near}")
    trained = {name: load_config_file(entry.config) for name, entry in config.systems.items() if is_trained(entry)}
    titles = {name: family(found.family).title for name, found in trained.items()}
    if not config.tasks and (tuned := [name for name, entry in config.systems.items() if entry.same]):
        raise ValueError(f"systems.{tuned[0]}.same: a league without tasks fine-tunes nothing")
    if config.tasks or len(set(titles.values())) == 1:
        return
    named = ", ".join(f"{name} ({title})" for name, title in titles.items())
    raise ValueError(f"a league without tasks compares losses, so its systems must be of one family, got {named}")


def is_trained(system: ml_collections.ConfigDict) -> bool:
    """Says whether an entry of `systems` is pre-trained, not another one seen otherwise."""
    return not system.behind and not system.same


def tasks_of(config: ml_collections.ConfigDict, system: str) -> list[str]:
    """Returns the tasks that a system is fine-tuned for and measured on."""
    entry = config.systems[system]
    own = config.systems[entry.behind].tasks if entry.behind else entry.tasks
    return [name for name in config.tasks if not own or name in own]


def _check_system(name: str, entry: ml_collections.ConfigDict, systems: ml_collections.ConfigDict) -> None:
    where = f"systems.{name}"
    for key in ("start", "same", "behind"):
        others = {one: own for one, own in systems.items() if one != name or key == "start"}
        among = [one for one, own in others.items() if is_trained(own) or (key == "behind" and own.same)]
        if entry[key] and entry[key] not in among:
            raise ValueError(f"{where}.{key}={entry[key]!r} is no trained system{did_you_mean(entry[key], among)}")
    if entry.behind or entry.defence:
        _check_borrowed(where, entry, "behind", "defence")
        parsed(entry.defence, asked_as=f"{where}.defence")
        if not systems[entry.behind].ranked:
            raise ValueError(f"{where}.behind={entry.behind!r} is not ranked, so it is not fine-tuned")
    if entry.same:
        _check_borrowed(where, entry, "same", "tune")
    kind, _, of = entry.subwords.partition(":")
    if entry.subwords and (kind not in ("wordpiece", "bytes") or (kind == "bytes") != bool(of)):
        raise ValueError(f"{where}.subwords={entry.subwords!r} is neither wordpiece nor bytes:KIND")
    if is_trained(entry) and not entry.share:
        raise ValueError(f"{where}.share=0: it would see no text")
    seen, at = {name}, entry.start
    while at:
        if at in seen:
            raise ValueError(f"{where}.start: {at} starts, by way of others, from itself")
        seen.add(at)
        at = systems[at].start


def _check_borrowed(where: str, entry: ml_collections.ConfigDict, of: str, own: str) -> None:
    """Raises ValueError if an entry that is another system seen otherwise lacks what differs, or says anything else."""
    if not (entry[of] and entry[own]):
        raise ValueError(f"{where}: {of} and {own} belong together")
    usual = defaults(SYSTEM)
    if others := [key for key in SYSTEM if key not in ("title", "tasks", of, own) and entry[key] != usual[key]]:
        raise ValueError(f"{where}: {of}={entry[of]!r} is a system that is there, so {', '.join(others)} cannot be set")


def claim_of(text: str, config: ml_collections.ConfigDict) -> Claim:
    """Returns a claim; ValueError if it is not written as one, or names what the league does not have."""
    found = _CLAIM.fullmatch(text)
    if not found:
        raise ValueError(f"claims: {text!r}: expected 'A ahead of B on TASK [under NOISE] [by POINTS]'")
    a, b, task, noise, points = found.groups()
    if a == b:
        raise ValueError(f"claims: {text!r}: a system is not ahead of itself")
    ranked = [name for name, entry in config.systems.items() if entry.behind or entry.ranked]
    for one in (a, b):
        if one not in ranked:
            raise ValueError(f"claims: {text!r}: {one!r} is no ranked system{did_you_mean(one, ranked)}")
    if task != ALL and task not in config.tasks:
        raise ValueError(f"claims: {text!r}: {task!r} is no task{did_you_mean(task, config.tasks.keys())}")
    for one in (a, b):
        if task not in tasks_of(config, one) and (task != ALL or len(tasks_of(config, one)) < len(config.tasks)):
            raise ValueError(f"claims: {text!r}: {one} is fine-tuned for {', '.join(tasks_of(config, one))} alone")
    spec = "" if noise in (None, "", "clean") else noise
    if spec and spec != "noise":
        spec = noises((spec,), listed=True)[0]
        if spec not in config.robustness.noise:
            raise ValueError(f"claims: {text!r}: {spec} is not among robustness.noise")
    return Claim(text, a, b, task, spec, float(points or 0))

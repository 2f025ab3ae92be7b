"""The settings of a report, and the list of kinds of noise and levels that they lead to.

Open it to add an option of the report, or to see why a kind of noise is left out.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from charlm.core.nearest import did_you_mean
from charlm.core.types import JsonObject
from charlm.robustness.recipes import RECIPES
from charlm.text.defences import parsed
from charlm.text.noise import KINDS, Noise
from charlm.text.noise.keyboards import AUTO
from charlm.wordrec.defences import KNOWN

ALL = "all"
COLUMNS = ("text", "pair", "label", "group", "id", "header")  # of `charlm.tasks.columns.Columns`
LEVELS = (0.0, 0.05, 0.1, 0.15, 0.2)


@dataclasses.dataclass(frozen=True)
class ReportSettings:
    """The settings of a report.

    Attributes:
      models: workdirs or checkpoints of fine-tuned models.
      data: files of the task.
      out: folder of the report.
      noise: kinds of noise as `charlm.text.noise.Noise.parse` reads them; "all": every kind.
      levels: rates for kinds without a rate; 0 is the clean text.
      seeds: number of draws of each noise.
      misspellings: file with the list for the kind "misspelling".
      language: language of the keyboards.
      columns: columns of `data` where they differ from those of training, such as "text=test_case"; see
        `charlm.tasks.columns.Columns`. "group=COLUMN" also scores the examples with each value of a column.
      task: the task that the models must have been fine-tuned for; "": any.
      defence: defences as `charlm.text.defences.parsed` reads them; each model is measured without and with each.
      adversarial: maximum number of edits of an example in the adversarial search; 0: no search.
      adversarial_examples: number of examples that are attacked, from the first on.
      attack: names of published attacks, see `charlm.robustness.recipes`.
      train_words: file of the words seen in training; "": the words of the first model's training files.
      tokenizer: folder of the tokenizer that decides which words are split; "": that of the first model that has one.
      batch_size: number of rows predicted at a time.
      examples: how many examples are read, from the first on; 0: all.
      samples: number of resamples of the examples for each interval.
      command: the command that the report names for reproducing it.
    """

    models: tuple[str, ...]
    data: tuple[str, ...]
    out: str
    noise: tuple[str, ...] = (ALL,)
    levels: tuple[float, ...] = LEVELS
    seeds: int = 3
    misspellings: str = ""
    language: str = AUTO
    columns: tuple[str, ...] = ()
    task: str = ""
    defence: tuple[str, ...] = ()
    adversarial: int = 0
    adversarial_examples: int = 100
    attack: tuple[str, ...] = ()
    train_words: str = ""
    tokenizer: str = ""
    batch_size: int = 32
    examples: int = 0
    samples: int = 1000
    command: str = ""

    def __post_init__(self) -> None:
        """Checks the values; raises a ValueError that names the wrong one."""
        for name in ("models", "data", "noise", "levels"):
            value = getattr(self, name)
            if isinstance(value, str) or not len(value):
                raise ValueError(f"{name}={value!r}: expected a sequence of at least one")
            object.__setattr__(self, name, tuple(value))
        for name in ("columns", "defence", "attack"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name}={getattr(self, name)!r}: expected a sequence")
        object.__setattr__(self, "columns", tuple(self.columns))
        self.columns_by_name()
        for name in self.attack:
            if name not in RECIPES:
                raise ValueError(f"--attack={name}: expected one of {', '.join(RECIPES)}{did_you_mean(name, RECIPES)}")
        object.__setattr__(self, "attack", tuple(dict.fromkeys(self.attack)))
        object.__setattr__(
            self, "defence", tuple("+".join(parsed(spec, KNOWN)) for spec in dict.fromkeys(self.defence))
        )
        least = {"seeds": 1, "adversarial": 0, "adversarial_examples": 1, "batch_size": 1, "examples": 0, "samples": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
                raise ValueError(f"{name}={value!r}: expected a whole number of at least {lowest}")
        for level in self.levels:
            if not 0 <= level <= 1:
                raise ValueError(f"levels: expected rates from 0 to 1, got {level}")
        object.__setattr__(self, "levels", tuple(sorted({float(level) for level in self.levels})))

    def columns_by_name(self) -> dict[str, str]:
        """Returns the columns by what they hold; raises ValueError if one is not NAME=COLUMN of a known name."""
        found: dict[str, str] = {}
        for spec in self.columns:
            name, equals, column = spec.partition("=")
            if name not in COLUMNS or not equals or not column:
                near = did_you_mean(name, COLUMNS)
                raise ValueError(f"--columns={spec}: expected NAME=COLUMN, NAME one of {', '.join(COLUMNS)}{near}")
            found[name] = column
        return found

    def to_dict(self) -> JsonObject:
        """Returns the settings as a JSON-able dict."""
        return {name: list(x) if isinstance(x, tuple) else x for name, x in dataclasses.asdict(self).items()}


class Level(NamedTuple):
    """A noise at one level.

    Attributes:
      kind: the name in the report: the kind, with its shortest word and language if they differ from the usual ones.
      level: the rate.
      spec: the noise as `Noise.parse` reads it.
      noise: the noise; None at level 0.
    """

    kind: str
    level: float
    spec: str
    noise: Noise | None


def planned(settings: ReportSettings) -> tuple[list[Level], list[str]]:
    """Returns every noise and level to measure, and notes on those that are left out.

    A spec with a rate is measured at this rate only. A kind whose usual rate is 1 changes everything it can, as
    published, and is measured at rate 1 only. All other specs are measured at `settings.levels`.

    Raises:
      ValueError: a spec, a rate or the language is not valid.
    """
    Noise("drop", 0.0, language=settings.language)  # raises for an unknown language
    notes: list[str] = []
    found: dict[Level, None] = {}
    for spec in _specs(settings, notes):
        head, _, language = spec.partition("@")
        noise = Noise.parse(spec)
        if not language:
            noise = dataclasses.replace(noise, language=settings.language)
        name = _name(noise, settings.language)
        if ":" in head or KINDS[noise.kind].rate == 1:
            found[Level(name, noise.rate, str(noise), noise if noise.rate else None)] = None
            continue
        for level in settings.levels:
            if level > KINDS[noise.kind].highest:
                notes.append(f"{name}: no level {level:g}, the highest is {KINDS[noise.kind].highest:g}")
                continue
            at_level = dataclasses.replace(noise, rate=level)
            found[Level(name, level, str(at_level), at_level if level else None)] = None
    return list(found), notes


def _specs(settings: ReportSettings, notes: list[str]) -> list[str]:
    specs: list[str] = []
    for spec in settings.noise:
        if spec != ALL:
            if KINDS[Noise.parse(spec).kind].listed and not settings.misspellings:
                raise ValueError(f"noise {spec!r} needs a list of misspellings: --misspellings FILE")
            specs.append(spec)
            continue
        for name, kind in KINDS.usable():
            if kind.listed and not settings.misspellings:
                notes.append(f"{name} is not measured: no list of misspellings was given (--misspellings)")
            else:
                specs.append(name)
    return specs


def _name(noise: Noise, language: str) -> str:
    """Returns the kind, with its shortest word and language if they differ from the usual ones."""
    length = "" if noise.min_length == KINDS[noise.kind].min_length else f":{noise.min_length}"
    return f"{noise.kind}{length}" + ("" if noise.language == language else f"@{noise.language}")

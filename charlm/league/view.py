"""What the sections of a league's report are made of: their blocks, and the results by what they are looked up by.

Open it to add a kind of block, which both writers must know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from charlm.core.types import JsonObject
from charlm.league.charts import Chart

NOTHING = "–"  # the cell of a value that was not measured


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows.

    Attributes:
      caption: explains the numbers.
      header: the header of each column.
      rows: the cells of each row.
      texts: number of columns on the left that hold text; the others hold numbers.
      heat: of each cell behind the first column a shade from 0 (worst) to 9, -1: none; (): no shades.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    heat: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class Folded:
    """Lines that are shown when they are asked for."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Charts:
    """Charts side by side; a table says the same figures."""

    charts: Sequence[Chart]


Block = str | Table | Folded | Charts


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it; strings are paragraphs."""

    title: str
    blocks: list[Block] = field(default_factory=list)


class View:
    """The results, by what they are looked up by."""

    def __init__(self, results: JsonObject) -> None:
        self.results = results
        self.tasks: dict[str | None, JsonObject] = {task["name"]: task for task in results["tasks"]}
        self.systems: dict[str, JsonObject] = {one["name"]: one for one in results["systems"]}
        self.ranked = [name for name, one in self.systems.items() if one["ranked"]]
        self.scores = {(one["task"], one["system"], one["noise"]): one for one in results["scores"]}
        self.columns: list[str | None] = [*self.tasks, *([None] if len(self.tasks) > 1 else [])]

    def title(self, task: str | None) -> str:
        """Returns the title of a task; None: the mean over tasks."""
        return "mean" if task is None else self.tasks[task]["title"]

    def named(self, system: str) -> str:
        """Returns the title of a system."""
        return self.systems[system]["title"]

    def named_with_state(self, system: str) -> str:
        """Returns the title of a system, and whether its pre-training is not finished yet."""
        own = self.systems[system]
        pre_trained = own["same"] or system
        job = f"train/{pre_trained}"
        going = any(name == job or name.startswith(f"{job}/") for name in self.results["missing"])
        return f"{own['title']} (not finished)" if going else own["title"]

    def share(self, system: str) -> float:
        """Returns the share of the budget that a system sees itself."""
        return self.results["config"]["systems"][system]["share"]

    def cell(self, task: str | None, system: str, noise: str, ranked: bool = True) -> str:
        """Returns a score with interval and rank."""
        found = self.scores.get((task, system, noise))
        if found is None or found["value"] is None:
            return NOTHING
        rank = f" ({found['rank']})" if ranked else ""
        return f"{with_interval(found)}{rank}"

    def mean(self, system: str, noise: str) -> JsonObject | None:
        """Returns the score of a system over all tasks; None if it was not measured."""
        return self.scores.get((self.columns[-1], system, noise))

    def measured(self, noise: str) -> list[str]:
        """Returns the ranked systems with any score under a noise, the best mean first."""
        there = [name for name in self.ranked if any((task, name, noise) in self.scores for task in self.columns)]
        mean = lambda name: [
            self.scores[task, name, noise]["value"] or 0.0 for task in self.tasks if (task, name, noise) in self.scores
        ]
        return sorted(there, key=lambda name: (-len(mean(name)), -sum(mean(name)) / max(len(mean(name)), 1)))


def with_interval(found: Mapping[str, float | None], signed: bool = False) -> str:
    """Returns "93.4 [92.8, 94.0]" for a value with its interval."""
    if found["value"] is None:
        return NOTHING
    sign = "+" if signed else ""
    value, low, high = (f"{100 * (found[key] or 0.0):{sign}.1f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"

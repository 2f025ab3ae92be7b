"""The parts that reports on systems under noise share: which is best, scores by noise, differences with intervals.

The reports on retrieval and on gaps are made of them, from what `charlm.metrics.systems` measures. Open it to change
how both show a score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from charlm.core.types import JsonObject
from charlm.robustness.render.files import write_files
from charlm.robustness.render.markdown import markdown
from charlm.robustness.render.numbers import Interval, Numbers
from charlm.robustness.render.page import html
from charlm.robustness.render.parts import (
    STEPS,
    Block,
    Bullets,
    Cell,
    Command,
    Name,
    Report,
    RichText,
    Section,
    Shaded,
    Strong,
    Table,
)
from charlm.text.noise.levels import CLEAN

_STEP = 0.05  # of a score: how much each shade of a cell stands for
_NAMES = {
    "mrr@10": "MRR@10", "ndcg@10": "nDCG@10", "map": "MAP", "cloze_accuracy": "right at once",
    "cloze_accuracy@5": "among the first five",
}  # fmt: skip


def score_name(score: str) -> str:
    """Returns the name of a score as people write it."""
    return _NAMES.get(score, score)


class SystemParts:
    """Makes the parts of one report.

    Args:
      results: has "metric" (the main score), "systems" (each with its "name"), "noise" (names, clean text among them),
        "scores" and "comparisons", see `charlm.metrics.systems`.
      examples: what the examples are called, such as "queries".
    """

    def __init__(self, results: JsonObject, examples: str) -> None:
        self._results, self._examples = results, examples
        self._metric = results["metric"]
        self._show = Numbers(self._metric, ())
        self._names: list[str] = [one["name"] for one in results["systems"]]
        self._found: Mapping[tuple[str, str, str], JsonObject] = {
            (one["system"], one["noise"], one["score"]): one for one in results["scores"]
        }

    def _value(self, name: str, noise: str) -> float:
        return self._found[name, noise, self._metric]["value"]

    def headline(self) -> RichText:
        """Returns the best system clean and under noise, by the mean over noises."""
        noises = [name for name in self._results["noise"] if name != CLEAN]
        best = max(self._names, key=lambda name: self._value(name, CLEAN))
        clean = self._show.score(self._value(best, CLEAN))
        text: RichText = ["Clean, ", Name(best), " has ", Strong(clean), " of 100"]
        if not noises:
            return [*text, "."]
        noisy = {name: sum(self._value(name, noise) for noise in noises) / len(noises) for name in self._names}
        best = max(self._names, key=lambda name: noisy[name])
        kinds = "the noise" if len(noises) == 1 else f"the mean over {len(noises)} noises"
        return [*text, "; under ", kinds, ", ", Name(best), " has ", Strong(self._show.score(noisy[best])), "."]

    def _header(self) -> list[RichText]:
        return ["noise", *(Name(name) for name in self._names)]

    def glance(self) -> Table:
        """Returns the main score of every system under every noise; shades say what noise costs beside clean text."""
        rows: list[list[Cell]] = []
        for noise in self._results["noise"]:
            row: list[Cell] = [noise]
            for name in self._names:
                value = self._value(name, noise)
                change = value - self._value(name, CLEAN)
                step = min(STEPS, round(abs(change) / _STEP))
                row.append(Shaded(self._show.score(value), "loss" if change < 0 else "gain", step))
            rows.append(row)
        of = score_name(self._metric)
        caption = f"{of}, out of 100, mean over the seeds of a noise; colour: loss beside clean text."
        return Table("table-glance", caption, self._header(), rows)

    def tables(self) -> list[Block]:
        """Returns a table for each score, with intervals."""
        tables: list[Block] = []
        for score in dict.fromkeys(one["score"] for one in self._results["scores"]):
            rows: list[list[Cell]] = []
            for noise in self._results["noise"]:
                found = [self._found[name, noise, score] for name in self._names]
                intervals = (Interval(one["value"], one["low"], one["high"]) for one in found)
                rows.append([noise, *(self._show.interval(one, score) for one in intervals)])
            caption = f"{score_name(score)}, out of 100, with its interval from {self._examples} that are drawn anew."
            tables.append(Table(f"table-{score.replace('@', '-')}", caption, self._header(), rows))
        return tables

    def comparisons(self) -> list[Block]:
        """Returns the differences of the main score between systems."""
        rows: list[list[Cell]] = []
        for one in self._results["comparisons"]:
            gap = Interval(one["difference"], one["low"], one["high"])
            said = self._show.interval(gap, signed=True)
            rows.append([one["noise"], Name(one["a"]), Name(one["b"]), Strong(said) if gap.excludes_zero else said])
        if not rows:
            return []
        caption = (
            f"{score_name(self._metric)} of the first system minus that of the second, in points, on the same "
            f"resamples of the {self._examples}; bold: the interval leaves out 0."
        )
        return [Table("table-comparisons", caption, ["noise", "first", "second", "difference"], rows, texts=3)]

    def report(self, title: str, subtitle: str, shown: tuple[str, list[Block]], how: Sequence[Block]) -> Report:
        """Returns the whole report; sections without anything in them are left out.

        Args:
          title, subtitle: of the page.
          shown: the title of the section of shown examples, and what is in it.
          how: how it was measured.
        """
        notes, command = self._results["notes"], self._results["settings"]["command"]
        sections = [
            Section("says", "What each noise costs", [self.glance()]),
            Section("comparisons", "System against system", self.comparisons()),
            Section("shown", *shown),
            Section("scores", "All scores", self.tables(), folded=True),
            Section("how", "How it was measured", how, folded=True),
            Section("notes", "Notes", [Bullets(notes)] if notes else [], folded=True),
            Section("reproduce", "How to reproduce", [Command(command)] if command else [], folded=True),
        ]
        return Report(title, subtitle, self.headline(), [section for section in sections if section.blocks])


def write_system_report(folder: Path, results: JsonObject, report: Report) -> list[Path]:
    """Writes the numbers, the table and the page into a folder, which is made if needed; report.json comes first.

    Raises:
      ValueError: the folder cannot be written.
    """
    return write_files(folder, results, markdown(report), html(report))

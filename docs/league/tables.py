"""Writes the tables of the pages on leagues from their results: python docs/league/tables.py

A page marks where a table stands by the comments <!-- NAME --> and <!-- end -->; what lies between them is written anew
from the JSON file of `charlm league` that has the page's name. Open it to compare two more systems, or to add a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MARKED = re.compile(r"(<!-- (\w+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
MEAN = None  # the task of the means over all tasks
NONE = "–"
TASKS = {MEAN: "mean", "pos": "parts of speech", "disease": "diseases", "entities": "entities", "emotions": "emotions",
         "coinages": "new words"}  # fmt: skip
SINGLE = [task for task in TASKS if task is not MEAN]
CLEAN, NOISE = "", "noise"

# Of the page on the league of an evening: the systems that are compared, by table.
POSITIONS = (
    ("roformer", "bert"), ("characterbert-rotary", "characterbert"), ("characterbert", "bert"),
    ("characterbert-rotary", "roformer"), ("characterbert-rotary-typos", "roformer-typos"),
)  # fmt: skip
HLM = (
    ("hlm", "bert"), ("hlm", "bert+symspell"), ("hlm", "characterbert"), ("hlm", "roformer"), ("hlm-two", "roformer"),
    ("hlm-ngrams", "roformer"), ("hlm-ngrams", "roformer+symspell"), ("hlm-two", "characterbert-rotary"),
    ("hlm-ngrams", "characterbert-rotary"), ("hlm-released", "hlm"), ("hlm-two", "hlm"), ("hlm-ngrams", "hlm-two"),
)  # fmt: skip
READ = (
    ("hlm-mean", "hlm"), ("bert-mean", "bert"), ("roformer-mean", "roformer"),
    ("characterbert-rotary-mean", "characterbert-rotary"), ("hlm-mean", "bert-mean"), ("hlm-ngrams-mean", "hlm-mean"),
    ("hlm-ngrams-mean", "roformer-mean"), ("hlm-ngrams-mean", "characterbert-rotary-mean"),
)  # fmt: skip
TYPOS = (
    ("bert-typos", "bert"), ("roformer-typos", "roformer"), ("characterbert-rotary-typos", "characterbert-rotary"),
    ("hlm-typos", "hlm"), ("hlm", "bert-typos"), ("hlm-typos", "bert-typos"), ("hlm-typos", "roformer-typos"),
    ("hlm-typos", "characterbert-rotary-typos"), ("bert+symspell", "bert"), ("roformer+symspell", "roformer"),
)  # fmt: skip
RETROFITS = (
    ("charbert", "bert-longer"), ("charbert", "advbert"), ("char2subword", "bert-longer"), ("char2subword", "advbert"),
    ("char2subword-full", "char2subword"), ("xrayemb", "bert-longer"), ("charbert-rotary", "bert-longer-rotary"),
    ("charbert-rotary", "advbert-rotary"), ("charbert-rotary", "characterbert-rotary"),
    ("char2subword-rotary", "bert-longer-rotary"), ("char2subword-rotary", "advbert-rotary"),
    ("xrayemb-rotary", "bert-longer-rotary"), ("bert-longer-rotary", "roformer"), ("advbert", "bert-longer"),
    ("advbert-rotary", "bert-longer-rotary"),
)  # fmt: skip
ATTACKS = (
    "charbert ahead of bert-longer on {} under charbert", "charbert ahead of advbert on {} under charbert",
    "charbert-rotary ahead of bert-longer-rotary on {} under charbert",
    "charbert-rotary ahead of advbert-rotary on {} under charbert",
    "char2subword ahead of bert-longer on {} under char2subword",
    "char2subword ahead of advbert on {} under char2subword",
    "char2subword-rotary ahead of bert-longer-rotary on {} under char2subword",
    "char2subword-rotary ahead of advbert-rotary on {} under char2subword",
)  # fmt: skip


# Of the page on curves.
CURVES = (
    *((f"hlm{share}", f"bert{share}") for share in ("-eighth", "-quarter", "-half", "")), ("hlm-eighth", "bert"),
    ("hlm", "hlm-eighth"), ("hlm", "hlm-half"), ("bert", "bert-eighth"), ("bert", "bert-half"),
)  # fmt: skip


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("| --- ", "|---").replace("|--- |", "|---|")


class Results:
    """What a league has found: its systems by name, and scores and differences in hundredths as a page shows them."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.systems = {one["name"]: one for one in found["systems"]}
        self.scores = {(one["task"], one["system"], one["noise"]): one for one in found["scores"]}
        self._differences = {(one["task"], one["noise"], one["a"], one["b"]): one for one in found["differences"]}
        self._claims = {one["text"]: one for one in found["claims"]}
        planned = [re.match(r"(\S+) ahead of (\S+) on", text) for text in self._claims]
        self.planned = {frozenset(one.groups()) for one in planned if one}

    def title(self, system: str) -> str:
        """Returns what a system is called."""
        return self.systems[system]["title"]

    def score(self, task: str | None, system: str, noise: str) -> str:
        """Returns a score."""
        found = self.scores.get((task, system, noise))
        return f"{100 * found['value']:.1f}" if found else NONE

    def difference(self, task: str | None, noise: str, a: str, b: str, interval: bool) -> str:
        """Returns the difference of two systems, bold if its interval leaves out 0."""
        found = self._differences.get((task, noise, a, b))
        if found is None and (turned := self._differences.get((task, noise, b, a))):
            found = {"value": -turned["value"], "low": -turned["high"], "high": -turned["low"]}
        return shown(found, interval)

    def claim(self, text: str) -> str:
        """Returns the difference that a claim is about."""
        return shown(self._claims.get(text), interval=True)


def shown(found: Mapping[str, float] | None, interval: bool) -> str:
    """Returns a difference in hundredths, bold if its interval leaves out 0."""
    if found is None or found["value"] is None:
        return NONE
    value, low, high = (100 * found[key] + 0.0 for key in ("value", "low", "high"))
    text = f"{value:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")
    text = f"**{text}**" if low > 0 or high < 0 else text
    return f"{text} ({low:.1f} to {high:.1f})".replace("-0.0 ", "0.0 ").replace("-0.0)", "0.0)") if interval else text


def differences(found: Results, pairs: Iterable[tuple[str, str]], tasks: Iterable[str] = SINGLE) -> str:
    """Returns the table of the differences of pairs of systems: means with intervals, single tasks without."""
    rows, means = [], tasks is SINGLE
    for a, b in pairs:
        mark = "" if frozenset((a, b)) in found.planned else " °"
        cells = [found.difference(MEAN, noise, a, b, interval=True) for noise in (CLEAN, NOISE) if means]
        for task in tasks:
            both = [found.difference(task, noise, a, b, interval=not means) for noise in (CLEAN, NOISE)]
            cells += [" / ".join(both)] if means else both
        rows.append([f"{found.title(a)} − {found.title(b)}{mark}", *cells])
    if means:
        return table(["", "mean, clean", "mean, noise", *(TASKS[task] for task in tasks)], rows)
    return table(["", *(f"{TASKS[task]}{said}" for task in tasks for said in (", clean", ", noise"))], rows)


def sizes(found: Results) -> str:
    """Returns the table of what each system is made of, without those that are another one tuned or read otherwise."""
    rows = []
    for one in found.systems.values():
        if one["behind"] or one["same"] or not (parameters := one.get("parameters")):
            continue
        start = found.title(one["start"]) if one["start"] else "nothing"
        millions = [f"{parameters[key] / 1e6:.2f}" for key in ("body", "total")]
        spent = [f"{one['words_all'] / 1e6:.2f}", f"{one['flops_all'] / 1e12:.0f}"]
        rows.append([one["title"], start, *millions, *spent])
    head = ["", "starts from", "body, M", "parameters, M", "words read, M", "TFLOP"]
    return table(head, sorted(rows, key=lambda row: (row[1] != "nothing", row[1], row[0])))


def scores(found: Results, tasks: Iterable[str | None]) -> str:
    """Returns the table of the scores of all systems that have one of these tasks, the best mean under noise first."""
    tasks = list(tasks)
    ahead = lambda name: -found.scores.get((MEAN, name, NOISE), {"value": -1.0})["value"]
    rows = []
    for name in sorted(found.systems, key=lambda name: (ahead(name), found.title(name))):
        cells = [found.score(task, name, noise) for task in tasks for noise in (CLEAN, NOISE)]
        if set(cells) != {NONE}:
            rows.append([found.title(name), *cells])
    return table(["", *(f"{TASKS[task]}{said}" for task in tasks for said in (", clean", ", noise"))], rows)


def attacks(found: Results) -> str:
    """Returns the table of the claims about the noise by which a paper measures its own system."""
    rows = []
    for text in ATTACKS:
        a, b, noise = re.fullmatch(r"(\S+) ahead of (\S+) on \{\} under (\S+)", text).groups()
        of = ("all", *(task for task in TASKS if task not in (MEAN, "coinages")))
        rows.append([f"{found.title(a)} − {found.title(b)}", f"`{noise}`", *(found.claim(text.format(x)) for x in of)])
    return table(["", "under", *(name for task, name in TASKS.items() if task != "coinages")], rows)


def curves(found: Results) -> str:
    """Returns the table of the page on curves: scores by words read."""
    of = lambda task, name, noise: found.scores[task, name, noise]
    interval = lambda one: "{:.1f} ({:.1f} to {:.1f})".format(*(100 * one[key] for key in ("value", "low", "high")))
    rows = []
    for name, one in sorted(found.systems.items(), key=lambda item: (round(item[1]["words"], -5), item[0])):
        spent = [f"{one['words'] / 1e6:.2f}", f"{one['flops'] / 1e12:.1f}"]
        cells = [interval(of(task, name, noise)) for task in ("pos", "emotions") for noise in (CLEAN, NOISE)]
        rows.append([one["title"].partition(", 0.")[0], *spent, *cells])
    head = ["", "million words", "TFLOP"]
    return table([*head, *(f"{TASKS[task]}{said}" for task in ("pos", "emotions") for said in ("", ", noise"))], rows)


PAGES: dict[str, dict[str, Callable[[Results], str]]] = {
    "evening": {
        "sizes": sizes,
        "scores": lambda found: scores(found, (MEAN, "pos", "disease")),
        "more": lambda found: scores(found, ("entities", "emotions", "coinages")),
        "positions": lambda found: differences(found, POSITIONS),
        "hlm": lambda found: differences(found, HLM),
        "texts": lambda found: differences(found, READ, ("emotions", "coinages")),
        "typos": lambda found: differences(found, TYPOS),
        "retrofits": lambda found: differences(found, RETROFITS),
        "attacks": attacks,
    },
    "curves": {"curves": curves, "differences": lambda found: differences(found, CURVES, ("pos", "emotions"))},
}


def filled(page: str, text: str, found: Mapping[str, Any]) -> str:
    """Returns the text of a page with its tables written anew; KeyError for the mark of a table that there is not."""
    results = Results(found)
    return MARKED.sub(lambda mark: mark[1] + PAGES[page][mark[2]](results) + mark[4], text)


if __name__ == "__main__":
    for page in PAGES:
        file = HERE / f"{page}.md"
        found = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        file.write_text(filled(page, file.read_text(encoding="utf-8"), found), encoding="utf-8")

"""Draws the figures of README and documentation: python docs/figures/make.py

The numbers are read from the tables of docs/benchmarks.md, so a figure shows what the tables say, answers from
answers.json, which answers.py writes, and the leagues from the results that `charlm league` has written. Open it to add
a figure. Needs the extra [eval], for matplotlib; it writes SVG files beside this script, the same bytes each time.
"""

import json
import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
MEASURED = HERE.parent / "benchmarks.md"
LEAGUE = HERE.parent / "league" / "evening.json"
CURVES = LEAGUE.with_name("curves.json")
INK, PAPER, GRID = "#24292f", "#ffffff", "#d0d7de"
HLM, BERT = "#0b6e4f", "#b7591b"
LEAD, LOSS = "#4a90c8", "#e07b39"  # of the report's heat maps


def rows_of(table: str) -> list[list[str]]:
    """Returns the cells of the first table of the measured figures whose head begins with a text.

    Raises:
      ValueError: there is no such table.
    """
    lines = MEASURED.read_text(encoding="utf-8").splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith(f"| {table}")), None)
    if first is None:
        raise ValueError(f"{MEASURED}: expected a table that begins with {table!r}")
    found = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            return found
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def number(cell: str) -> float:
    """Returns the first number of a cell, such as "**93.8** (reads no case)"."""
    return float(re.search(r"\d+(\.\d+)?", cell)[0])


def typos() -> None:
    """Draws the scores of an HLM and a BERT, clean and under typos; below, of others with and without a corrector."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 6), height_ratios=(10, 7), facecolor=PAPER)
    rows = [row for row in rows_of("parts of speech, accuracy | words changed | HLM") if "mean loss" not in row[0]]
    for row, (hlm, bert) in enumerate([number(cell) for cell in cells[2:4]] for cells in rows):
        above.plot([hlm, bert], [row, row], color=GRID, linewidth=3, zorder=1)
        above.scatter([hlm], [row], color=HLM, zorder=2, label="HLM, 0.9 M parameters" if not row else None)
        above.scatter(
            [bert], [row], color=BERT, marker="s", zorder=2, label="BERT, 22 M parameters" if not row else None
        )
    defended = [row for row in rows_of("parts of speech, accuracy of 120 sentences") if "-" not in row[2:]]
    for row, cells in enumerate(defended):
        for column, name, color, marker in ((2, "BERT, 22 M", BERT, "s"), (6, "HLM, 3 M, saw typos", HLM, "o")):
            alone, corrected = (number(cells[at]) for at in (column, column + 1))
            y = row + (-0.15 if color == HLM else 0.15)
            below.annotate("", (corrected, y), (alone, y), arrowprops={"arrowstyle": "-", "color": GRID, "lw": 3})
            shared = {"color": color, "marker": marker, "zorder": 2}
            below.scatter([alone], [y], facecolor=PAPER, label=None if row else f"{name}: alone", **shared)
            below.scatter([corrected], [y], label=None if row else f"{name}: behind SymSpell", **shared)
    for axes, table in ((above, rows), (below, defended)):
        axes.set_yticks(range(len(table)), [re.sub(r" \(.*?\)|`", "", row[0]) for row in table])
        axes.invert_yaxis()
        axes.grid(axis="x", color=GRID, linewidth=0.5)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    below.set_xlabel("parts of speech of UD English-EWT, accuracy in %")
    figure.tight_layout()
    save(figure, "typos")


def inside() -> None:
    """Draws how HLM reads a sentence with a typo, and how a vocabulary of subwords cuts it."""
    words = ["I", "didn't", "see", "teh", "cat"]
    pieces = [["i"], ["didn", "'", "t"], ["see"], ["te", "##h"], ["cat"]]
    figure, axes = plt.subplots(figsize=(8, 3.2), facecolor=PAPER)
    axes.axis("off")
    axes.set_xlim(-2.2, 11)
    axes.set_ylim(-0.4, 4.6)

    def box(x: float, y: float, text: str, color: str, width: float = 1.5, face: str = PAPER) -> None:
        shape = plt.Rectangle((x - width / 2, y - 0.27), width, 0.54, edgecolor=color, facecolor=face, linewidth=1.2)
        axes.add_patch(shape)
        axes.text(x, y, text, ha="center", va="center", color=INK, fontsize=8, family="monospace")

    for i, (word, cut) in enumerate(zip(words, pieces, strict=True)):
        x = 2.1 * i + 1
        odd = word == "teh"
        for k, piece in enumerate(cut):
            box(x + 0.68 * (k - (len(cut) - 1) / 2), 0.3, piece, BERT, 0.66, "#fbe9dd" if odd else PAPER)
        axes.text(x, 1.15, word, ha="center", va="center", color=INK, fontsize=12, weight="bold" if odd else None)
        box(x, 2.0, " ".join(word), HLM, 1.75, "#e3f3ed" if odd else PAPER)
        axes.annotate("", (x, 2.85), (x, 2.3), arrowprops={"arrowstyle": "->", "color": HLM})
        box(x, 3.15, "word vector", HLM, 1.75, "#e3f3ed" if odd else PAPER)
        axes.annotate("", (x, 3.95), (x, 3.45), arrowprops={"arrowstyle": "->", "color": HLM})
    box(5.2, 4.22, "words in context", HLM, 10.2)
    for y, text in ((0.3, "subwords"), (1.15, "text"), (2.0, "characters"), (3.15, "words")):
        axes.text(-0.15, y, text, ha="right", va="center", color=INK, fontsize=9)
    save(figure, "inside")


def answers() -> None:
    """Draws a sentence with typos: the tags that an HLM and a BERT give its words, and the pieces the BERT reads."""
    found = json.loads((HERE / "answers.json").read_text(encoding="utf-8"))
    figure, axes = plt.subplots(figsize=(9, 3.2), facecolor=PAPER)
    axes.axis("off")
    axes.set_xlim(-2.3, 1.32 * len(found["written"]) - 0.6)
    axes.set_ylim(0.05, 5.3)
    labels = (
        (5.0, "meant"),
        (4.35, "written"),
        (3.45, "HLM's answers"),
        (2.5, "BERT's answers"),
        (1.4, "BERT's pieces"),
    )
    for y, text in labels:
        axes.text(
            -0.75,
            y,
            text,
            ha="right",
            va="center",
            color=INK,
            fontsize=9.5,
            weight="bold" if y in (3.45, 2.5) else None,
        )
    for n, (meant, written) in enumerate(zip(found["meant"], found["written"], strict=True)):
        x, odd = 1.32 * n, meant != written
        axes.text(x, 5.0, meant, ha="center", va="center", color="#57606a", fontsize=9)
        axes.text(x, 4.35, written, ha="center", va="center", color=INK, fontsize=11, weight="bold" if odd else None)
        for y, tag in ((3.45, found["hlm"][1][n]), (2.5, found["bert"][1][n])):
            right = tag == found["right"][n]
            face, edge = ("#e3f3ed", HLM) if right else ("#ffdfdb", "#b42318")
            axes.add_patch(plt.Rectangle((x - 0.6, y - 0.3), 1.2, 0.6, facecolor=face, edgecolor=edge, linewidth=1.2))
            axes.text(x, y, tag if right else f"{tag} ✗", ha="center", va="center", color=INK, fontsize=8.5)
        pieces = found["pieces"][1][n]
        for k, piece in enumerate(pieces):
            y = 1.75 - 0.4 * k
            face = "#fbe9dd" if len(pieces) > 1 else PAPER
            axes.add_patch(plt.Rectangle((x - 0.5, y - 0.19), 1.0, 0.38, facecolor=face, edgecolor=BERT, linewidth=1))
            axes.text(x, y, piece, ha="center", va="center", color=INK, fontsize=7.5, family="monospace")
    save(figure, "answers")


def report() -> None:
    """Draws the top of a robustness report: its headline, and the heat map of the measured tables."""
    clean, *rows, mean = rows_of("parts of speech, accuracy | words changed | HLM")
    names = [re.sub(r" \(.*?\)|`", "", row[0]).replace(":", " ") for row in rows]
    scores = [[number(cell) for cell in row[2:4]] for row in (clean, *rows)]
    changes = [[score - before for score, before in zip(pair, scores[0], strict=True)] for pair in scores[1:]]
    cells = [[hlm - bert, *change] for (hlm, bert), change in zip(scores[1:], changes, strict=True)]
    order = sorted(range(len(rows)), key=lambda row: sum(changes[row]))
    figure, axes = plt.subplots(figsize=(8, 4.2), facecolor=PAPER)
    axes.axis("off")
    axes.set_xlim(0, 8)
    axes.set_ylim(len(rows) + 0.2, -3.2)
    losses = [number(cell) for cell in mean[2:4]]
    headline = f"Under noise HLM loses {losses[0]} points of accuracy on average, BERT {losses[1]}."
    axes.text(0, -2.7, headline, fontsize=13, weight="bold")
    axes.text(0, -1.5, "Change by noise, in points; the darker, the more", fontsize=9, color="#565e66")
    for x, title in ((3.5, "HLM minus BERT"), (5.3, "HLM"), (7.1, "BERT")):
        axes.text(x + 0.75, -0.25, title, ha="right", weight="bold")
    largest = max(abs(value) for change in changes for value in change)
    for y, row in enumerate(order):
        axes.text(0, y + 0.65, names[row])
        for x, value in zip((2.6, 4.4, 6.2), cells[row], strict=True):
            color = LEAD if x == 2.6 and value > 0 else LOSS
            strength = min(1, abs(value) / largest)
            axes.add_patch(plt.Rectangle((x, y + 0.05), 1.7, 0.9, color=color, alpha=strength, linewidth=0))
            shown = f"{value:+.1f}" if abs(value) >= 0.05 else "0.0"
            axes.text(x + 1.6, y + 0.65, shown.replace("-", "\u2212"), ha="right")
    save(figure, "report")


def search() -> None:
    """Draws how search holds up as typos grow: an encoder, behind SymSpell, and behind charlm's speller."""
    rows = rows_of("noise | encoder | behind SymSpell that knows the index | reader")
    found = {re.search(r"`([^`]+)`|clean", row[0])[0].strip("`"): [number(cell) for cell in row[1:]] for row in rows}
    systems = (
        ("encoder", BERT, "s"), ("behind SymSpell that knows the index", LOSS, "^"), ("reader", LEAD, "o"),
        ("reader that knows the index", HLM, "o"),
    )  # fmt: skip
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, facecolor=PAPER)
    labels = {
        "keyboard": "share of letters hit wrong (keyboard)",
        "charbert": "share of longer words with a slip (charbert)",
    }
    for axes, (kind, label) in zip(panels, labels.items(), strict=True):
        rates = sorted(float(name.partition(":")[2]) for name in found if name.startswith(f"{kind}:"))
        for place, (system, color, marker) in enumerate(systems):
            scores = [found["clean"][place], *(found[f"{kind}:{rate:g}"][place] for rate in rates)]
            axes.plot([0, *rates], scores, color=color, marker=marker, markersize=4, label=system)
        axes.set_xlabel(label)
        axes.grid(color=GRID, linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("MRR@10, times 100")
    panels[0].set_ylim(0, 80)
    figure.tight_layout(rect=(0, 0, 1, 0.86))
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="upper center", ncols=2)
    save(figure, "search")


def league() -> None:
    """Draws a league: the mean scores of its systems, clean and under noise; below, what each learned by its cost."""
    found = json.loads(LEAGUE.read_text(encoding="utf-8"))
    titles = {one["name"]: one["title"] for one in found["systems"]}
    means = {(one["system"], one["noise"]): one for one in found["scores"] if one["task"] is None}
    whole = {name for name, _ in means if {(name, ""), (name, "noise")} <= means.keys()}
    names = sorted(whole, key=lambda name: means[name, "noise"]["value"])
    rows, curves = 0.26 * len(names), 4.4  # inches
    figure = plt.figure(figsize=(8, rows + curves), facecolor=PAPER)
    cells = figure.add_gridspec(2, 2, height_ratios=(rows, 0.75 * curves))
    above, by_words, by_flops = (figure.add_subplot(cell) for cell in (cells[0, :], cells[1, 0], cells[1, 1]))
    for row, name in enumerate(names):
        clean, noisy = (means[name, noise] for noise in ("", "noise"))
        above.plot([100 * clean["value"], 100 * noisy["value"]], [row, row], color=GRID, linewidth=3, zorder=1)
        for one, shift, color, marker, label in (
            (clean, 0.12, LEAD, "s", "clean"), (noisy, -0.12, LOSS, "o", "under noise, the mean over all kinds"),
        ):  # fmt: skip
            low, value, high = (100 * one[key] for key in ("low", "value", "high"))
            above.plot([low, high], [row + shift, row + shift], color=color, linewidth=1, zorder=2)
            above.scatter([value], [row], color=color, marker=marker, s=24, zorder=3, label=None if row else label)
    above.set_yticks(range(len(names)), [titles[name] for name in names])
    above.tick_params(left=False)
    above.set_xlabel("mean score over all tasks, in hundredths; thin lines: 95 % intervals")
    above.spines[["top", "right", "left"]].set_visible(False)
    above.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    for axes, cost, unit in ((by_words, "words", 1e6), (by_flops, "flops", 1e12)):
        for place, one in enumerate(one for one in found["course"] if one["system"] in whole):
            known = [at for at in one["evaluations"] if at["bits_per_char"] is not None and at["words"]]
            if known:
                at, bits = [point[cost] / unit for point in known], [point["bits_per_char"] for point in known]
                style = {"marker": "osv^D<>P"[place % 8], "color": f"C{place}", "markersize": 4}
                axes.plot(at, bits, label=titles[one["system"]], **style)
        axes.spines[["top", "right"]].set_visible(False)
    by_words.set_xlabel("million words read")
    by_flops.set_xlabel("TFLOP (useful operations)")
    by_words.set_ylabel("bits a masked character, held out")
    for axes, grid in ((above, "x"), (by_words, "both"), (by_flops, "both")):
        axes.grid(axis=grid, color=GRID, linewidth=0.5)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.legend(*by_words.get_legend_handles_labels(), frameon=False, loc="lower center", ncols=3)
    save(figure, "league")


def curves() -> None:
    """Draws what BERT and HLM score for what they have read: a row for each task, by words and by operations."""
    found = json.loads(CURVES.read_text(encoding="utf-8"))
    scores = {(one["task"], one["system"], one["noise"]): one for one in found["scores"]}
    ranked = sorted(found["systems"], key=lambda one: one["words"])
    figure, panels = plt.subplots(len(found["tasks"]), 2, figsize=(8, 2.5 * len(found["tasks"])), sharex="col",
                                  sharey="row", facecolor=PAPER)  # fmt: skip
    for row, task in zip(panels, found["tasks"], strict=True):
        for axes, cost, unit in ((row[0], "words", 1e6), (row[1], "flops", 1e12)):
            for family, color, marker in (("bert", BERT, "s"), ("roformer", LEAD, "^"), ("hlm", HLM, "o")):
                own = [one for one in ranked if one["name"].partition("-")[0] == family]
                if not own:
                    continue
                title = next(one["title"] for one in own if one["name"] == family)
                at = [one[cost] / unit for one in own]
                for noise, style in (("", "-"), ("noise", "--")):
                    points = [scores[task["name"], one["name"], noise] for one in own]
                    low, value, high = ([100 * point[key] for point in points] for key in ("low", "value", "high"))
                    label = f"{title}, {'under noise' if noise else 'clean'}"
                    axes.plot(at, value, style, color=color, marker=marker, markersize=4, label=label)
                    axes.fill_between(at, low, high, color=color, alpha=0.08, linewidth=0)
            axes.set_xscale("log")
            axes.grid(color=GRID, linewidth=0.5)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(f"{task['title']},\n{task['metric']}".replace(" (", "\n("))
    for axes, text, ticks in zip(
        panels[-1], ("million words read", "TFLOP (useful operations)"), ((0.5, 1, 2, 5), (5, 10, 20, 50)), strict=True
    ):
        axes.set_xlabel(text)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.legend(*panels[0, 0].get_legend_handles_labels(), frameon=False, loc="lower center", ncols=4)
    save(figure, "curves")


def save(figure: plt.Figure, name: str) -> None:
    """Writes a figure as SVG without a date, so that equal figures are equal files."""
    figure.savefig(HERE / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    plt.rcParams |= {"svg.hashsalt": "charlm", "font.size": 9, "text.color": INK, "axes.labelcolor": INK}
    typos()
    inside()
    answers()
    report()
    search()
    league()
    curves()

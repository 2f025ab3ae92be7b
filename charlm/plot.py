"""Draws the training curves of one or several runs, of pre-training and of fine-tuning.

    python -m charlm.plot runs/hlm --out curves.svg
    python -m charlm.plot runs/hlm runs/other --metric bits_per_char words_per_second --log-x --out curves.png

Each metric has a panel: a line for training, a dashed one with points for held-out text (or development examples),
and a colour for each run. Without --metric, these are loss, bits per character, the scores of evaluations and the
speed. A folder with several seeds or folds gives a curve for each of them. Needs matplotlib; open it to change which
metrics are drawn, or how.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from charlm.core import extras
from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.durable import replacing
from charlm.core.local_paths import check_options
from charlm.core.metric_writer import METRICS_FILE, parse_line
from charlm.core.nearest import did_you_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What stands before the name of a metric: of evaluations, and of training.
EVALUATED, TRAINED = ("heldout_", "dev_"), ("train_",)
FIRST = ("loss", "bits_per_char")  # drawn first, if there are any
SPEED = "_per_second"
COUNTS = ("words", "rows", "examples", "tflops_per_second")  # of evaluations, and what machines do: drawn if asked for
ACROSS = 2  # panels side by side
WIDTH, HEIGHT = 4.6, 2.9  # inches of a panel
POINTS = 40  # a curve of at most so many evaluations has a marker on each


class Curves(NamedTuple):
    """What a run has measured.

    Attributes:
      name: the folder as it was given, with the seed or fold.
      trained, evaluated: by metric, (step, value) in order of steps; of training, and of evaluations.
    """

    name: str
    trained: dict[str, list[tuple[int, float]]]
    evaluated: dict[str, list[tuple[int, float]]]

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics."""
        return list(dict.fromkeys([*self.trained, *self.evaluated]))


def read_runs(folders: Iterable[str]) -> list[Curves]:
    """Returns the curves of runs; a folder with a run for each seed or fold gives several.

    Raises:
      ValueError: a folder does not exist, or holds no metrics; the message names it.
    """
    found = []
    for folder in dict.fromkeys(folders):
        path = Path(folder)
        files = [path / METRICS_FILE] if (path / METRICS_FILE).is_file() else sorted(path.glob(f"*/{METRICS_FILE}"))
        runs = [_read(file, _named(folder, file, len(files))) for file in files]
        runs = [run for run in runs if run.metrics]
        if not path.is_dir():
            raise ValueError(f"{folder} is no folder: expected the workdir of a run")
        if not runs:
            why = f"{METRICS_FILE} there holds no metrics yet" if files else f"it has no {METRICS_FILE}"
            raise ValueError(f"{folder} is no run with metrics: {why}")
        found += runs
    return found


def _named(folder: str, file: Path, several: int) -> str:
    return f"{folder.rstrip('/')}/{file.parent.name}" if several > 1 else folder.rstrip("/") or folder


def _read(file: Path, name: str) -> Curves:
    curves = Curves(name, {}, {})
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        for key, value in (metrics := parse_line(line) or {}).items():
            if key == "step" or not math.isfinite(value):
                continue
            evaluated, metric = base_of(key)
            (curves.evaluated if evaluated else curves.trained).setdefault(metric, []).append(
                (int(metrics["step"]), float(value))
            )
    return curves


def base_of(key: str) -> tuple[bool, str]:
    """Returns whether a key of the metrics is of an evaluation, and its name without what says so."""
    for prefix in EVALUATED:
        if key.startswith(prefix):
            return True, key.removeprefix(prefix)
    for prefix in TRAINED:
        key = key.removeprefix(prefix)
    return False, key


def chosen_metrics(runs: Sequence[Curves], asked: Sequence[str] = ()) -> list[str]:
    """Returns the metrics to draw: those asked for, or loss, bits per character, scores of evaluations, and speed.

    Raises:
      ValueError: no run has a metric that was asked for.
    """
    known = list(dict.fromkeys(metric for run in runs for metric in run.metrics))
    for one in asked:
        if one not in known:
            hint = did_you_mean(one, known)
            raise ValueError(f"--metric={one}: none of the runs has it{hint}; they have {', '.join(sorted(known))}")
    if asked:
        return list(dict.fromkeys(asked))
    scores = list(dict.fromkeys(metric for run in runs for metric in run.evaluated))
    speeds = [metric for metric in known if metric.endswith(SPEED)]
    found = dict.fromkeys([one for one in FIRST if one in known] + scores + speeds)
    return [metric for metric in found if metric not in COUNTS] or known


def draw(runs: Sequence[Curves], metrics: Sequence[str], log_x: bool = False, log_y: bool = False) -> Figure:
    """Returns the figure, a panel for each metric; with logarithmic axes, values that are not positive are left out.

    Raises:
      ValueError: matplotlib is missing.
    """
    figures = extras.load("charlm plot", "matplotlib.figure")
    across = min(ACROSS, len(metrics))
    down = -(-len(metrics) // across)
    figure = figures.Figure(figsize=(WIDTH * across, HEIGHT * down + 0.3), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten().tolist()
    for axes, metric in zip(panels, metrics, strict=False):
        _panel(axes, runs, metric, log_x, log_y)
    for axes in panels[len(metrics) :]:
        axes.set_axis_off()
    named = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    legend = figure.legend(
        named.values(), named.keys(), loc="outside upper left", frameon=False, fontsize=8, ncols=across
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _panel(axes: Axes, runs: Sequence[Curves], metric: str, log_x: bool, log_y: bool) -> None:
    for number, run in enumerate(runs):
        colour = f"C{number % 10}"
        if points := _shown(run.trained.get(metric, []), log_x, log_y):
            marker = "s" if len(points[0]) == 1 else ""  # of one point there is no line
            axes.plot(*points, color=colour, linewidth=1.2, marker=marker, markersize=3, label=f"{run.name}, training")
        if points := _shown(run.evaluated.get(metric, []), log_x, log_y):
            marker = "o" if len(points[0]) <= POINTS else ""
            label = f"{run.name}, evaluation"
            axes.plot(*points, color=colour, linewidth=1.2, linestyle="--", marker=marker, markersize=3, label=label)
    axes.set_title(metric.replace("_", " "), loc="left", fontsize=9, parse_math=False)
    axes.set_xlabel("step", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(color="#d0d7de", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        axes.set_xscale("log" if log_x else "linear")
        axes.set_yscale("log" if log_y else "linear")


def _shown(points: Sequence[tuple[int, float]], log_x: bool, log_y: bool) -> tuple[list[int], list[float]] | None:
    """Returns the steps and values that the axes can show; None if there are none."""
    kept = [(step, value) for step, value in points if (step > 0 or not log_x) and (value > 0 or not log_y)]
    return ([step for step, _ in kept], [value for _, value in kept]) if kept else None


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=program("charlm.plot"), description=__doc__)
    add = parser.add_argument
    add("run", nargs="+", metavar="RUN", help="workdir of a run")
    add("--out", default="curves.svg", metavar="FILE", help="the figure, .svg, .png or .pdf (default: %(default)s)")
    add("--metric", nargs="+", default=[], metavar="NAME", help="what to draw, such as loss or learning_rate")
    add("--log-x", action="store_true", help="logarithmic axis of steps")
    add("--log-y", action="store_true", help="logarithmic axis of values")
    return parser


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    args = _parser().parse_args(argv)
    return run_command(lambda: _plot(args), "plot fewer runs at a time")


def _plot(args: argparse.Namespace) -> int:
    check_options(vars(args), texts=("metric",), needed=("run", "out"))
    canvas = extras.load("charlm plot", "matplotlib.backend_bases").FigureCanvasBase
    ending = Path(args.out).suffix.removeprefix(".").lower()
    kinds = sorted({*canvas.get_supported_filetypes()} - {"pgf"})  # which needs LaTeX
    if ending not in kinds:
        raise ValueError(f"--out={args.out}: expected a file that ends in .{', .'.join(kinds)}")
    runs = read_runs(args.run)
    metrics = chosen_metrics(runs, args.metric)
    drawn = draw(runs, metrics, args.log_x, args.log_y)
    with replacing(args.out) as temporary:
        drawn.savefig(temporary, format=ending, dpi=150)
    curves = [curve for run in runs for curve in (*run.trained.values(), *run.evaluated.values())]
    steps, count = max(curve[-1][0] for curve in curves), f"{len(runs)} run{'s' * (len(runs) > 1)}"
    print(f"{args.out}: {', '.join(metrics)} of {count}, up to step {steps:,}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

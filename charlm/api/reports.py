"""The robustness report from Python: `charlm.robustness(model, rows).show()`.

It is the report of `python -m charlm.robustness`. Open it to change what a call takes or returns.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import webbrowser
from collections.abc import Iterable, Mapping
from pathlib import Path

from charlm.api.model import Model, load
from charlm.api.training import Rows
from charlm.core.durable import write_text
from charlm.core.nearest import did_you_mean
from charlm.core.stores import here
from charlm.core.types import JsonObject, Option
from charlm.core.word_table import identity_of
from charlm.robustness.measure import measure
from charlm.robustness.render import write_report
from charlm.robustness.settings import ReportSettings
from charlm.tasks.table import TASKS

Models = Model | str | os.PathLike[str] | Iterable[Model | str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class Report:
    """A robustness report.

    Attributes:
      results: all numbers, as `charlm.robustness.measure.DESCRIPTION` describes them.
      json, markdown, html: the files.
    """

    results: JsonObject
    json: Path
    markdown: Path
    html: Path

    def show(self) -> bool:
        """Opens the report in the browser; without one, prints where the page is, and returns False."""
        opened = webbrowser.open(self.html.resolve().as_uri())
        if not opened:
            print(f"no browser was found; the report is {self.html}")
        return opened

    def __str__(self) -> str:
        """The report as Markdown."""
        return self.markdown.read_text(encoding="utf-8")

    def __repr__(self) -> str:
        names = ", ".join(model["name"] for model in self.results["models"])
        return f"Report({names} on {self.results['examples']} examples: {self.html})"

    def _repr_html_(self) -> str:
        """The page, for notebooks, in a frame of its own: its style is for a whole page."""
        page = self.html.read_text(encoding="utf-8").replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


def robustness(models: Models, data: Rows, out: str | os.PathLike[str] = "", **settings: Option) -> Report:
    """Measures how much noise in the text costs fine-tuned models, and writes the report.

    Args:
      models: one fine-tuned model or several of the same task and labels: what `charlm.load` or `charlm.finetune`
        returned, or the folders of such models. It is the files that are measured.
      data: labelled rows as `charlm.finetune` takes them, or the path of a file that the models' task reads.
      out: folder of the report, in which an interrupted measurement goes on; "": a new one for temporary files.
      settings: fields of `charlm.robustness.settings.ReportSettings`, such as `noise=["keyboard:0.1"]`, `seeds=2` or
        `defence=["symspell"]`; without any, every kind of noise at several rates.

    Raises:
      ValueError: a model was fine-tuned for no task or for another one than the first, or is not what its files hold; a
        row or a setting is wrong.
    """
    known = [field.name for field in dataclasses.fields(ReportSettings)]
    if unknown := [name for name in settings if name not in known]:
        raise ValueError(f"unknown setting {unknown[0]!r} of a report{did_you_mean(unknown[0], known)}")
    several_of = ("noise", "defence", "attack", "columns")  # of which one may be given as it is
    settings = {k: (v,) if k in several_of and isinstance(v, str) else v for k, v in settings.items()}
    several = [models] if isinstance(models, Model | str | os.PathLike) else list(models)
    if not several:
        raise ValueError("models: expected at least one")
    for one in several:
        if isinstance(one, Model):
            _check_files(one)
    paths = [one.path if isinstance(one, Model) else os.fspath(one) for one in several]
    folder = Path(out or tempfile.mkdtemp(prefix="charlm-report-"))
    if isinstance(data, str | os.PathLike):
        file = os.fspath(data)  # an address, too: the report reads it as the command line does
    else:
        first = several[0] if isinstance(several[0], Model) else load(paths[0])
        file, columns = _file_of(data, first, folder)
        settings["columns"] = (*columns, *settings.get("columns", ()))
    results = measure([here(path) for path in paths], [file], str(folder), **settings)
    return Report(results, *write_report(results, folder))


def _check_files(model: Model) -> None:
    """Raises ValueError for a model that was changed after it was loaded, or that its files give only with options."""
    kept = load(model.path).pretrained
    same = identity_of(kept.params) == identity_of(model.pretrained.params)
    if not same or kept.config != model.pretrained.config:
        raise ValueError(
            f"models: {model.path} holds other parameters or another config than the model that was given: a report "
            "measures files; model.pretrained.save_pretrained(FOLDER) writes them"
        )


def _file_of(rows: Rows, model: Model, folder: Path) -> tuple[str, list[str]]:
    """Returns the path of a file with the rows, and those of its columns that the model's own files have by number."""
    if not model.task:
        raise ValueError(f"{model.path} was fine-tuned for no task: there is nothing to measure")
    form = TASKS[model.task].rows
    if form is None:
        raise ValueError(f"data: the task {model.task} takes no rows, only files: give the path of one")
    trained: Mapping[str, Option] = (model.pretrained.metadata.get("fine_tuning") or {}).get("data") or {}
    names = {key: name for key, name in trained.items() if isinstance(name, str)}
    written = form.file_of(rows, "data", names)  # pyright: ignore[reportArgumentType]  # no path: asked before
    path = folder / f"rows.{form.ending}"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, written.text)
    return str(path), [
        f"{key}={name}" for key, name in written.columns.items() if name and name != names.get(key, name)
    ]

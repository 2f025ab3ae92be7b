"""Writes the report: `report.json` (all numbers), `report.md`, and `report.html` (the same with curves).

    write_report(json.loads(Path("runs/report/report.json").read_text()), Path("elsewhere"))

Open it to write a report again without measuring. Equal measurements give equal bytes. Names, paths and notes are
untrusted text, so both writers escape them. The HTML page is a single file that loads nothing and runs no scripts.
"""

from __future__ import annotations

from pathlib import Path

from charlm.core.types import JsonObject
from charlm.robustness.render.files import write_files
from charlm.robustness.render.markdown import markdown
from charlm.robustness.render.page import html
from charlm.robustness.render.report import report_of
from charlm.robustness.render.view import View
from charlm.robustness.results import plain


def write_report(results: JsonObject, folder: Path) -> list[Path]:
    """Writes the report into a folder, which is created if needed; a reader never sees a half-written file.

    Args:
      results: the measurements, as returned by `charlm.robustness.measure`; numbers that are not finite are written
        as null.

    Returns:
      The files, report.json first.

    Raises:
      ValueError: keys are missing, the format is another one, or the folder cannot be written.
    """
    results = plain(results)
    view = View(results)
    report = report_of(view)
    return write_files(folder, results, markdown(report), html(report, view))

"""Metrics as JSON lines, always, and as TensorBoard events when tensorboardX is installed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

FILE = "metrics.jsonl"


def parse_line(line: str) -> dict[str, float] | None:
    """Returns the metrics of a line, None when it is damaged."""
    try:
        metrics = json.loads(line)
    except ValueError:
        return None
    return metrics if isinstance(metrics, dict) and isinstance(metrics.get("step"), int) else None


class MetricWriter:
    """Appends scalars to `<workdir>/metrics.jsonl`; one object a line, with its step.

    Args:
      workdir: folder of the run. resume_step: lines of later steps are cut, so that a resumed run reads as one.
    """

    def __init__(self, workdir: str | os.PathLike[str], resume_step: int = 0) -> None:
        self._path = Path(workdir) / FILE
        self._cut_after(resume_step)
        self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close())
        self._board = None
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            return
        self._board = SummaryWriter(str(Path(workdir) / "tensorboard"), purge_step=resume_step + 1)

    def _cut_after(self, step: int) -> None:
        if not self._path.exists():
            return
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        read = [(line, parse_line(line)) for line in lines if line.endswith("\n")]
        kept = [line for line, metrics in read if metrics is not None and metrics["step"] <= step]
        if kept != lines:
            temporary = self._path.with_suffix(".tmp")
            temporary.write_text("".join(kept), encoding="utf-8")
            os.replace(temporary, self._path)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes the scalars of a step."""
        try:
            self._file.write(json.dumps({"step": step, **scalars}) + "\n")
            self._file.flush()
        except OSError as error:
            raise ValueError(f"{self._path} cannot be written: {error.strerror}") from error
        if self._board is not None:
            for name, value in scalars.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Flushes and closes the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()

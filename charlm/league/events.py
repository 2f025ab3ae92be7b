"""The log of a league: when it was started, what ran, what stopped it, and what went on. Open it to add an event."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from charlm.core.reading import loads
from charlm.core.types import JsonObject

START, KILLED, BEGIN, DONE, FAILED, STOPPED, END = "start", "killed", "begin", "done", "failed", "stopped", "end"


class Events:
    """Appends to the log of a league.

    Args:
      path: the file; each line is a JSON object with "time" (seconds since 1970) and "event".

    Raises:
      ValueError: the file cannot be written.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        before = read_events(path)
        self._begun = {event["job"] for event in before if event["event"] == BEGIN and "job" in event}
        if path.exists() and not path.read_bytes().endswith(b"\n"):
            self._write("\n")  # a line that was cut when the machine stopped
        if before and before[-1]["event"] not in (STOPPED, END):
            self.add(KILLED)

    def add(self, event: str, **said: object) -> None:
        """Appends an event; `said` are its other values."""
        line = {"time": round(self._clock(), 3), "event": event, **said}
        if event == BEGIN:
            job = str(said["job"])
            line["again"] = job in self._begun
            self._begun.add(job)
        self._write(json.dumps(line) + "\n")

    def _write(self, text: str) -> None:
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ValueError(f"{self._path} cannot be written: {error.strerror}") from error


def read_events(path: Path) -> list[JsonObject]:
    """Returns the events, the oldest first; damaged lines are left out."""
    found = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            event = loads(line)
        except ValueError:
            continue
        if (
            isinstance(event, dict)
            and isinstance(event.get("event"), str)
            and isinstance(event.get("time"), int | float)
        ):
            found.append(event)
    return found

"""Compiles one step in a process of its own: python -m charlm.plan.worker FOLDER, started by `charlm.plan.analysis`.

Open it when a plan ends without a result. The folder holds the job and receives the result. The process ends at once
after that, even if the compiler is still running. It also ends when the process that waits for it is gone, however that
ended: its standard input is then at its end.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from charlm.config import from_dict
from charlm.core.durable import write_json
from charlm.core.reading import read_json
from charlm.plan.analysis import JOB, RESULT, compile_early, here, to_json
from charlm.plan.program import planner_of
from charlm.plan.topology import devices_of, parse


def end_with_parent(folder: Path) -> None:
    """Ends this process, and removes the folder, as soon as standard input is at its end; returns at once."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 64):
            pass
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def main(folder: Path) -> None:
    """Compiles the step that the job in a folder describes, and writes the result into the folder."""
    tempfile.tempdir = str(folder)  # what the compiler writes goes with the folder
    job = read_json(folder / JOB)
    try:
        topology, config = parse(job["topology"]), from_dict(job["config"])
        planned = planner_of(config)(config, devices_of(topology))
        result = to_json(here(planned, config, topology, compile_early))
    except ValueError as error:
        result = {"error": str(error)}
    write_json(folder / RESULT, result)


if __name__ == "__main__":
    end_with_parent(Path(sys.argv[1]))
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)

"""Executes the notebooks at smoke size, to see that they work.

    python notebooks/run.py                                  # all of them
    python notebooks/run.py notebooks/01_quickstart.ipynb    # some

Nothing is written beside the notebooks: runs, caches and settings live in a temporary folder, which the notebooks of
one call share, so that each finds the models that an earlier one has trained. Needs the packages of
`pip install -e ".[notebooks,eval]"`. Prints a line for each notebook; the exit status is 1 when a cell fails.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CELL_SECONDS = 600  # a cell at smoke size takes seconds; this only ends one that hangs
COLORS = re.compile(r"\x1b\[[0-9;]*m")


def execute(path: Path, settings: dict[str, str]) -> str:
    """Runs a notebook from the repository root with these environment variables; returns what went wrong, or ""."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = nbformat.read(path, as_version=4)
    if any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells):
        return "it stores outputs: clear them before committing"
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    )
    client.create_kernel_manager().transport = "ipc"  # nobody else on this machine can listen or connect
    try:
        client.execute(env=os.environ | settings)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return COLORS.sub("", str(error)).rstrip()
    return ""


def _settings(folder: str) -> dict[str, str]:
    """Returns environment variables that keep a notebook small and away from the user's files."""
    return {
        "CHARLM_SMOKE": "1",
        "CHARLM_WORKDIR": os.path.join(folder, "runs"),
        "CHARLM_CACHE": os.path.join(folder, "cache"),
        "IPYTHONDIR": os.path.join(folder, "ipython"),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")
        + " --xla_backend_optimization_level=0",  # little to run: compile fast
        "JUPYTER_PREFER_ENV_PATH": "1",  # the kernel of this environment, whatever the user has registered
    }


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python notebooks/run.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("notebook", nargs="*", type=Path, help="default: every notebook beside this file")
    paths = parser.parse_args(argv).notebook or sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in paths:
        if not path.is_file():
            parser.error(f"no notebook {path}")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="charlm_notebook_") as folder:
        settings = _settings(folder)
        for path in paths:
            started = time.monotonic()
            error = execute(path, settings)
            print(f"{'FAILED' if error else 'ok':7}{path.name}  {time.monotonic() - started:.0f} s", flush=True)
            if error:
                failed += 1
                print(error, file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

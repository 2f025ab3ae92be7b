"""Helpers that train with two processes: their programs, their logs and how they ended."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from small_run import ROOT

from charlm.config import to_json

# Reads its config from a file, so that nothing depends on how flags are parsed; flags have their own test.
PROGRAM = """
import json, sys
from pathlib import Path
from charlm.core import hosts
from charlm.config import from_dict, is_fine_tuning
from charlm.core.logs import start_logging
from charlm.finetune.run import fine_tune
from charlm.training.train import train
start_logging()
config = from_dict(json.loads(Path(sys.argv[1]).read_text()))
hosts.start(sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
with hosts.ending_together():
    (fine_tune if is_fine_tuning(config) else train)(config, sys.argv[2])
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Processes:
    """Two processes that train together, each with devices, a config, a workdir and a current folder of its own."""

    def __init__(
        self, folder: Path, configs: list, workdirs: list[Path], devices: int = 2, folders: list[Path] | None = None
    ) -> None:
        self.logs = [folder / f"{i}.log" for i in range(2)]
        address = f"127.0.0.1:{free_port()}"
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            # Theirs alone: JAX lets none but process 0 write what it compiled, so with the cache of all tests that one
            # would be done at once, and XLA gives up when the other, which compiles, comes 30 seconds later.
            "JAX_COMPILATION_CACHE_DIR": str(folder / "programs"),
            "XLA_FLAGS": re.sub(r"(device_count)=\d+", rf"\1={devices}", os.environ["XLA_FLAGS"]),
        }
        self.running = []
        for i, log in enumerate(self.logs):
            path = folder / f"{i}.json"
            path.write_text(to_json(configs[i]))
            command = [sys.executable, "-c", PROGRAM, str(path), str(workdirs[i]), address, "2", str(i)]
            with log.open("wb") as file:
                at = folders and folders[i]
                self.running.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file, cwd=at))

    def wait_for(self, text: str) -> None:
        """Returns when process 0 has logged a text."""
        for _ in range(1200):
            if text in self.logs[0].read_text():
                return
            assert self.running[0].poll() is None, self.logs[0].read_text()
            time.sleep(0.1)
        raise AssertionError(self.logs[0].read_text())

    def end(self, seconds: float = 300) -> list[int]:
        """Waits for both, so long, and returns their exit status."""
        try:
            return [process.wait(timeout=seconds) for process in self.running]
        finally:
            for process in self.running:
                process.kill()

    def read(self, process: int) -> str:
        """Returns what a process logged."""
        return self.logs[process].read_text()

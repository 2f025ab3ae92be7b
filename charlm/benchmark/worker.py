"""Runs one path in a process of its own: `python -m charlm.benchmark.worker JOB.json`, driven by `rounds.Worker`.

The worker first writes one JSON line {"ready": ...} to standard output. Then it answers every line of standard input
with one JSON line: `go N` gives wall and processor seconds of one run of batch N; `profile N FOLDER` writes a trace of
one run to the folder, with a file parts.txt on where the time went; `quit` gives the peak memory and ends the worker.
If standard input is closed, for instance because the parent died, the worker ends at once.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from charlm.benchmark.breakdown import breakdown, table
from charlm.benchmark.paths import INFERENCE, PATHS, TRAINING, Job, Runner
from charlm.core.durable import write_text
from charlm.core.types import Json, Tree

T = TypeVar("T")

PRODUCTS = {"onnxruntime": "onnx_peers", "torch": "pytorch"}  # which module times a bare product in a path's library

PROCESS_STATUS = Path("/proc/self/status")


def main(path: str) -> int:
    """Answers commands until `quit`; returns the exit status."""
    # Output of libraries must not get between the answers, so their standard output goes to standard error.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(**content: Json) -> None:
        print(json.dumps(content), file=channel, flush=True)

    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(commands,), daemon=True).start()
    started = time.perf_counter()
    job = Job.load(path)
    try:
        runner, hosts = prepare(job)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    ready = runner.about | {"ready_seconds": round(time.perf_counter() - started, 2)}
    packed = [runner.pack(host) for host in hosts]
    work = [runner.work(batch) for batch in packed]
    answer(ready=ready, tokens=[runner.tokens(batch) for batch in packed], work=work)
    while (command := commands.get().strip().split(" ", 2))[0] != "quit":
        number = int(command[1])
        if command[0] == "go":
            answer(**go(runner, job, hosts, number))
        else:
            _profile(runner, packed[number], command[2])
            answer(profile=command[2])
    answer(peak_mib=peak_mebibytes(), device_peak_bytes=runner.device_peak())
    return 0


def _read(commands: queue.Queue[str]) -> None:
    for line in sys.stdin:
        commands.put(line)
        if line.strip() == "quit":
            return
    os._exit(1)  # the parent has ended; do not wait for a run in progress


def prepare(job: Job) -> tuple[Runner, list[Tree]]:
    """Returns the runner of a job after its warm-up, and the host arrays of its batches before packing."""
    module = importlib.import_module(f"charlm.benchmark.{PATHS[job.path].module}")
    runner: Runner = module.make(job)
    hosts = [runner.tokenise(texts, words) for texts, words in zip(job.texts, job.words, strict=True)]
    for host in hosts:
        runner.forget()
        runner.warm(runner.pack(host))
    library = next((module for package, module in PRODUCTS.items() if package in PATHS[job.path].packages), "hlm")
    runner.about["product_gflop"] = importlib.import_module(f"charlm.benchmark.{library}").bare_product(job.dtype)
    return runner, hosts


def go(runner: Runner, job: Job, hosts: list[Tree], number: int) -> dict[str, float]:
    """Returns the times of one run of a batch; for inference also of its tokenisation, for training of its packing."""
    times: dict[str, float] = {}
    host = hosts[number]
    if job.case == INFERENCE:
        host = _timed(lambda: runner.tokenise(job.texts[number], job.words[number]), times, "tokenise_")
    packed = _timed(lambda: runner.pack(host), times, "pack_") if job.case == TRAINING else runner.pack(host)
    runner.forget()
    _timed(lambda: runner.run(packed), times, "")
    return times


def _timed(work: Callable[[], T], times: dict[str, float], prefix: str) -> T:
    wall, processor = time.perf_counter(), time.process_time()  # processor time is that of all threads
    result = work()
    times[f"{prefix}seconds"] = time.perf_counter() - wall
    times[f"{prefix}cpu_seconds"] = time.process_time() - processor
    return result


def _profile(runner: Runner, host: Tree, folder: str) -> None:
    import jax

    from charlm.core.profiling import trace_options

    runner.forget()
    with jax.profiler.trace(folder, profiler_options=trace_options()):
        runner.run(host)
    parts = breakdown(Path(folder), runner.program(host))
    write_text(Path(folder) / "parts.txt", table(parts))


def peak_mebibytes() -> int:
    """Returns the peak resident memory of this process in MiB.

    `ru_maxrss` is only the fallback, since it includes the memory that the parent held when it forked.
    """
    with contextlib.suppress(FileNotFoundError):  # not Linux
        if peak := re.search(r"VmHWM:\s+(\d+) kB", PROCESS_STATUS.read_text(encoding="utf-8")):
            return round(int(peak[1]) / 1024)
    import resource  # Linux in some containers has no VmHWM

    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10  # macOS counts bytes, Linux KiB
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

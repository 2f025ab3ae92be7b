"""Compiles a training step and returns what the step takes: operations, bytes, communication and memory.

Open it when compiling for a chip fails, or when a kept analysis is out of date. Each analysis is kept in the cache; its
key is made of the step's text, the chips and the versions of JAX, the compiler and this module.

For chips that this machine does not have, the compiler is stopped as soon as it has written its program and the places
of all arrays in memory. The rest of its work, making machine code that nobody would run, takes most of its time. The
only way to stop the compiler is to end its process, so it runs in a process of its own (`charlm.plan.worker`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, NamedTuple

import jax
import ml_collections

from charlm.core.durable import write_json
from charlm.core.files import cache_dir
from charlm.core.reading import read_json
from charlm.core.types import JsonObject
from charlm.plan import counting
from charlm.plan.counting import Collective
from charlm.plan.hlo import HloModule
from charlm.plan.program import Planned
from charlm.plan.topology import Topology

log = logging.getLogger("charlm")

VERSION = 7  # of what is counted; a change makes kept analyses useless
PLANS_FOLDER = "plans"
JOB, RESULT = "job.json", "result.json"
POLL = 0.2  # seconds between two looks at what the compiler has written
# Files that the compiler writes after its program and the assignment of memory.
WRITTEN_LAST = {
    "tpu": "*after_optimizations_after_buffer_assignment.txt",
    "gpu": "*after_optimizations-memory-usage-report.txt",
}
# There is no GPU to try kernels on, so products are calls of cuBLAS, as they mostly are on real ones. One pass is left
# out: it makes one kernel of each softmax and LayerNorm, for each of which the next pass tries many tilings. That was
# most of the time to compile HLM-Base for an H100 (685 s; 115 s without it), and spared 1.2 % of the bytes it moves.
GPU_OPTIONS = {
    "xla_gpu_autotune_level": 0,
    "xla_gpu_enable_triton_gemm": False,
    "xla_disable_hlo_passes": "triton-softmax-rewriter",
}


class Analysis(NamedTuple):
    """What a compiled step takes on each chip.

    Attributes:
      products: FLOPs of products, by dtype.
      other, transcendental, bytes: see `charlm.plan.counting.Count`.
      collectives: the communication of a step; collectives that differ only in size are merged.
      arguments, outputs, aliased, code: bytes, as the compiler states them; see `BufferSizes`.
      temporary: bytes of all working memory, as the compiler states them.
      unknown: the number of loops whose number of iterations is not known; they count once.
      calls: the number of calls of each library kernel whose work is not counted.
      xla: the compiler's own counts, "flops" and "bytes accessed", if it makes any; loops count once.
      once: our count of operations by the rule of `xla`, loops once; 0 if `xla` is empty.
      seconds: how long compiling took.
      beyond: the compiler's message if the step does not fit, else "".
      kept: whether it was compiled earlier, and read from the cache.
    """

    products: dict[str, float]
    other: float
    transcendental: float
    bytes: float
    collectives: list[Collective]
    arguments: float
    outputs: float
    aliased: float
    temporary: float
    code: float
    unknown: float
    calls: dict[str, float]
    xla: dict[str, float]
    once: float
    seconds: float
    beyond: str = ""
    kept: bool = False

    @property
    def flops(self) -> float:
        """All operations except transcendental ones."""
        return sum(self.products.values()) + self.other

    @property
    def memory(self) -> float:
        """The highest number of bytes that a chip needs at any time."""
        return self.arguments + self.outputs - self.aliased + self.temporary + self.code


_SIZES = ("other", "transcendental", "bytes", "arguments", "outputs", "aliased", "temporary", "code")


def last_error(stderr: str) -> str:
    """Returns the line of a process's standard error that names the error it ended with, else the last; "" for none.

    JAX may add a paragraph to a traceback that says that frames were removed; it is not the error.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and set(line.strip()) != {"-"}]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b: ", line)]
    return (named or lines or [""])[-1]


def compiled(planned: Planned, config: ml_collections.ConfigDict, topology: Topology) -> Analysis:
    """Returns what a step takes, from the cache or by compiling it.

    Raises:
      ValueError: the compiler refuses the step, or the run refuses the config.
    """
    with compiling(planned, config, topology) as wait:
        return wait()


@contextlib.contextmanager
def compiling(
    planned: Planned, config: ml_collections.ConfigDict, topology: Topology
) -> Iterator[Callable[[], Analysis]]:
    """Begins to compile a step, and yields a function that waits for the analysis; raises as `compiled` does.

    The caller can do something else until then, such as compile another step. Leaving the context ends the compiler.
    For the CPUs of this machine the yielded function does all the work.
    """
    if topology.platform == "cpu":
        yield lambda: here(planned, config, topology, _compile)
        return
    with tempfile.TemporaryDirectory(prefix="charlm_plan_", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_json(folder / JOB, {"config": config.to_dict(), "topology": topology.name})
        command = [sys.executable, "-m", "charlm.plan.worker", name]
        with _pipe() as alive, tempfile.TemporaryFile() as stderr:  # a pipe that nobody empties would stop the worker
            worker = subprocess.Popen(command, stdin=alive, stdout=subprocess.DEVNULL, stderr=stderr)
            try:
                yield lambda: _result(folder, worker.wait(), stderr, topology)
            finally:
                worker.kill()
                worker.wait()


def _result(folder: Path, status: int, stderr: IO[bytes], topology: Topology) -> Analysis:
    try:
        found = read_json(folder / RESULT)
    except (OSError, ValueError):
        stderr.seek(0)
        why = last_error(stderr.read().decode(errors="replace")) or f"status {status}"
        raise ValueError(f"the compiler for {topology.name} ended without a result: {why[:300]}") from None
    if "error" in found:
        raise ValueError(found["error"])
    return from_json(found)


@contextlib.contextmanager
def _pipe() -> Iterator[int]:
    """Yields the reading end of a pipe that is at its end once this process is gone, however it ended."""
    reader, writer = os.pipe()
    try:
        yield reader
    finally:
        os.close(reader)
        os.close(writer)


def here(
    planned: Planned,
    config: ml_collections.ConfigDict,
    topology: Topology,
    compiles: Callable[[jax.stages.Lowered, Topology], Analysis],
) -> Analysis:
    """Returns what a step takes, from the cache or by compiling it in this process."""
    lowered = planned.lower()
    path = Path(cache_dir(config)) / PLANS_FOLDER / f"{_key(lowered, topology)}.json"
    if path.exists():
        try:
            return from_json(read_json(path))._replace(kept=True)
        except (ValueError, TypeError, KeyError):
            log.warning("%s is damaged: it is made again", path)
    found = compiles(lowered, topology)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, to_json(found))
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)
    return found


def _key(lowered: jax.stages.Lowered, topology: Topology) -> str:
    versions = [VERSION, version("jax"), version("jaxlib"), topology.kind, topology.shape, _compiler(topology)]
    digest = hashlib.sha256(json.dumps(versions).encode())
    digest.update(lowered.as_text().encode())
    digest.update(os.environ.get("XLA_FLAGS", "").encode())
    return digest.hexdigest()[:32]


def _compiler(topology: Topology) -> str:
    try:
        return version({"tpu": "libtpu", "gpu": "jax-cuda12-pjrt", "cpu": "jaxlib"}[topology.platform])
    except PackageNotFoundError:
        return ""


def _compile(lowered: jax.stages.Lowered, topology: Topology) -> Analysis:
    """Compiles a step for the CPU of this machine."""
    del topology
    started = time.perf_counter()
    program = lowered.compile()
    seconds = time.perf_counter() - started
    memory, costs, text = program.memory_analysis(), program.cost_analysis() or {}, program.as_text()
    assert memory is not None
    assert text is not None  # compilers for processors tell both
    sizes = BufferSizes(
        float(memory.argument_size_in_bytes),
        float(memory.output_size_in_bytes),
        float(memory.alias_size_in_bytes),
        float(memory.temp_size_in_bytes),
        float(memory.generated_code_size_in_bytes),
    )
    own = {name: float(costs[name]) for name in ("flops", "bytes accessed") if name in costs}
    return _analysis(text, sizes, seconds, own)


def compile_early(lowered: jax.stages.Lowered, topology: Topology) -> Analysis:
    """Returns what a step takes as soon as the compiler knows it; the compiler runs on until the process ends.

    Raises:
      ValueError: the compiler refuses the step.
    """
    started = time.perf_counter()
    failed: list[Exception] = []
    folder = Path(tempfile.mkdtemp(prefix="charlm_compiler_"))
    options = {"xla_dump_to": str(folder)} | (GPU_OPTIONS if topology.platform == "gpu" else {})

    def work() -> None:
        try:
            lowered.compile(compiler_options=options)
        except Exception as error:  # the classes of plugins differ
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive() and not list(folder.glob(WRITTEN_LAST[topology.platform])):
        time.sleep(POLL)
    seconds = time.perf_counter() - started
    if failed:
        return _failed(failed[0], seconds)
    by_size = lambda pattern: max(folder.glob(pattern), key=lambda path: path.stat().st_size)
    program = by_size("*after_optimizations.txt").read_text(encoding="utf-8")
    assigned = by_size("*after_optimizations-buffer-assignment.txt").read_text(encoding="utf-8")
    return _analysis(program, sizes_of(assigned), seconds, {})


class BufferSizes(NamedTuple):
    """Bytes of a program's arrays in main memory; aliased arrays are both arguments and outputs."""

    arguments: float
    outputs: float
    aliased: float
    temporary: float
    code: float = 0.0


def sizes_of(assignment: str) -> BufferSizes:
    """Returns the sizes from XLA's text of its buffer assignment; other colours than 0 are memories inside a chip."""
    sums = dict.fromkeys(("arguments", "outputs", "aliased", "temporary"), 0.0)
    for found in re.finditer(r"^allocation \d+: size (\d+)(?:, color (\d+))?,?(.*)$", assignment, re.MULTILINE):
        size, color, what = float(found[1]), found[2] or "0", found[3]
        if color != "0":
            continue
        live, given = "maybe-live-out" in what, "parameter " in what
        sums["arguments"] += size * given
        sums["outputs"] += size * live
        sums["aliased"] += size * (live and given)
        sums["temporary"] += size * (not live and not given and "thread-local" not in what)
    return BufferSizes(**sums)


def _analysis(program: str, sizes: BufferSizes, seconds: float, xla: dict[str, float]) -> Analysis:
    text = HloModule(program)
    count = counting.count(text)
    return Analysis(
        products=count.products,
        other=count.other,
        transcendental=count.transcendental,
        bytes=count.bytes,
        collectives=list(counting.merged(count.collectives)),
        **sizes._asdict(),
        unknown=count.unknown,
        calls=count.calls,
        xla=xla,
        once=counting.count(text, once=True).flops if xla else 0.0,
        seconds=seconds,
    )


def _failed(error: Exception, seconds: float) -> Analysis:
    """Returns an analysis that says that a step does not fit; ValueError if the compiler failed for another reason."""
    beyond = exceeded(str(error))
    if beyond is None:
        raise ValueError(f"the compiler refuses this step: {str(error).splitlines()[0][:400]}") from error
    sizes = dict.fromkeys(_SIZES, 0.0) | {"temporary": beyond[0]}
    return Analysis(
        products={}, collectives=[], unknown=0, calls={}, xla={}, once=0.0, seconds=seconds, beyond=beyond[1],
        kept=False, **sizes,
    )  # fmt: skip


def exceeded(message: str) -> tuple[float, str] | None:
    """Returns the bytes that a step would need and the compiler's words; None if the message is not about memory."""
    size = r"([\d.]+)([KMGT]?)"
    # Both state all that a chip would hold, arguments included, whatever the newer says (tried with libtpu 0.0.52).
    older, newer = rf"Used {size} of \S+ hbm", rf"memory required for [\w ]+ \({size}\) exceeds available HBM \(\S+\)"
    found = re.search(f"{older}|{newer}", message)
    if found is None:
        return (0.0, message.splitlines()[0][:200]) if "RESOURCE_EXHAUSTED" in message else None
    number, unit = (one for one in found.groups() if one is not None)
    return float(number) * 1024 ** " KMGT".index(unit or " "), found[0]


def to_json(found: Analysis) -> JsonObject:
    """Returns an analysis as values for JSON."""
    return found._asdict() | {"collectives": [one._asdict() for one in found.collectives]}


def from_json(values: JsonObject) -> Analysis:
    """Returns the analysis that `to_json` wrote; TypeError or KeyError if the values are not an analysis."""
    collectives = [Collective(**one) for one in values["collectives"]]
    rest: JsonObject = {name: value for name, value in values.items() if name != "collectives"}
    return Analysis(collectives=collectives, **rest)

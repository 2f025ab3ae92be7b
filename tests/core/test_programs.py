"""Tests that compiled programs are kept from run to run, unless the user turns that off."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from charlm.core.programs import KEPT_DAYS, PROGRAMS_FOLDER, keep_programs

COMPILES = """
import sys
import charlm
from charlm.core.commands import run_command

def command():
    if sys.argv[1] == "library":
        charlm.load
    import jax
    found = []
    jax.monitoring.register_event_listener(lambda event, **_: found.append(event.rpartition("/")[2]))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.jit(lambda x: x * 2 + 1)(3.0)
    print(found.count("cache_hits"), found.count("cache_misses"))
    return 0

command() if sys.argv[1] == "library" else run_command(command, "")
"""


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """As if JAX were not imported, with a cache of its own."""
    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")  # so that it is as before after the test
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))
    return monkeypatch


def compiled_by_a_command(kind: str = "command", **environment: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.upper().startswith(("JAX_COMP", "JAX_PERS"))}
    command = [sys.executable, "-c", COMPILES, kind]
    done = subprocess.run(command, env=own | environment, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.strip()


def test_a_command_finds_what_the_one_before_compiled(tmp_path):
    cache = {"CHARLM_CACHE": str(tmp_path)}
    assert compiled_by_a_command(**cache) == "0 1"
    assert compiled_by_a_command(**cache) == "1 0"
    assert [*(tmp_path / PROGRAMS_FOLDER).glob("*/*")]
    assert compiled_by_a_command(**cache, JAX_ENABLE_COMPILATION_CACHE="false") == "0 0"
    own = tmp_path / "own"
    assert compiled_by_a_command(**cache, JAX_COMPILATION_CACHE_DIR=str(own)) == "0 1"
    assert [*own.iterdir()]


def test_a_script_finds_what_the_one_before_compiled(tmp_path):
    assert compiled_by_a_command("library", CHARLM_CACHE=str(tmp_path)) == "0 1"
    assert compiled_by_a_command("library", CHARLM_CACHE=str(tmp_path)) == "1 0"


def test_what_is_old_is_removed(fresh, tmp_path):
    keep_programs()
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert folder.parent == tmp_path / "cache" / PROGRAMS_FOLDER
    (folder / "old").write_text("")
    (folder / "new").write_text("")
    age = time.time() - (KEPT_DAYS + 1) * 24 * 3600
    os.utime(folder / "old", (age, age))
    fresh.delenv("JAX_COMPILATION_CACHE_DIR")
    keep_programs()
    assert [path.name for path in folder.iterdir()] == ["new"]


def test_where_nothing_can_be_kept_nothing_is(fresh, tmp_path):
    (tmp_path / "file").write_text("")
    fresh.setenv("CHARLM_CACHE", str(tmp_path / "file"))
    keep_programs()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_once_jax_is_there_it_is_left_alone(monkeypatch, tmp_path):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))
    keep_programs()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    assert not (tmp_path / "cache").exists()

"""Tests that memory which a program allocates and frees repeatedly stays with the process, if it is small."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
from small_run import ROOT

from charlm.core.memory import KEPT_BYTES, keep_between_steps

# Takes 64 MiB ten times, as XLA takes a program's working memory: prints how many pages the system cleared for it.
TAKES = """
import resource, sys, threading
from charlm.core.memory import keep_between_steps, use_one_arena
one_arena, keep = map(int, sys.argv[1:])
if one_arena:
    use_one_arena()
def work():
    for n in range(11):
        block = bytearray(64 * 2**20)
        if n == 0:
            if keep:
                assert keep_between_steps(64 * 2**20)
            del block
            block = bytearray(64 * 2**20)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        del block
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def cleared(one_arena: bool, keep: bool, **environment: str) -> int:
    command = [sys.executable, "-c", TAKES, str(int(one_arena)), str(int(keep))]
    inherited = {name: value for name, value in os.environ.items() if "MALLOC" not in name.upper()}
    inherited.pop("GLIBC_TUNABLES", None)
    done = subprocess.run(
        command, cwd=ROOT, env=inherited | environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc of glibc")
def test_working_memory_stays_between_steps():
    pages = 10 * 64 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert cleared(one_arena=True, keep=True) < pages / 50
    assert cleared(one_arena=False, keep=False) > pages / 2
    assert cleared(one_arena=True, keep=True, MALLOC_ARENA_MAX="8") > pages / 2  # the user's setting stands


@pytest.mark.parametrize("temporary", [0, -1, KEPT_BYTES + 1])
def test_that_of_large_programs_goes_back(temporary):
    assert keep_between_steps(temporary) is False

"""Tests that a plan that is ended leaves neither a compiling process nor a folder behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_run import ROOT

from charlm.config import get_config
from charlm.plan.analysis import compiled
from charlm.plan.topology import parse

in_linux = pytest.mark.skipif(not os.path.exists("/proc"), reason="looks into /proc")

# The command's own main function; what takes the compiler's place tells its number and sleeps.
PLAN = """
import sys
from charlm.cli import run
from charlm.plan import __main__ as command, analysis
from charlm.plan.topology import parse

sys.executable = {compiler!r}
command.use_as_cpu = lambda topology: None
command._plan = lambda config, topology: analysis.compiled(None, config, parse("h100:1"))
sys.argv = ["plan", "--config=configs/hlm_base.py:tiny", "--topology=h100:1"]
run(command.main)
"""
WORKER = """
import sys, time
from pathlib import Path
from charlm.plan.worker import end_with_parent
end_with_parent(Path(sys.argv[1]))
print("at work", flush=True)
time.sleep(60)
"""


def state_of(process_id: int) -> str:
    """Returns the letter of a process's state; "" if there is no such process."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@in_linux
def test_sigterm_ends_the_compiler_and_removes_the_folder(tmp_path):
    compiler, temporary = tmp_path / "compiler", tmp_path / "temporary"
    temporary.mkdir()
    compiler.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid && exec sleep 60\n")
    compiler.chmod(0o755)
    program = PLAN.format(compiler=str(compiler))
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as plan:
        while not (tmp_path / "pid").exists():
            assert plan.poll() is None, plan.stderr.read()
            time.sleep(0.05)
        assert len(list(temporary.glob("charlm_plan_*"))) == 1
        plan.send_signal(signal.SIGTERM)
        assert plan.wait(20) == 128 + signal.SIGTERM
        assert plan.stderr.read() == "terminated\n"
    assert list(temporary.iterdir()) == []
    assert state_of(int((tmp_path / "pid").read_text())) in ("", "Z")


def test_the_compiler_ends_when_nobody_waits_for_it(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.json").write_text("{}")
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as worker:  # fmt: skip
        assert worker.stdout.readline() == "at work\n"
        assert folder.exists()
        worker.stdin.close()
        assert worker.wait(20) == 1
    assert not folder.exists()


def test_a_compiler_that_fails_is_told_by_its_last_line_however_much_it_says(tmp_path, monkeypatch):
    compiler = tmp_path / "compiler"
    compiler.write_text(
        "#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\\\0' 'x' >&2\necho >&2\necho 'OSError: no room' >&2\nexit 3\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(compiler))
    with pytest.raises(ValueError, match=r"^the compiler for h100:1 ended without a result: OSError: no room$"):
        compiled(None, get_config(), parse("h100:1"))  # the step is not asked for anything

"""The launch scripts: what they print in a dry run, what they refuse, when they start a training again.

`python` and `gcloud` are stand-ins at the front of PATH; nothing is trained and no cloud is asked.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOCAL, TPU = ROOT / "launch" / "local.sh", ROOT / "launch" / "tpu_pod.sh"
CONFIG = "--config=configs/hlm_base.py:tiny"


class Stand:
    """A folder of stand-in programs, and a way to run a script with them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls"
        self.workdir = folder / "run"

    def program(self, name: str, body: str) -> None:
        """Puts a bash program in front of PATH; $CALLS is the file where it notes its calls."""
        path = self.bin / name
        path.write_text(f'#!/usr/bin/env bash\nCALLS={self.calls}\necho "$*" >>$CALLS\n{body}\n', encoding="utf-8")
        path.chmod(0o755)

    def lines(self) -> list[str]:
        return self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PATH": f"{self.bin}:{os.environ['PATH']}", "TMPDIR": str(self.folder)}

    def run(self, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(script), *arguments],
            capture_output=True, text=True, timeout=120, check=False, cwd=self.folder, env=self.environment,
        )  # fmt: skip


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    made = Stand(tmp_path)
    made.program("python", "exit 97")
    made.program("gcloud", "exit 98")
    return made


def one_line_error(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    for part in parts:
        assert part in done.stderr


@pytest.mark.parametrize("script", [LOCAL, TPU, ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_scripts_parse_and_are_executable(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")


@pytest.mark.parametrize("script", [LOCAL, TPU], ids=lambda path: path.name)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_the_text_at_the_top(stand: Stand, script: Path, flag: str) -> None:
    done = stand.run(script, flag)
    top = script.read_text(encoding="utf-8").split("\n\nset -euo pipefail")[0].splitlines()[1:]
    assert done.returncode == 0
    assert done.stdout.rstrip("\n") == "\n".join(line.removeprefix("#").removeprefix(" ") for line in top)
    assert "--dry-run" in done.stdout
    assert stand.lines() == []


class TestLocal:
    def run(self, stand: Stand, *arguments: str) -> subprocess.CompletedProcess[str]:
        return stand.run(LOCAL, CONFIG, f"--workdir={stand.workdir}", "--pause=0", *arguments)

    def test_dry_run_prints_the_command_and_does_nothing(self, stand: Stand) -> None:
        done = self.run(stand, "--dry-run", "--config.data.train=my books/*.txt")
        assert done.stdout.splitlines() == [
            f"mkdir -p {stand.workdir}",
            f"python -m charlm.main {CONFIG} --workdir={stand.workdir} '--config.data.train=my books/*.txt' "
            f"2>&1 | tee -ia {stand.workdir}/log.txt",
        ]
        assert done.returncode == 0
        assert not stand.workdir.exists()
        assert stand.lines() == []

    def test_the_workdir_is_named_as_the_training_would_name_it(self, stand: Stand) -> None:
        done = stand.run(LOCAL, CONFIG, "--background", "--dry-run")
        assert "--workdir=runs/hlm_base_tiny >>runs/hlm_base_tiny/log.txt 2>&1 &" in done.stdout

    @pytest.mark.parametrize(
        ("arguments", "parts"),
        [
            ([], ["--config is missing"]),
            (["--config=configs/nothing.py"], ["no file configs/nothing.py"]),
            ([CONFIG, "--workdir", "runs/hlm"], ["'--workdir'", "--name=value"]),
            ([CONFIG, "--restarts=few"], ["--restarts=few"]),
            ([CONFIG, "--config.seed"], ["'--config.seed'"]),
            (["--workdir=runs/none_of_this_name", "--stop"], ["never started"]),
        ],
    )
    def test_mistakes_are_one_line(self, stand: Stand, arguments: list[str], parts: list[str]) -> None:
        one_line_error(stand.run(LOCAL, *arguments), *parts)
        assert stand.lines() == []

    def test_a_good_run_is_started_once_and_logged(self, stand: Stand) -> None:
        stand.program("python", "echo out; echo err >&2")
        done = self.run(stand, "--config.seed=3")
        assert done.returncode == 0, done
        assert stand.lines() == [f"-m charlm.main {CONFIG} --workdir={stand.workdir} --config.seed=3"]
        assert (stand.workdir / "log.txt").read_text(encoding="utf-8").splitlines() == ["out", "err"]
        assert sorted(done.stdout.splitlines()) == ["err", "out"]
        assert self.run(stand, "--status").stdout == "ended 0\n"

    def test_two_crashes_then_success(self, stand: Stand) -> None:
        stand.program("python", "(( $(wc -l <$CALLS) > 2 )) || exit 139")
        done = self.run(stand)
        assert done.returncode == 0, done
        assert len(stand.lines()) == 3
        assert len(set(stand.lines())) == 1
        log = (stand.workdir / "log.txt").read_text(encoding="utf-8")
        assert "exit code 139; restart 2 of 3" in log

    def test_restarts_are_used_up(self, stand: Stand) -> None:
        stand.program("python", "exit 137")
        done = self.run(stand, "--restarts=2")
        assert done.returncode == 137
        assert len(stand.lines()) == 3
        assert "giving up" in done.stdout
        assert self.run(stand, "--status").stdout == "ended 137\n"

    def test_a_mistake_in_the_config_is_not_tried_a_third_time(self, stand: Stand) -> None:
        stand.program("python", "echo 'error: model.heads=7' >&2; exit 1")
        done = self.run(stand, "--restarts=50")
        assert done.returncode == 1
        assert len(stand.lines()) == 2
        assert "not a crash but a mistake" in done.stdout

    def test_quick_ends_must_be_in_a_row(self, stand: Stand) -> None:
        stand.program("python", "case $(wc -l <$CALLS) in 1|3) exit 1 ;; 2) exit 139 ;; *) exit 0 ;; esac")
        assert self.run(stand).returncode == 0
        assert len(stand.lines()) == 4

    def test_background_status_and_stop(self, stand: Stand) -> None:
        # As charlm does: a signal ends the training after it has saved, with exit code 0.
        stand.program(
            "python", "trap 'echo saved; exit 0' TERM; echo ready; for ((i = 0; i < 600; i++)); do sleep 0.1; done"
        )
        assert self.run(stand, "--status").stdout == "never started\n"
        assert self.run(stand, "--background").returncode == 0
        assert self.run(stand, "--status").stdout == "running\n"
        one_line_error(self.run(stand), "being trained already")
        log = stand.workdir / "log.txt"
        self.wait(lambda: "ready" in log.read_text(encoding="utf-8"))
        assert self.run(stand, "--stop").returncode == 0
        self.wait(lambda: self.run(stand, "--status").stdout == f"ended {128 + signal.SIGTERM}\n")
        assert log.read_text(encoding="utf-8").splitlines() == ["ready", "saved"]
        assert len(stand.lines()) == 1

    def test_a_killed_launcher_is_told_from_a_running_one(self, stand: Stand) -> None:
        stand.workdir.mkdir()
        (stand.workdir / "launch_state").write_text(f"running {os.uname().nodename} {os.getpid()}\n", encoding="utf-8")
        assert self.run(stand, "--status").stdout == "interrupted\n"

    def wait(self, condition) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.1)


# A cloud in a file: it answers `describe` with the states listed there, one a call, the last one for ever, and
# `--status` with the lines of another file.
CLOUD = """
next() { head -n 1 "$1"; (( $(wc -l <"$1") < 2 )) || sed -i 1d "$1"; }
case "$*" in
  *describe*) next {folder}/states ;;
  *--status*) next {folder}/trainings ;;
esac
"""


class TestTpu:
    WHERE = ("--name=hlm", "--zone=us-east5-b")
    REQUEST = ("--accelerator-type=v6e-8", "--spot")
    TRAIN = ("--config=configs/hlm_base.py", "--workdir=runs/hlm", "--gcs-bucket=my-bucket")

    def run(self, stand: Stand, *arguments: str) -> subprocess.CompletedProcess[str]:
        return stand.run(TPU, *arguments, *self.WHERE, "--poll-seconds=0")

    def cloud(self, stand: Stand, states: list[str], trainings: list[str] | None = None) -> None:
        (stand.folder / "states").write_text("\n".join(states) + "\n", encoding="utf-8")
        (stand.folder / "trainings").write_text("\n".join(trainings or [""]) + "\n", encoding="utf-8")
        stand.program("gcloud", CLOUD.replace("{folder}", str(stand.folder)))

    def changes(self, stand: Stand) -> list[str]:
        """Returns what was done to the cloud, in words."""
        words = {
            "queued-resources create": "create", "queued-resources delete": "delete", "tpu-vm scp": "copy",
            "pip install": "install", "gcsfuse": "mount", "--background": "start",
        }  # fmt: skip
        return [word for line in stand.lines() for part, word in words.items() if part in line]

    def test_dry_run_prints_every_command_and_does_nothing(self, stand: Stand) -> None:
        done = self.run(
            stand,
            "all",
            *self.REQUEST,
            *self.TRAIN,
            "--project=p",
            "--config.data.train=a b",
            "--restarts=5",
            "--dry-run",
        )
        assert done.returncode == 0, done
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        archive = stand.folder / "charlm-hlm.tar.gz"
        where = "--zone=us-east5-b --project=p"
        ssh = f"gcloud compute tpus tpu-vm ssh hlm {where} --worker=all --quiet '--command="
        lines = done.stdout.splitlines()
        assert lines[:6] == [
            f"gcloud compute tpus queued-resources create hlm {where} --node-id=hlm --accelerator-type=v6e-8 "
            "--runtime-version=v2-alpha-tpuv6e --spot --quiet",
            f"gcloud compute tpus queued-resources describe hlm {where} '--format=value(state.state)'",
            f"git archive --format=tar.gz --output={archive} {commit.stdout.strip()}",
            f"gcloud compute tpus tpu-vm scp {archive} hlm:charlm.tar.gz {where} --worker=all --quiet",
            f"{ssh}mkdir -p charlm && tar -xzf charlm.tar.gz -C charlm'",
            f"rm -f {archive}",
        ]
        install, mount, start = lines[6:]
        assert install.startswith(ssh)
        assert "jax[tpu]" in install
        assert "-e '\\''./charlm[text,tensorboard]'\\''" in install
        assert "gcsfuse --implicit-dirs --rename-dir-limit=100000 my-bucket /mnt/charlm; }'" in mount
        assert start == (
            f"{ssh}cd charlm && JAX_PLATFORMS=tpu,cpu bash launch/local.sh --workdir=/mnt/charlm/runs/hlm --background "
            "--python=../charlm-env/bin/python --restarts=5 --config=configs/hlm_base.py "
            "'\\''--config.data.train=a b'\\'''"
        )
        assert stand.lines() == []
        assert sorted(path.name for path in stand.folder.iterdir()) == ["bin"]

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["setup", "--setup-command=uname"], "--command=uname"),
            (["run", "--config=configs/hlm_base.py"], "'--command=cd charlm && JAX_PLATFORMS=tpu,cpu "
             "bash launch/local.sh --workdir=$HOME/runs/hlm --background --python=../charlm-env/bin/python "
             "--restarts=3 --config=configs/hlm_base.py'"),
            (["status"], "'--command=bash charlm/launch/local.sh --status --workdir=$HOME/runs/hlm'"),
            (["logs"], "'--command=tail -n 100 -F $HOME/runs/hlm/log.txt'"),
            (["logs", "--nfs=10.0.0.2:/share"], "'--command=tail -n 100 -F /mnt/charlm/runs/hlm/log.txt'"),
            (["setup", "--nfs=10.0.0.2:/share"], "sudo mount -t nfs 10.0.0.2:/share /mnt/charlm;"),
            (["delete"], "gcloud compute tpus queued-resources delete hlm --zone=us-east5-b --force --quiet\n"),
            (["create", "--accelerator-type=v5litepod-4"], "--runtime-version=v2-alpha-tpuv5-lite --quiet"),
            (["create", "--accelerator-type=v4-8", "--reserved"], "--runtime-version=tpu-ubuntu2204-base --reserved"),
            (["create", "--accelerator-type=v6e-1", "--runtime-version=other"], "--runtime-version=other --quiet"),
            (["run", *TRAIN, *REQUEST, "--keep"], "# and when the TPU was taken away:\ngcloud compute tpus "
             "queued-resources delete hlm --zone=us-east5-b --force --quiet\n"
             "gcloud compute tpus queued-resources create hlm"),
        ],
    )  # fmt: skip
    def test_each_command_in_a_dry_run(self, stand: Stand, arguments: list[str], expected: str) -> None:
        done = self.run(stand, *arguments, "--dry-run")
        assert done.returncode == 0, done
        assert expected in done.stdout
        assert stand.lines() == []

    @pytest.mark.parametrize(
        ("arguments", "parts"),
        [
            ([], ["no command"]),
            (["create"], ["--accelerator-type is missing"]),
            (["create", "--accelerator-type=v6e-16"], ["v6e-16", "one host only", "1 4 8"]),
            (["create", "--accelerator-type=v4-16"], ["v4-16", "one host only"]),
            (["create", "--accelerator-type=tpu7x-8"], ["GKE"]),
            (["create", "--accelerator-type=h100-8"], ["h100-8", "not known"]),
            (["create", *REQUEST, "--reserved"], ["exclude each other"]),
            (["create", "setup"], ["two commands"]),
            (["create", *REQUEST, "--wait-minutes=long"], ["--wait-minutes=long"]),
            (["run"], ["--config is missing"]),
            (["run", "--config=configs/nothing.py"], ["no file configs/nothing.py"]),
            (["run", "--config=configs/hlm_base.py", "--workdir=gs://b/r"], ["gs://b/r", "--gcs-bucket"]),
            (["run", *TRAIN[:2], *REQUEST, "--keep"], ["--gcs-bucket or --nfs"]),
            (["setup", "--gcs-bucket=b", "--workdir=/home/me/r"], ["/home/me/r", "/mnt/charlm"]),
            (["setup", "--gcs-bucket=b", "--nfs=h:/e"], ["exclude each other"]),
            (["setup", "--keep"], ["--keep belongs to"]),
            (["status", "--verbose"], ["'--verbose'"]),
        ],
    )
    def test_mistakes_are_one_line(self, stand: Stand, arguments: list[str], parts: list[str]) -> None:
        one_line_error(self.run(stand, *arguments), *parts)
        assert stand.lines() == []

    @pytest.mark.parametrize("missing", ["--name", "--zone"])
    def test_name_and_zone_are_needed(self, stand: Stand, missing: str) -> None:
        done = stand.run(TPU, "delete", *(a for a in self.WHERE if not a.startswith(missing)))
        one_line_error(done, f"{missing} is missing")

    def test_create_waits_until_active(self, stand: Stand) -> None:
        self.cloud(stand, ["WAITING_FOR_RESOURCES", "PROVISIONING", "PROVISIONING", "ACTIVE"])
        assert self.run(stand, "create", *self.REQUEST).returncode == 0
        assert len(stand.lines()) == 5
        assert self.changes(stand) == ["create"]

    @pytest.mark.parametrize(
        ("states", "message"),
        [
            (["PROVISIONING", "FAILED"], "the request failed"),
            (["SUSPENDED"], "taken away"),
            ([""], "the request failed"),
        ],
    )
    def test_create_ends_when_there_will_be_no_tpu(self, stand: Stand, states: list[str], message: str) -> None:
        self.cloud(stand, states)
        done = self.run(stand, "create", *self.REQUEST)
        assert done.returncode == 1
        assert message in done.stderr.splitlines()[-1]

    def test_create_gives_up_waiting(self, stand: Stand) -> None:
        self.cloud(stand, ["WAITING_FOR_RESOURCES"])
        # The clock of the script is moved on by a minute with each look.
        stand.program("sleep", "kill -USR1 $PPID; exec /bin/sleep 0.01")
        script = stand.folder / "launch" / "tpu_pod.sh"
        script.parent.mkdir()
        text = TPU.read_text(encoding="utf-8").replace(
            "set -euo pipefail\n", "set -euo pipefail\ntrap 'SECONDS=$((SECONDS + 60))' USR1\n"
        )
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)
        done = stand.run(script, "create", *self.REQUEST, *self.WHERE, "--wait-minutes=2")
        assert done.returncode == 1
        assert "not ACTIVE after 2 minutes" in done.stderr

    def test_keep_goes_on_after_a_preemption(self, stand: Stand) -> None:
        states = ["ACTIVE", "ACTIVE", "SUSPENDING", "PROVISIONING", "ACTIVE"]
        self.cloud(stand, states, ["running", "ended 143", "running", "ended 0"])
        done = self.run(stand, "all", *self.REQUEST, *self.TRAIN, "--keep")
        assert done.returncode == 0, done
        whole = ["create", "copy", "install", "mount", "start"]
        assert self.changes(stand) == [*whole, "delete", *whole, "start"]
        assert "finished" in done.stderr

    def test_keep_starts_again_what_was_interrupted_and_reports_what_failed(self, stand: Stand) -> None:
        self.cloud(stand, ["ACTIVE"], ["interrupted", "running", "ended 1"])
        done = self.run(stand, "run", *self.REQUEST, *self.TRAIN, "--keep")
        assert done.returncode == 1
        assert self.changes(stand) == ["start", "start"]
        assert "the training ended 1" in done.stderr

    def test_keep_requests_a_tpu_that_does_not_answer_anew(self, stand: Stand) -> None:
        self.cloud(stand, ["ACTIVE"], [*[""] * 10, "ended 0"])
        done = self.run(stand, "run", *self.REQUEST, *self.TRAIN, "--keep")
        assert done.returncode == 0, done
        assert self.changes(stand) == ["start", "delete", "create", "copy", "install", "mount", "start"]

    def test_keep_never_deletes_what_it_cannot_see(self, stand: Stand) -> None:
        self.cloud(stand, [""])
        done = self.run(stand, "run", *self.REQUEST, *self.TRAIN, "--keep")
        assert done.returncode == 1
        assert self.changes(stand) == ["start"]
        assert "cannot be read" in done.stderr

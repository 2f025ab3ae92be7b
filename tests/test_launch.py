"""Tests the launch scripts: what a dry run prints, which options are refused, when a training is started again.

`python`, `gcloud` and Slurm's programs are stand-ins at the front of PATH; nothing is trained and no cloud is asked.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOCAL, TPU, SLURM, KUBERNETES = (
    ROOT / "launch" / name for name in ("local.sh", "tpu_pod.sh", "slurm.sh", "kubernetes.sh")
)
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
        hidden = ("SLURM_", "SRUN_", "JAX_", "CUDA_")
        ours = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        return ours | {"PATH": f"{self.bin}:{os.environ['PATH']}", "TMPDIR": str(self.folder)}

    def run(self, script: Path, *arguments: str, cwd: Path | None = None, **variables: str):
        return subprocess.run(
            [str(script), *arguments],
            capture_output=True, text=True, timeout=120, check=False, cwd=cwd or self.folder,
            env=self.environment | variables,
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


@pytest.mark.parametrize("script", [LOCAL, TPU, SLURM, KUBERNETES, ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_scripts_parse_and_are_executable(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")


@pytest.mark.parametrize("script", [LOCAL, TPU, SLURM, KUBERNETES], ids=lambda path: path.name)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_the_text_at_the_top(stand: Stand, script: Path, flag: str) -> None:
    done = stand.run(script, flag)
    top = script.read_text(encoding="utf-8").split("\n\n")[0].splitlines()[1:]
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
            ([CONFIG, "--workdir=gs://b/r"], ["--workdir=gs://b/r is an address"]),
            ([], ["--config is missing"]),
            (["--config=configs/nothing.py"], ["no file configs/nothing.py"]),
            ([CONFIG, "--workdir", "runs/hlm"], ["'--workdir'", "--name=value"]),
            ([CONFIG, "--restarts=few"], ["--restarts=few"]),
            ([CONFIG, "--restarts=08"], ["--restarts=08 is not a whole number, without zeros in front"]),
            ([CONFIG, "--config.seed"], ["'--config.seed'"]),
            ([CONFIG, "--process=1"], ["--process", "belong to --multihost"]),
            ([CONFIG, "--multihost", "--process=two"], ["--process=two"]),
            ([CONFIG, "--multihost", "--coordinator=host"], ["'--coordinator=host'"]),
            (["--workdir=runs/none_of_this_name", "--stop"], ["never started"]),
        ],
    )
    def test_mistakes_are_one_line(self, stand: Stand, arguments: list[str], parts: list[str]) -> None:
        one_line_error(stand.run(LOCAL, *arguments), *parts)
        assert stand.lines() == []

    def test_charlm_knows_that_its_output_is_logged(self, stand: Stand) -> None:
        stand.program("python", 'echo "$CHARLM_LOG_FILE"')
        assert self.run(stand).returncode == 0
        assert (stand.workdir / "log.txt").read_text(encoding="utf-8") == f"{stand.workdir}/log.txt\n"

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

    def test_a_run_that_lasted_has_all_its_restarts_again(self, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CHARLM_SOUND_SECONDS", "1")
        stand.program("python", "case $(wc -l <$CALLS) in 2|4) sleep 1.1 ;; 6) exit 0 ;; esac; exit 137")
        done = self.run(stand, "--restarts=2")
        assert done.returncode == 0, done
        assert len(stand.lines()) == 6

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

    TOGETHER = ("--multihost", "--coordinator=first:1234", "--processes=2")

    def test_a_process_of_several_is_told_of_the_others_and_keeps_a_log_of_its_own(self, stand: Stand) -> None:
        done = self.run(stand, *self.TOGETHER, "--process=1", "--background", "--config.seed=3", "--dry-run")
        assert done.stdout.splitlines()[1] == (
            "python -m charlm.main --multihost --coordinator=first:1234 --processes=2 --process=1 "
            f"{CONFIG} --workdir={stand.workdir} --config.seed=3 >>{stand.workdir}/log.1.txt 2>&1 &"
        )

    def test_processes_in_one_workdir_have_logs_and_states_of_their_own(self, stand: Stand) -> None:
        stand.program("python", "[[ $* == *--process=0* ]] && echo step || { echo trouble; exit 139; }")
        assert self.run(stand, *self.TOGETHER, "--process=0").returncode == 0
        assert self.run(stand, *self.TOGETHER, "--process=1", "--restarts=0").returncode == 139
        assert (stand.workdir / "log.0.txt").read_text(encoding="utf-8") == "step\n"
        assert (stand.workdir / "log.1.txt").read_text(encoding="utf-8").startswith("trouble\n")
        told = [self.run(stand, "--multihost", f"--process={i}", "--status").stdout for i in range(3)]
        assert told == ["0: ended 0\n", "1: ended 139\n", "2: never started\n"]
        assert self.run(stand, "--status").stdout == "never started\n"

    def test_without_a_number_a_process_is_called_by_its_host(self, stand: Stand) -> None:
        stand.program("python", "echo step")
        assert stand.run(LOCAL, CONFIG, f"--workdir={stand.workdir}", "--multihost", HOSTNAME="w-3").returncode == 0
        assert sorted(path.name for path in stand.workdir.iterdir()) == ["launch_state.w-3", "log.w-3.txt"]
        done = stand.run(LOCAL, f"--workdir={stand.workdir}", "--multihost", "--status", HOSTNAME="w-3")
        assert done.stdout == "w-3: ended 0\n"

    @pytest.mark.parametrize(
        ("flags", "pause"), [([], "10"), (["--multihost"], "150"), (["--multihost", "--pause=7"], "7")]
    )
    def test_a_restart_among_several_waits_until_all_have_ended(
        self, stand: Stand, flags: list[str], pause: str
    ) -> None:
        stand.program("python", "(( $(wc -l <$CALLS) > 1 )) || exit 139")
        stand.program("sleep", "")
        assert stand.run(LOCAL, CONFIG, f"--workdir={stand.workdir}", *flags).returncode == 0
        called = [line for line in stand.lines() if line != "0.1"]  # that long it waits for the last lines of the log
        assert called[1:2] == [pause]
        assert len(called) == 3


# A cloud in a file: it answers `describe` with the states listed there, one a call, the last one for ever, and
# `--status` with the lines of another file, in which a semicolon ends what one host says.
CLOUD = """
next() { head -n 1 "$1" | tr ';' '\\n'; (( $(wc -l <"$1") < 2 )) || sed -i 1d "$1"; }
case "$*" in
  *"tpu-vm describe"*) cat {folder}/type ;;
  *describe*) next {folder}/states ;;
  *--background*) ;;
  *--status*) next {folder}/trainings ;;
esac
"""

# A cloud of four hosts, which are shells here: each has a name of its own and runs the command in the home of all.
HOSTS = """
for host in 0 1 2 3; do
  [[ $* == *--worker=all* || $* == *--worker=$host* ]] || continue
  for argument in "$@"; do
    [[ $argument == --command=* ]] || continue
    (cd {folder}/home && HOSTNAME=w-$host HOME=$PWD bash -c "${argument#*=}" 3>&-) || exit 1
  done
done
"""


class TestTpu:
    WHERE = ("--name=hlm", "--zone=us-east5-b")
    REQUEST = ("--accelerator-type=v6e-8", "--spot")
    TRAIN = ("--config=configs/hlm_base.py", "--workdir=runs/hlm", "--gcs-bucket=my-bucket")
    MANY = ("--accelerator-type=v6e-16", "--nfs=10.0.0.2:/share")

    def run(self, stand: Stand, *arguments: str) -> subprocess.CompletedProcess[str]:
        return stand.run(TPU, *arguments, *self.WHERE, "--poll-seconds=0")

    def cloud(self, stand: Stand, states: list[str], trainings: list[str] | None = None, kind: str = "v6e-8") -> None:
        (stand.folder / "type").write_text(f"{kind}\n" if kind else "", encoding="utf-8")
        (stand.folder / "states").write_text("\n".join(states) + "\n", encoding="utf-8")
        (stand.folder / "trainings").write_text("\n".join(trainings or [""]) + "\n", encoding="utf-8")
        stand.program("gcloud", CLOUD.replace("{folder}", str(stand.folder)))

    def changes(self, stand: Stand) -> list[str]:
        """Returns what was done to the cloud, in words."""
        words = {
            "queued-resources create": "create", "queued-resources delete": "delete", "tpu-vm scp": "copy",
            "pip install": "install", "mountpoint": "mount", "--background": "start",
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
            (["status", *MANY], "--worker=all --quiet '--command=bash charlm/launch/local.sh --status --multihost "
             "--workdir=/mnt/charlm/runs/hlm'"),
            (["logs", *MANY], "--worker=0 --quiet '--command=tail -n 100 -F /mnt/charlm/runs/hlm/log.$HOSTNAME.txt'"),
            (["logs", *MANY, "--worker=3"], "--worker=3 --quiet '--command=tail"),
            (["setup", *MANY], "sudo mount -t nfs -o lookupcache=positive,actimeo=3 10.0.0.2:/share /mnt/charlm;"),
            (["setup", MANY[0], "--gcs-bucket=b"], "--metadata-cache-ttl-secs=0 --metadata-cache-negative-ttl-secs=0"),
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
            (["create", "--accelerator-type=v6e-12"], ["v6e-12", "64, 128 and 256"]),
            (["create", "--accelerator-type=v5litepod-512"], ["v5litepod-512", "64, 128 and 256"]),
            (["create", "--accelerator-type=v6e-"], ["v6e-", "1, 4, 8"]),
            (["create", "--accelerator-type=v4-4"], ["v4-4", "8, 16, 32, 64"]),
            (["create", "--accelerator-type=v4-192"], ["v4-192", "multiples of 128"]),
            (["create", "--accelerator-type=v5p-12416"], ["v5p-12416", "12288"]),
            (["create", "--accelerator-type=v5p-x-8"], ["v5p-x-8"]),
            (["status", "--worker=1"], ["--worker belongs to logs"]),
            (["logs", "--worker=last"], ["--worker=last"]),
            (["create", "--accelerator-type=tpu7x-8"], ["GKE"]),
            (["create", "--accelerator-type=h100-8"], ["h100-8", "not known"]),
            (["create", *REQUEST, "--reserved"], ["exclude each other"]),
            (["create", "setup"], ["two commands"]),
            (["create", *REQUEST, "--wait-minutes=long"], ["--wait-minutes=long"]),
            (["run"], ["--config is missing"]),
            (["run", "--config=configs/nothing.py"], ["no file configs/nothing.py"]),
            (["run", "--config=configs/hlm_base.py", "--workdir=gs://b/r"], ["gs://b/r", "--gcs-bucket"]),
            (["run", "--config=configs/hlm_base.py", "--workdir=gs:/b"], ["gs:/b", "--gcs-bucket"]),
            (["run", "--config=configs/hlm_base.py", "--workdir=../b", "--gcs-bucket=b"], ["../b", "/mnt/charlm"]),
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
        assert stand.lines() == []

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
        shutil.copy(TPU.with_name("shared.sh"), script.parent)
        done = stand.run(script, "create", *self.REQUEST, *self.WHERE, "--wait-minutes=2")
        assert done.returncode == 1
        assert "not ACTIVE after 2 minutes" in done.stderr

    def test_keep_goes_on_after_a_preemption(self, stand: Stand) -> None:
        states = ["ACTIVE", "ACTIVE", "SUSPENDING", "PROVISIONING", "ACTIVE"]
        self.cloud(stand, states, ["running", "ended 143", "running", "ended 0"])
        done = self.run(stand, "all", *self.REQUEST, *self.TRAIN, "--keep")
        assert done.returncode == 0, done
        whole = ["create", "copy", "install", "mount", "start"]
        assert self.changes(stand) == [*whole, "delete", *whole, "mount", "start"]
        assert "finished" in done.stderr

    def test_keep_starts_again_what_was_interrupted_and_reports_what_failed(self, stand: Stand) -> None:
        self.cloud(stand, ["ACTIVE"], ["interrupted", "running", "ended 1"])
        done = self.run(stand, "run", *self.REQUEST, *self.TRAIN, "--keep")
        assert done.returncode == 1
        assert self.changes(stand) == ["start", "mount", "start"]
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

    @pytest.mark.parametrize(
        ("kind", "hosts"),
        [
            ("v4-8", 1), ("v4-16", 2), ("v4-64", 8), ("v4-128", 16), ("v4-384", 48), ("v5p-8", 1), ("v5p-32", 4),
            ("v5p-12288", 1536), ("v5litepod-1", 1), ("v5litepod-4", 1), ("v5litepod-8", 1), ("v5litepod-16", 4),
            ("v5litepod-256", 64), ("v6e-1", 1), ("v6e-4", 1), ("v6e-8", 1), ("v6e-32", 8), ("v6e-128", 32),
        ],
    )  # fmt: skip
    def test_the_hosts_of_a_slice(self, stand: Stand, kind: str, hosts: int) -> None:
        arguments = ("all", f"--accelerator-type={kind}", *self.TRAIN[:2], "--dry-run")
        alone, shared = self.run(stand, *arguments), self.run(stand, *arguments, "--nfs=10.0.0.2:/share")
        assert f"--accelerator-type={kind} --runtime-version=" in shared.stdout
        assert shared.stdout.count("bash launch/local.sh --multihost --workdir=") == (hosts > 1)
        if hosts == 1:
            assert alone.returncode == 0, alone
        else:
            one_line_error(alone, f"{kind} has {hosts} hosts", "--gcs-bucket or --nfs")

    def test_dry_run_of_several_hosts(self, stand: Stand) -> None:
        done = self.run(stand, "all", *self.MANY, *self.TRAIN[:2], "--dry-run")
        install, mount, start = done.stdout.splitlines()[-3:]
        assert "jax.devices()" not in install  # would wait for the other hosts
        assert "sudo chown $(id -u) /mnt/charlm/runs/hlm; }" in mount
        local = "bash launch/local.sh"
        assert start.replace("'\\''", "'") == (
            "gcloud compute tpus tpu-vm ssh hlm --zone=us-east5-b --worker=all --quiet '--command=cd charlm && "
            f"{{ {local} --status --multihost --workdir=/mnt/charlm/runs/hlm | grep ': running$' || "
            f"JAX_PLATFORMS=tpu,cpu {local} --multihost --workdir=/mnt/charlm/runs/hlm --background "
            "--python=../charlm-env/bin/python --restarts=3 --config=configs/hlm_base.py; }'"
        )

    def test_the_tpu_is_asked_for_its_type(self, stand: Stand) -> None:
        self.cloud(stand, ["ACTIVE"], kind="v5litepod-16")
        train = (*self.TRAIN[:2], "--nfs=10.0.0.2:/share")
        assert self.run(stand, "run", *train).returncode == 0
        assert "tpu-vm describe hlm" in stand.lines()[0]
        assert "--multihost" in stand.lines()[1]
        one_line_error(self.run(stand, "run", *train[:2]), "v5litepod-16 has 4 hosts")
        self.cloud(stand, ["ACTIVE"], kind="v5litepod-8")
        assert self.run(stand, "run", *train[:2]).returncode == 0
        assert "--multihost" not in stand.lines()[-1]
        self.cloud(stand, ["ACTIVE"], kind="")
        done = self.run(stand, "run", *train)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "accelerator type cannot be read" in done.stderr

    def keep(self, stand: Stand, *trainings: str) -> subprocess.CompletedProcess[str]:
        """Watches a slice of four hosts that say this, one a look."""
        self.cloud(stand, ["ACTIVE"], [";".join(f"w-{i}: {s}" for i, s in enumerate(t.split(";"))) for t in trainings])
        return self.run(stand, "run", *self.MANY, *self.TRAIN[:2], "--keep")

    DONE = "ended 0;ended 0;ended 0;ended 0"

    def test_keep_waits_for_all_hosts_to_finish(self, stand: Stand) -> None:
        done = self.keep(stand, "running;running;running;running", *["ended 0;running;running;ended 0"] * 9, self.DONE)
        assert done.returncode == 0, done
        assert self.changes(stand) == ["start"]
        assert len([line for line in stand.lines() if "queued-resources describe" in line]) == 11

    @pytest.mark.parametrize(
        "training", ["ended 0;ended 143;ended 0;ended 0", "interrupted;never started;ended 0;ended 130"]
    )
    def test_keep_starts_all_hosts_again_when_none_runs(self, stand: Stand, training: str) -> None:
        assert self.keep(stand, training, self.DONE).returncode == 0
        assert self.changes(stand) == ["start", "mount", "start"]
        assert stand.lines()[-3] == stand.lines()[0]
        assert "--worker=all" in stand.lines()[0]

    def test_keep_starts_a_host_for_which_the_others_wait(self, stand: Stand) -> None:
        rebooted = "running;never started;running;running"
        done = self.keep(stand, *[rebooted] * 10, *[rebooted] * 9, self.DONE)
        assert done.returncode == 0, done
        assert self.changes(stand) == ["start", "mount", "start"]

    def test_keep_reports_the_failure_of_one_host(self, stand: Stand) -> None:
        failing = ["running;ended 137;running;running"] * 12
        done = self.keep(stand, *failing, "interrupted;ended 137;ended 0;ended 130")
        assert done.returncode == 1
        assert self.changes(stand) == ["start"]
        assert "the training ended 137" in done.stderr

    def test_keep_requests_a_slice_anew_when_one_host_does_not_answer(self, stand: Stand) -> None:
        done = self.keep(stand, *["running;running;running"] * 10, self.DONE)
        assert done.returncode == 0, done
        assert self.changes(stand) == ["start", "delete", "create", "copy", "install", "mount", "start"]

    def test_hosts_that_share_a_workdir(self, stand: Stand) -> None:
        home, shared = stand.folder / "home", stand.folder / "shared"
        for name in ("launch", "configs"):
            shutil.copytree(ROOT / name, home / "charlm" / name)
        waits = f"for ((i = 0; i < 600; i++)); do [[ ! -e {home}/stop ]] || exit 0; sleep 0.1; done"
        stand.program("trainer", f"echo hello from $HOSTNAME; {waits}")
        (home / "charlm-env" / "bin").mkdir(parents=True)
        (home / "charlm-env" / "bin" / "python").symlink_to(stand.bin / "trainer")
        stand.program("gcloud", HOSTS.replace("{folder}", str(stand.folder)))
        train = (*self.TRAIN[:2], *self.MANY, f"--mount={shared}")
        done = self.run(stand, "run", *train)
        assert done.returncode == 0, done
        assert done.stdout.count("training in the background") == 4
        again = self.run(stand, "run", *train)
        assert again.stdout.splitlines() == [f"w-{i}: running" for i in range(4)]
        self.wait(lambda: len(list(shared.glob("runs/hlm/log.w-?.txt"))) == 4 and len(self.started(stand)) == 4)
        (home / "stop").touch()

        def states() -> list[str]:
            return self.run(stand, "status", *train[1:]).stdout.splitlines()

        self.wait(lambda: states() == [f"w-{i}: ended 0" for i in range(4)])
        logs = [shared.joinpath("runs", "hlm", f"log.w-{i}.txt").read_text(encoding="utf-8") for i in range(4)]
        assert logs == [f"hello from w-{i}\n" for i in range(4)]
        stand.program("tail", "")
        assert self.run(stand, "logs", *train[1:], "--worker=2").returncode == 0
        assert stand.lines()[-1] == f"-n 100 -F {shared}/runs/hlm/log.w-2.txt"

    def started(self, stand: Stand) -> list[str]:
        return [line for line in stand.lines() if line.startswith("-m charlm.main --multihost")]

    wait = TestLocal.wait


class TestSlurm:
    ARGUMENTS = ("--config=configs/hlm_base.py", "--config.data.train=a b")

    def job(
        self, stand: Stand, srun: str, state: str = "RUNNING", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs the script as Slurm does: a copy of it, in the folder where it was submitted."""
        return stand.run(*self.prepare(stand, srun, state), cwd=ROOT, SLURM_JOB_ID="7", **variables)

    def prepare(self, stand: Stand, srun: str, state: str) -> tuple[Path, ...]:
        stand.program("python", f'exec {sys.executable} "$@"')
        stand.program("srun", f"echo gpus=$JAX_LOCAL_DEVICE_IDS cpus=$SRUN_CPUS_PER_TASK >>$CALLS\n{srun}")
        stand.program("squeue", f"echo {state}")
        stand.program("scontrol", "")
        script = stand.folder / "spool" / "slurm_script"
        script.parent.mkdir()
        shutil.copy(SLURM, script)
        return script, *self.ARGUMENTS, f"--workdir={stand.workdir}"

    def requeued(self, stand: Stand) -> bool:
        return stand.lines()[-1] == "requeue 7"

    def test_dry_run_prints_the_commands_and_does_nothing(self, stand: Stand) -> None:
        done = stand.run(SLURM, *self.ARGUMENTS, "--workdir=/shared/run", "--python=/env/bin/python", "--dry-run")
        assert done.returncode == 0, done
        assert done.stdout.splitlines() == [
            "srun --ntasks-per-node=1 --kill-on-bad-exit=1 --label /env/bin/python -m charlm.main --multihost "
            "--config=configs/hlm_base.py --workdir=/shared/run '--config.data.train=a b' --status_if_stopped=143",
            "# and when that was stopped before the last step:",
            "scontrol requeue JOB",
        ]
        assert stand.lines() == []

    def test_sbatch_is_told_of_the_signal_and_of_the_queue(self) -> None:
        # sbatch reads its options up to the first line that is no comment; without B: the signal is for the processes.
        top = SLURM.read_text(encoding="utf-8").split("set -euo pipefail")[0].splitlines()
        assert all(line.startswith("#") or not line for line in top)
        assert {line for line in top if line.startswith("#SBATCH")} == {
            "#SBATCH --job-name=charlm",
            "#SBATCH --ntasks-per-node=1",
            "#SBATCH --signal=TERM@300",
            "#SBATCH --requeue",
            "#SBATCH --open-mode=append",
        }

    @pytest.mark.parametrize(
        ("arguments", "parts"),
        [
            ([], ["--config is missing"]),
            (["--config=configs/nothing.py"], ["no file configs/nothing.py"]),
            (["--config=configs/hlm_base.py"], ["--workdir is missing"]),
            (["--config=configs/hlm_base.py", "--workdir=hdfs://b/r"], ["--workdir=hdfs://b/r is no address"]),
            (["--config=configs/hlm_base.py", "--workdir=s3://b/r"], ["sbatch --nodes=N"]),
            (["--config=configs/hlm_base.py", "--workdir=/s"], ["sbatch --nodes=N"]),
            (["--config=configs/hlm_base.py", "--nodes=4"], ["'--nodes=4'", "before the script"]),
        ],
    )
    def test_mistakes_are_one_line(self, stand: Stand, arguments: list[str], parts: list[str]) -> None:
        one_line_error(stand.run(SLURM, *arguments), *parts)
        assert stand.lines() == []

    def test_a_finished_training_is_not_queued_again(self, stand: Stand) -> None:
        done = self.job(stand, "exit 0")
        assert done.returncode == 0, done
        assert stand.lines()[0] == (
            "--ntasks-per-node=1 --kill-on-bad-exit=1 --label python -m charlm.main --multihost "
            f"--config=configs/hlm_base.py --workdir={stand.workdir} --config.data.train=a b --status_if_stopped=143"
        )
        assert stand.lines()[1:] == ["gpus= cpus="]

    def test_one_that_was_stopped_is_queued_again(self, stand: Stand) -> None:
        done = self.job(stand, "exit 143")
        assert done.returncode == 0, done
        assert self.requeued(stand)

    def test_one_that_was_cancelled_is_not(self, stand: Stand) -> None:
        assert self.job(stand, "exit 143", state="COMPLETING").returncode == 0
        assert not self.requeued(stand)

    def test_one_that_failed_is_not(self, stand: Stand) -> None:
        assert self.job(stand, "exit 9").returncode == 9
        assert not self.requeued(stand)

    def test_a_signal_for_the_script_waits_for_the_processes(self, stand: Stand) -> None:
        command = self.prepare(stand, f"touch {stand.folder}/up; sleep 1; exit 143", "RUNNING")
        job = subprocess.Popen(
            command, cwd=ROOT, env=stand.environment | {"SLURM_JOB_ID": "7"}, stdout=subprocess.DEVNULL
        )
        TestLocal.wait(self, (stand.folder / "up").exists)
        job.terminate()
        assert job.wait(timeout=60) == 0
        assert self.requeued(stand)

    @pytest.mark.parametrize(
        ("variables", "told"),
        [
            ({"SLURM_GPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "32"}, "gpus=0,1,2,3 cpus=32"),
            ({"CUDA_VISIBLE_DEVICES": "0,1"}, "gpus=0,1 cpus="),
            ({"SLURM_GPUS_ON_NODE": "4", "JAX_LOCAL_DEVICE_IDS": "2"}, "gpus=2 cpus="),
        ],
    )
    def test_a_process_takes_all_gpus_of_its_node(self, stand: Stand, variables: dict[str, str], told: str) -> None:
        self.job(stand, "exit 0", **variables)
        assert stand.lines()[1] == told

"""Tests that all processes end soon after one of them, and say in one line which one ended and what to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from several_processes import free_port
from small_run import ROOT

# Like training: all meet in every step. After three, a process whose third argument is not empty fails with it.
PROGRAM = """
import sys, time
from charlm.core import hosts
from charlm.core.logs import start_logging
start_logging()
own = int(sys.argv[2])
hosts.start(sys.argv[1], 3, own)
with hosts.ending_together():
    for step in range(1200):
        hosts.from_primary(step)
        if step == 3:
            print("at work", flush=True)
            if sys.argv[3]:
                raise ValueError(sys.argv[3])
        time.sleep(0.05)
"""


@contextmanager
def three(*errors: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Three processes at work; each fails with its error, if there is one."""
    address, running = f"127.0.0.1:{free_port()}", []
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": ""}
    try:
        for i, error in enumerate(errors):
            command = [sys.executable, "-c", PROGRAM, address, str(i), error]
            running.append(subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True))
        for process in running:
            while "at work" not in process.stdout.readline():  # after a line of XLA's
                assert process.poll() is None, process.communicate()
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()


def end(process: subprocess.Popen[str], seconds: float) -> tuple[int, list[str]]:
    """Returns the status of a process that ends in time, and what it says of the reason."""
    _, said = process.communicate(timeout=seconds)
    return process.returncode, [line for line in said.splitlines() if line.startswith(("error", "Traceback", "*** "))]


# A watch to which something is sent, and then what one of its own peers sends. Its thread ends the process where a peer
# is lost, so it has a process of its own.
HEARS = """
import json, socket, sys, time
from charlm.core.watch import Watch
watch = Watch(0)
address = watch.address()
watch.start()
stranger = socket.create_connection(("127.0.0.1", address["port"]), timeout=10)
stranger.sendall(bytes.fromhex(sys.argv[1]))
stranger.shutdown(socket.SHUT_WR)
assert stranger.recv(1) == b"", "it is not closed"
peer = socket.create_connection(("127.0.0.1", address["port"]), timeout=10)
peer.sendall(json.dumps({"token": address["token"], "process": 1}).encode() + b"\\n")
deadline = time.monotonic() + 10
while 1 not in watch._peers and time.monotonic() < deadline:
    time.sleep(0.01)
print(sorted(watch._peers))
"""


@pytest.mark.parametrize("sent", [b"[" * 4000 + b"\n", b"[1]\n", b"\xff\n", b'{"token": "", "process": 1}\n', b""])
def test_what_a_stranger_sends_ends_no_watch(sent):
    command = [sys.executable, "-c", HEARS, sent.hex()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[1]\n"), done.stderr


@pytest.mark.parametrize("killed", [0, 2])
def test_a_process_that_is_killed(killed):
    with three("", "", "") as running:
        running[killed].send_signal(signal.SIGKILL)
        started = time.monotonic()
        for i in {0, 1, 2} - {killed}:
            status, (said,) = end(running[i], 30)
            assert status == 1
            assert said.startswith(f"error: process {i}: process {killed} died")
            assert said.endswith("start the same command on all hosts again: it goes on from the last checkpoint")
        assert time.monotonic() - started < 30


def test_a_process_that_fails_tells_the_others_why():
    with three("", "the disk is full", "") as running:
        assert end(running[1], 30) == (1, ["error: process 1: the disk is full"])
        for i in (0, 2):
            assert end(running[i], 30) == (1, [f"error: process {i}: process 1 failed: the disk is full"])


# As a host does that waits for another one, without JAX.
WATCHER = """
import json, sys, time
from pathlib import Pathaddress, watch = Path(sys.argv[1]), Watch(int(sys.argv[2]))
if sys.argv[2] == "0":
    address.with_suffix(".new").write_text(json.dumps(watch.address()))
    address.with_suffix(".new").rename(address)
else:
    while not address.exists():
        time.sleep(0.05)
    watch.connect(json.loads(address.read_text()), ["10.9.0.1"])
watch.start()
print("at work", flush=True)
time.sleep(300)
"""


def run_as_root(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs the right to make networks: {done.stderr.strip()}")


@pytest.fixture
def networks() -> Iterator[list[str]]:
    """Two network namespaces that a cable joins, as two hosts have."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("needs the right to make networks")
    names = [f"charlm-{os.getpid()}-{i}" for i in range(2)]
    ends = [f"ch{os.getpid()}{end}" for end in "ab"]
    try:
        for name in names:
            run_as_root(f"ip netns add {name}")
        run_as_root(f"ip link add {ends[0]} type veth peer name {ends[1]}")
        for i, (name, end) in enumerate(zip(names, ends, strict=True)):
            run_as_root(f"ip link set {end} netns {name}")
            run_as_root(f"ip -n {name} link set {end} name cable")
            run_as_root(f"ip -n {name} addr add 10.9.0.{i + 1}/24 dev cable")
            run_as_root(f"ip -n {name} link set cable up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.mark.slow
def test_a_host_that_loses_its_network_is_noticed_within_a_minute(networks, tmp_path):
    running = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-c", WATCHER, str(tmp_path / "address.json"), str(i)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for i, name in enumerate(networks)
    ]  # fmt: skip
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "at work\n"
        time.sleep(1)
        run_as_root(f"ip -n {networks[1]} link set cable down")
        started = time.monotonic()
        for i, process in enumerate(running):
            _, error = process.communicate(timeout=60)
            assert process.returncode == 1
            assert f"process {1 - i} died (killed, out of memory, or its host or network is gone)" in error
            print(f"\nprocess {i} ended after {time.monotonic() - started:.1f} s")
    finally:
        for process in running:
            process.kill()

"""Measures the server under load, with a small HLM: requests a second of one and of eight clients, times, memory."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import urllib.request

import numpy as np
import pytest
from serve.load import drive
from serve.test_serve_batching import HOSTILE, is_ready, post, until
from small_run import ROOT, WORDS

from charlm.serve.running import address_of, bound

pytestmark = pytest.mark.slow

ROUNDS, REQUESTS = 10, 400
MIB = 1 << 20


@pytest.fixture(scope="module")
def port(trained, tmp_path_factory):
    """The port of a server in a process of its own."""
    sock = bound("127.0.0.1", 0)
    port = int(address_of(sock).rpartition(":")[2])
    sock.close()
    arguments = ["serve", "--model", str(trained.workdir), "--port", str(port), "--warm-words", "6"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with log.open("w") as errors:
        process = subprocess.Popen([sys.executable, "-m", "charlm", *arguments], env=environment, stderr=errors)
    try:
        until(lambda: process.poll() is not None or is_ready(port), 300)
        yield port
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="module")
def bodies():
    rng = np.random.default_rng(0)
    return [json.dumps({"texts": " ".join(rng.choice(WORDS, rng.integers(4, 13)))}).encode() for _ in range(1000)]


def metric(port, name):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def test_eight_clients_get_more_and_memory_stays(port, bodies):
    drive(port, 8, 2000, bodies)  # what is new to the cache, and the sizes of batches
    before = metric(port, "process_resident_memory_bytes")
    found = {1: [], 8: []}
    cpu = {1: [], 8: []}
    for _ in range(ROUNDS):
        for clients in found:
            start = metric(port, "process_cpu_seconds_total")
            found[clients].append(drive(port, clients, REQUESTS, bodies))
            cpu[clients].append(1000 * (metric(port, "process_cpu_seconds_total") - start) / REQUESTS)
    drive(port, 8, 10_000, bodies)
    after = metric(port, "process_resident_memory_bytes")
    ratio = statistics.median(
        b["per_second"] / a["per_second"] for a, b in zip(found[1], found[8], strict=True)
    )  # of each round, since other work may share the machine
    for clients, rows in found.items():
        medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        print(f"\n{medians}, {statistics.median(cpu[clients]):.2f} ms of CPU time a request")
    print(f"8 clients / 1 client: {ratio:.2f}; resident memory {before / MIB:.1f} MiB, then {after / MIB:.1f} MiB")
    assert not any(row["failed"] for rows in found.values() for row in rows)
    assert statistics.median(cpu[1]) > 1.5 * statistics.median(cpu[8])
    assert after - before < 30 * MIB


def test_hostile_clients_change_nothing_for_others(port, bodies):
    files = metric(port, "process_open_fds")
    stop = threading.Event()

    def attack():
        head = b"POST /v1/encode HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
        while not stop.is_set():
            for sent in (*HOSTILE, head + b'{"texts', head + b"\xff" * 99, os.urandom(5000)):
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    try:
                        connection.sendall(sent)
                    except ConnectionError:
                        continue

    attackers = [threading.Thread(target=attack) for _ in range(2)]
    for attacker in attackers:
        attacker.start()
    try:
        found = drive(port, 4, 1000, bodies)
    finally:
        stop.set()
        for attacker in attackers:
            attacker.join()
    assert found["failed"] == 0
    assert post(port, "a")[0] == 200
    until(lambda: metric(port, "process_open_fds") <= files + 2, 40)

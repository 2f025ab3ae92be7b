"""Tests what happens to requests that come together: batches, neighbours of bad ones, the queue, time, and the stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from again import again
from serve.conftest import server_of, server_on_loopback, until
from serve.load import drive, exchange, request
from small_run import ROOT

from charlm.serve import batching, running
from charlm.serve.batching import Batcher, Batchers
from charlm.serve.limits import Limits, Refused
from charlm.serve.models import Key, Served, named

ENCODE, CLASSIFY = Key("stub", "encode"), Key("stub", "classify")


def batcher(compute, **limits):
    """A batcher that has not started, and a list of the batches that it counts."""
    counted = []
    made = Batcher(compute, Limits(**limits), lambda key, *counts: counted.append((key, *counts[:2])))
    return made, counted


def test_requests_that_wait_share_a_batch_if_they_may():
    calls = []

    def compute(key, items):
        calls.append((key, items))
        return [item.upper() for item in items]

    made, counted = batcher(compute, max_batch=4)
    asked = [(ENCODE, "ab"), (CLASSIFY, "c"), (ENCODE, "d"), (ENCODE, "ef"), (ENCODE, "g")]
    results = [made.submit(key, list(items), len(items)) for key, items in asked]
    assert made.waiting == 5
    made.start()
    assert [result.result(10) for result in results] == [["A", "B"], ["C"], ["D"], ["E", "F"], ["G"]]
    # The oldest goes first, with those that fit into four texts; the others keep their order.
    assert calls == [(ENCODE, ["a", "b", "d", "g"]), (CLASSIFY, ["c"]), (ENCODE, ["e", "f"])]
    assert counted == [(ENCODE, 3, 4), (CLASSIFY, 1, 1), (ENCODE, 1, 2)]
    assert made.stop(10)
    with pytest.raises(Refused, match="stopping"):
        made.submit(ENCODE, ["a"], 1)


def test_clients_that_were_answered_together_are_waited_for(monkeypatch):
    monkeypatch.setattr(batching, "MOST_PAUSE", 5.0)
    calls = []

    def compute(_key, items):
        calls.append(items)
        time.sleep(0.6 if len(calls) == 1 else 0)
        return items

    made, _ = batcher(compute)
    together = [made.submit(ENCODE, [item], 1) for item in "ab"]
    made.start()
    assert [one.result(10) for one in together] == [["a"], ["b"]]
    third = made.submit(ENCODE, ["c"], 1)
    time.sleep(0.05)
    fourth = made.submit(ENCODE, ["d"], 1)
    assert [third.result(10), fourth.result(10)] == [["c"], ["d"]]
    assert calls == [["a", "b"], ["c", "d"]]
    assert made.submit(ENCODE, ["e"], 1).result(10) == ["e"]  # a pause of half of no time
    start = time.monotonic()
    assert made.submit(ENCODE, ["f"], 1).result(10) == ["f"]  # one alone is not held up
    assert time.monotonic() - start < 2
    made.stop(10)


def test_a_request_that_is_refused_fails_alone():
    def compute(_key, items):
        if "bad" in items:
            raise ValueError("bad")
        return items

    made, _ = batcher(compute)
    results = [made.submit(ENCODE, [item], 1) for item in ("a", "bad", "c")]
    made.start()
    assert [results[0].result(10), results[2].result(10)] == [["a"], ["c"]]
    with pytest.raises(ValueError, match=r"^bad$"):
        results[1].result(10)
    made.stop(10)


def test_a_panic_of_a_library_ends_a_request_and_not_the_thread():
    class Panic(BaseException):
        """As a library in Rust raises it."""

    def compute(_key, items):
        if "bad" in items:
            raise Panic("backtracks without end")
        return items

    made, _ = batcher(compute)
    made.start()
    with pytest.raises(RuntimeError, match="backtracks without end"):
        made.submit(ENCODE, ["bad"], 1).result(10)
    assert made.submit(ENCODE, ["good"], 1).result(10) == ["good"]
    made.stop(10)


def test_a_large_request_is_computed_in_parts_and_lets_others_pass():
    calls, gate = [], threading.Event()

    def compute(key, items):
        calls.append((key.ability, items))
        gate.wait(20)
        return [item.upper() for item in items]

    made, counted = batcher(compute, max_batch=2)
    large = made.submit(ENCODE, list("abcde"), 5)
    made.start()
    until(lambda: calls)
    small = [made.submit(ENCODE, ["f"], 1), made.submit(Key("stub", "fill_mask"), ["g", "h"], 2)]
    gate.set()
    assert [one.result(10) for one in (large, *small)] == [list("ABCDE"), ["F"], ["G", "H"]]
    assert calls == [
        ("encode", ["a", "b"]), ("encode", ["f"]), ("fill_mask", ["g"]), ("encode", ["c", "d"]), ("fill_mask", ["h"]),
        ("encode", ["e"]),
    ]  # fmt: skip
    assert sum(texts for _, _, texts in counted) == 8
    made.stop(10)


def test_long_texts_make_smaller_parts(monkeypatch):
    monkeypatch.setattr(batching, "MOST_CHARACTERS", 10)
    calls = []
    made, _ = batcher(lambda _key, items: calls.append(items) or items)
    items = ["a" * 4, "b" * 6, "c", "d" * 30, ("e" * 5, "f" * 6), "g"]
    result = made.submit(ENCODE, items, len(items))
    other = made.submit(ENCODE, ["h" * 9], 1)
    made.start()
    assert result.result(10) == items
    assert other.result(10) == ["h" * 9]
    assert calls == [items[:2], ["h" * 9], items[2:3], items[3:4], items[4:5], items[5:]]
    made.stop(10)


def test_a_request_that_was_given_up_is_dropped_between_its_parts():
    calls, gate = [], threading.Event()
    made, _ = batcher(lambda _key, items: calls.append(items) or (gate.wait(20) and items), max_batch=1)
    large = made.submit(ENCODE, list("abc"), 3)
    made.start()
    until(lambda: calls)
    assert large.cancel()
    gate.set()
    assert made.submit(ENCODE, ["d"], 1).result(10) == ["d"]
    assert calls == [["a"], ["d"]]
    made.stop(10)


def test_a_part_that_is_refused_fails_its_whole_request_alone():
    def compute(_key, items):
        if "bad" in items:
            raise ValueError("bad")
        return items

    made, _ = batcher(compute, max_batch=2)
    results = [made.submit(ENCODE, items, len(items)) for items in (["a", "b", "bad"], ["c"])]
    made.start()
    assert results[1].result(10) == ["c"]
    with pytest.raises(ValueError, match=r"^bad$"):
        results[0].result(10)
    made.stop(10)


def test_a_request_whose_results_are_too_many_ends_with_the_part_that_shows_it():
    calls = []
    made, _ = batcher(lambda _key, items: calls.append(items) or items, max_batch=1)

    def at_most_two(found):
        if len(found) > 2:
            raise Refused(413, "more than 2")

    large = made.submit(ENCODE, list("abcde"), 5, at_most_two)
    small = made.submit(ENCODE, list("fg"), 2, at_most_two)
    made.start()
    assert small.result(10) == ["f", "g"]
    with pytest.raises(Refused, match=r"^more than 2$"):
        large.result(10)
    assert calls == [["a"], ["f"], ["b"], ["g"], ["c"]]
    made.stop(10)


def test_a_busy_model_keeps_no_other_waiting():
    gate = threading.Event()
    made = Batchers(
        ["slow", "stub"],
        lambda key, items: items if key.model == "stub" else gate.wait(20) and items,
        Limits(queue=1),
        lambda *_: None,
    )
    made.start()
    slow = made.of("slow").submit(Key("slow", "encode"), ["a"], 1)
    until(lambda: made.waiting == 0)
    waits = made.of("slow").submit(Key("slow", "encode"), ["b"], 1)
    with pytest.raises(Refused, match="--queue"):
        made.of("slow").submit(Key("slow", "encode"), ["c"], 1)
    assert made.of("stub").submit(ENCODE, ["d"], 1).result(10) == ["d"]
    assert not slow.done()
    assert made.waiting == 1
    assert not made.stop(0.05)
    for one in (slow, waits):
        with pytest.raises(Refused, match="the server has stopped"):
            one.result(1)
    gate.set()


def test_what_nobody_waits_for_is_not_computed_and_makes_room():
    calls = []
    made, _ = batcher(lambda _key, items: calls.append(items) or items, queue=2)
    first, second = (made.submit(ENCODE, [item], 1) for item in "ab")
    with pytest.raises(Refused) as full:
        made.submit(ENCODE, ["c"], 1)
    assert (full.value.status, full.value.retry_after) == (429, 1)
    assert first.cancel()
    third = made.submit(ENCODE, ["c"], 1)
    made.start()
    assert [second.result(10), third.result(10)] == [["b"], ["c"]]
    assert calls == [["b", "c"]]
    made.stop(10)


def test_the_stop_refuses_what_it_has_no_time_for():
    gate = threading.Event()
    made, _ = batcher(lambda _key, items: gate.wait(20) and items, max_batch=1)
    results = [made.submit(ENCODE, [item], 1) for item in "ab"]
    made.start()
    assert not made.stop(0.05)
    for result in results:
        with pytest.raises(Refused, match="the server has stopped"):
            result.result(1)
    gate.set()


def post(port, texts, path="/v1/encode"):
    """Status and content of the response to a request of its own connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        status, body = exchange(connection, request(json.dumps({"texts": texts}).encode(), path))
    return status, json.loads(body)


def test_clients_that_come_together_are_joined_and_a_bad_one_fails_alone(stub):
    with server_on_loopback(stub, timeout=20) as (serving, port), ThreadPoolExecutor(9) as clients:
        stub.gate.clear()
        first = clients.submit(post, port, "first")
        until(stub.entered.is_set)
        others = [clients.submit(post, port, text) for text in ["refuse", *"abcdefg"]]
        until(lambda: serving.batchers.waiting == 8)
        stub.gate.set()
        assert first.result(10)[0] == 200
        statuses = [other.result(10) for other in others]
    assert [status for status, _ in statuses] == [422] + [200] * 7
    assert statuses[0][1] == {"error": "no text with such a word"}
    assert [found["results"][0]["words"] for _, found in statuses[1:]] == [[letter] for letter in "abcdefg"]
    assert sorted(stub.calls[1]) == [*"abcdefg", "refuse"]
    assert sorted(stub.calls[2:]) == sorted([[letter] for letter in [*"abcdefg", "refuse"]])


def test_a_full_queue_and_a_long_wait_are_told(stub):
    stub.gate.clear()
    with server_on_loopback(stub, queue=1, timeout=1.0) as (serving, port), ThreadPoolExecutor(3) as clients:
        first = clients.submit(post, port, "first")
        until(stub.entered.is_set)
        second = clients.submit(post, port, "second")
        until(lambda: serving.batchers.waiting == 1)
        assert post(port, "third") == (429, {"error": "1 requests wait already (--queue)"})
        for waiting in (first, second):
            assert waiting.result(10) == (503, {"error": "the request waited for 1 seconds (--timeout)"})
        stub.gate.set()
        assert post(port, "fourth")[0] == 200
    assert ["second"] not in stub.calls


def test_what_a_client_that_has_gone_asked_for_is_not_computed(stub):
    body = request(json.dumps({"texts": list("abc")}).encode(), "/v1/encode")
    with server_on_loopback(stub, max_batch=1, queue=1) as (serving, port):
        stub.gate.clear()
        with socket.create_connection(("127.0.0.1", port)) as first:
            first.sendall(body)
            until(stub.entered.is_set)
            with socket.create_connection(("127.0.0.1", port)) as second:
                second.sendall(body)
                until(lambda: serving.batchers.waiting == 1)
            until(lambda: serving.batchers.waiting == 0)  # it has room for another one
        metrics = ""
        while 'status="499"} 2' not in metrics:
            metrics = serving.metrics.text(0, True).decode()
        stub.gate.set()
        assert post(port, "d")[0] == 200
    assert stub.calls == [["a"], ["d"]]


def test_many_clients_get_their_own_results(stub):
    bodies = [json.dumps({"texts": f"text {n}"}).encode() for n in range(50)]
    with server_on_loopback(stub) as (_, port):
        found = drive(port, 8, 400, bodies)
    assert (found["clients"], found["failed"]) == (8, 0)
    assert sum(map(len, stub.calls)) == 400


HOSTILE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"GET /\r\n\r\n",
    b"POST /v1/encode HTTP/1.1\r\nhost: x\r\ncontent-length: nine\r\n\r\n",
    b"GET /health HTTP/1.1\r\nhost: x\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(20_000)) + b"\r\n",
]


@pytest.mark.parametrize("sent", HOSTILE)
def test_what_is_no_http_is_told_in_json(stub, sent):
    with server_on_loopback(stub) as (_, port), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(10)
        try:
            status, body = exchange(connection, sent)
        except (ConnectionError, BrokenPipeError):  # it ended the connection before all was sent
            status, body = 400, b""
        assert status == 400
        assert body in (b"", b'{"error": "Invalid HTTP request received."}\n')
        assert post(port, "a")[0] == 200


def test_cut_and_slow_senders_do_not_stay(stub, monkeypatch):
    monkeypatch.setattr(running, "SILENT_SECONDS", 0.2)
    head = b"POST /v1/encode HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n"
    with server_on_loopback(stub, timeout=0.5) as (_, port):
        with socket.create_connection(("127.0.0.1", port)) as cut:
            cut.sendall(head + b'{"texts"')
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.settimeout(10)
            status, body = exchange(slow, head + b'{"texts"')
            assert (status, json.loads(body)) == (
                408,
                {"error": "the body did not come within 0.5 seconds (--timeout)"},
            )
        with socket.create_connection(("127.0.0.1", port)) as silent:
            silent.settimeout(10)
            start = time.monotonic()
            silent.sendall(b"GET /hea")
            assert silent.recv(100) == b""
            assert time.monotonic() - start < 5
        with socket.create_connection(("127.0.0.1", port)) as large:
            declared = head.replace(b"content-length: 90", b"content-length: 9000000000")
            assert exchange(large, declared)[0] == 413
        assert post(port, "a")[0] == 200
    assert stub.calls == [["a"]]


COMMAND = """
import signal, sys, threading, time
sys.path[:0] = [{tests!r}]
from serve.conftest import Stub
from charlm.core.commands import run_command
from charlm.core.logs import start_logging
from charlm.serve.limits import Limits
from charlm.serve.models import Served
from charlm.serve.running import address_of, bound, serve

class Slow(Stub):
    def _called(self, texts):
        time.sleep(0.6 if "slow" in texts else 0)

start_logging()
sock, limits = bound("127.0.0.1", 0), Limits(grace=10)
print(address_of(sock), flush=True)
served = [Served("stub", Slow(), limits)]
sys.exit(run_command(lambda: int(not serve(served, limits, sock, True, [4])), ""))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, again(signal.SIGINT)])
def test_a_signal_stops_the_server_when_all_is_answered(number):
    code = COMMAND.format(tests=str(ROOT / "tests"))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=-1, stderr=-1, text=True)
    try:
        port = int(process.stdout.readline().strip().rpartition(":")[2])
        until(lambda: is_ready(port), 30)
        with ThreadPoolExecutor(3) as clients, socket.create_connection(("127.0.0.1", port)) as before:
            assert exchange(before, request(b'{"texts": "a"}'))[0] == 200
            slow = [clients.submit(post, port, "slow", f"/v1/{ability}") for ability in ("encode", "classify")]
            time.sleep(0.2)
            process.send_signal(number)
            time.sleep(0.3)
            status, body = exchange(before, request(b'{"texts": "a"}'))
            assert (status, json.loads(body)) == (503, {"error": "the server is stopping"})
            assert [one.result(10)[0] for one in slow] == [200, 200]
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    assert errors.splitlines()[-1].endswith("stopped")
    assert "Traceback" not in errors


def is_ready(port):
    """Whether a server answers that it is ready."""
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            return exchange(connection, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")[0] == 200
    except ConnectionError:
        return False


def test_models_get_names():
    assert named(["runs/hlm", "tags=runs/t", "gs://b/x", "runs/a=b/c"]) == {
        "hlm": "runs/hlm",
        "tags": "runs/t",
        "x": "gs://b/x",
        "c": "runs/a=b/c",
    }
    with pytest.raises(ValueError, match=r"^--model=b/hlm: a/hlm is called 'hlm', too; write NAME=b/hlm$"):
        named(["a/hlm", "b/hlm"])


def test_the_warm_up_has_every_size_once(stub):
    served = Served("stub", stub, Limits(max_batch=6))
    served.warm_up(lambda: False, [3])
    assert [len(call) for call in stub.calls] == [1, 2, 4, 6] * 2
    assert {len(text.split()) for call in stub.calls for text in call} == {3}
    served.warm_up(lambda: True)
    assert len(stub.calls) == 8


def test_few_texts_get_a_model_for_few(stub):
    stub.task = "kinds"
    stub.abilities = ("classify", "encode")
    served = Served("stub", stub, Limits(max_batch=8))
    for count in (1, 2, 3, 5, 8, 9):
        served.compute(CLASSIFY, [("a", None)] * count)
    assert stub.sizes == [1, 4]
    served.compute(ENCODE._replace(options=(("unit", "words"),)), ["a"])
    assert stub.sizes == [1, 4]


def test_a_server_in_the_process_is_stopped_by_its_test(stub):
    with server_of(stub) as (serving, client):
        assert client.post("/v1/encode", json={"texts": "a"}).status_code == 200
    assert serving.batchers.stop(0)

"""Several processes watch each other, so that all end soon, and say why, when one of them ends.

Each is connected with process 0, which tells the others what it sees. The system closes the connections of a process
that is killed at once; those of a host that lost its power or its network are given up after `SILENT_SECONDS`. That a
process is busy, swapped out or stopped closes nothing. JAX notices a dead process, too, but later and in its own words.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn

log = logging.getLogger("charlm")

SILENT_SECONDS = 20  # without an answer from another host's system, until it counts as gone
CONNECT_SECONDS = 10  # for all addresses of process 0 together
GRACE_SECONDS = 2.0  # for an error of its own to come up, when another process says that it failed
AGAIN = "start the same command on all hosts again: it goes on from the last checkpoint"
_LONGEST = 4096  # bytes of a message
_DONE, _FAILED, _LOST = "done", "failed", "lost"


class Watch:
    """The connections of one process with the others, and the thread that waits for news on them.

    Args:
      process: number of this one. Process 0 first calls `address`, the others connect to it.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self._ending = threading.Lock()  # held by the one thread that says why this process ends
        self._selector = selectors.DefaultSelector()
        self._peers: dict[int, socket.socket] = {}
        self._unread: dict[int, bytes] = {}
        self._done: set[int] = set()
        self._listener: socket.socket | None = None
        self._token = ""

    def address(self) -> dict[str, Any]:
        """Listens, on process 0; returns what the others need to connect, JSON-able."""
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._listener = socket.create_server(("", 0), family=family, dualstack_ipv6=dual)
        self._token = os.urandom(16).hex()  # whoever else finds the port is not listened to
        self._selector.register(self._listener, selectors.EVENT_READ)
        name = socket.gethostname()
        return {"names": [name, *_numbers(name)], "port": self._listener.getsockname()[1], "token": self._token}

    def connect(self, address: dict[str, Any], names: Sequence[str] = ()) -> None:
        """Connects with process 0, tried under `names` first; a warning is logged where that is not possible."""
        deadline = time.monotonic() + CONNECT_SECONDS
        for name in [*names, *address["names"]]:
            try:
                connection = socket.create_connection((name, address["port"]), max(deadline - time.monotonic(), 1.0))
                connection.sendall(_message(token=address["token"], process=self._process))
            except OSError:
                continue
            self._add(0, connection)
            return
        log.warning(
            "process 0 is not reached at port %d of %s: if a process dies, the others notice only after minutes",
            address["port"], " or ".join([*names, *address["names"]]),
        )  # fmt: skip

    def start(self) -> None:
        """Waits for news from now on, in the background."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def done(self) -> None:
        """Tells the others that this process ends as it should."""
        self._tell(what=_DONE, process=self._process)

    def fail(self, why: str) -> NoReturn:
        """Ends this process with an error, said here and told to the others."""
        self._ending.acquire()
        print(f"error: process {self._process}: {why}", file=sys.stderr, flush=True)
        self._tell(what=_FAILED, process=self._process, why=why[:1000])
        self._exit()

    def _exit(self) -> NoReturn:
        if self._process == 0:  # with it JAX's service goes: the others have the time to end in their own words
            deadline = time.monotonic() + GRACE_SECONDS + 1
            while self._peers and time.monotonic() < deadline:
                time.sleep(0.05)
        os._exit(1)

    # ---- In the background ----

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if self._listener is not None and key.fileobj is self._listener:
                    self._accept(self._listener)
                else:
                    self._read(key.data)

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        try:
            connection.settimeout(5)
            hello = json.loads(connection.makefile("rb", buffering=0).readline(_LONGEST))
            if not hmac.compare_digest(str(hello["token"]), self._token):
                raise ValueError("not one of ours")
            self._add(int(hello["process"]), connection)
        except (OSError, ValueError, KeyError, TypeError):
            connection.close()

    def _add(self, peer: int, connection: socket.socket) -> None:
        connection.settimeout(5)
        for name, value in (
            ("TCP_KEEPIDLE", SILENT_SECONDS // 4),
            ("TCP_KEEPINTVL", SILENT_SECONDS // 4),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", SILENT_SECONDS * 1000),
        ):
            if hasattr(socket, name):  # elsewhere than on Linux, not all of them
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._peers[peer], self._unread[peer] = connection, b""
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: int) -> None:
        try:
            data = self._peers[peer].recv(_LONGEST)
        except OSError:
            data = b""
        *lines, self._unread[peer] = (self._unread[peer] + data).split(b"\n")
        for line in lines:
            self._hear(peer, json.loads(line))
        if data:
            return
        self._selector.unregister(self._peers[peer])
        self._peers.pop(peer).close()
        if peer not in self._done:
            self._tell(what=_LOST, process=peer)
            self._end_soon(f"process {peer} died (killed, out of memory, or its host or network is gone); {AGAIN}")

    def _hear(self, peer: int, news: dict[str, Any]) -> None:
        self._done.add(peer)  # whatever it says, it ends
        if news["what"] == _DONE:
            return
        if self._process == 0:
            self._tell(**news)
        if news["what"] == _LOST:
            self._end_soon(f"process {news['process']} died; {AGAIN}")
        else:
            self._end_soon(f"process {news['process']} failed: {news['why']}", GRACE_SECONDS)

    def _end_soon(self, why: str, after: float = 0.0) -> None:
        """Ends this process because another did, unless it is ending already; in a thread, since this one must hear."""

        def end() -> None:
            time.sleep(after)
            if self._ending.acquire(blocking=False):
                print(f"error: process {self._process}: {why}", file=sys.stderr, flush=True)
                self._exit()

        threading.Thread(target=end, daemon=True).start()

    def _tell(self, **news: Any) -> None:
        for connection in list(self._peers.values()):
            try:
                connection.sendall(_message(**news))
            except OSError:  # it ended; reading says so
                continue


def _message(**news: Any) -> bytes:
    return json.dumps(news).encode() + b"\n"


def _numbers(name: str) -> list[str]:
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except OSError:
        return []

"""Lets the processes of a run watch each other: if one ends, all others end soon after, and say why.

Each process has a connection to process 0, which forwards what it learns to the others. The operating system closes the
connections of a killed process at once; connections to a host without power or network are given up after
`SILENT_SECONDS`. A process that is only busy, swapped out or stopped keeps its connections. JAX notices a dead process,
too, but later and with a less clear message. `charlm.core.hosts` uses this module. Open it when a run of several
processes hangs or ends without saying why.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from charlm.core.logs import print_error
from charlm.core.types import Json, JsonObject

log = logging.getLogger("charlm")

SILENT_SECONDS = 20  # another host counts as gone after this time without an answer
CONNECT_SECONDS = 10  # time limit for trying all addresses of process 0
GRACE_SECONDS = 2.0  # when another process reports a failure, wait this long for an error of this process's own
AGAIN = "start the same command on all hosts again: it goes on from the last checkpoint"
_LONGEST = 4096  # largest message, in bytes
_DONE, _FAILED, _LOST = "done", "failed", "lost"


class Watch:
    """The connections of this process with the others, and the thread that reads messages from them.

    Args:
      process: number of this process. Process 0 first calls `address`; the others then call `connect`.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self._ending = threading.Lock()  # held by the one thread that prints why this process ends, and ends it
        self._selector = selectors.DefaultSelector()
        self._peers: dict[int, socket.socket] = {}
        self._unread: dict[int, bytes] = {}
        self._done: set[int] = set()
        self._listener: socket.socket | None = None
        self._token = ""

    def address(self) -> JsonObject:
        """Starts listening on process 0; returns what the others need to connect, JSON-able."""
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._listener = socket.create_server(("", 0), family=family, dualstack_ipv6=dual)
        self._token = os.urandom(16).hex()  # connections without this token are refused
        self._selector.register(self._listener, selectors.EVENT_READ)
        name = socket.gethostname()
        return {"names": [name, *_numbers(name)], "port": self._listener.getsockname()[1], "token": self._token}

    def connect(self, address: JsonObject, names: Sequence[str] = ()) -> None:
        """Connects to process 0, trying `names` before its own addresses; logs a warning if none can be reached."""
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
        """Starts reading messages in a background thread."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def done(self) -> None:
        """Tells the others that this process ends normally."""
        self._tell(what=_DONE, process=self._process)

    def fail(self, why: str) -> NoReturn:
        """Prints an error, reports it to the others, and ends this process."""
        self._ending.acquire()
        print_error(f"process {self._process}: {why}")
        self._tell(what=_FAILED, process=self._process, why=why[:1000])
        self._exit()

    def _exit(self) -> NoReturn:
        if self._process == 0:  # JAX's coordination service ends with it: give the others time to print their messages
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
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # the last of brackets without end
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

    def _hear(self, peer: int, news: JsonObject) -> None:
        self._done.add(peer)  # every message means that the peer is about to end
        if news["what"] == _DONE:
            return
        if self._process == 0:
            self._tell(**news)
        if news["what"] == _LOST:
            self._end_soon(f"process {news['process']} died; {AGAIN}")
        else:
            self._end_soon(f"process {news['process']} failed: {news['why']}", GRACE_SECONDS)

    def _end_soon(self, why: str, after: float = 0.0) -> None:
        """Ends this process because another one did, unless it is ending already.

        The waiting is done in a new thread, because the calling thread must go on reading messages.
        """

        def end() -> None:
            time.sleep(after)
            if self._ending.acquire(blocking=False):
                print_error(f"process {self._process}: {why}")
                self._exit()

        threading.Thread(target=end, daemon=True).start()

    def _tell(self, **news: Json) -> None:
        for connection in list(self._peers.values()):
            try:
                connection.sendall(_message(**news))
            except OSError:  # the peer ended; the reading thread will notice
                continue


def _message(**news: Json) -> bytes:
    return json.dumps(news).encode() + b"\n"


def _numbers(name: str) -> list[str]:
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except OSError:
        return []

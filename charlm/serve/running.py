"""Runs the server: binds the port, warms the models up, and stops on SIGTERM and Ctrl-C when all is answered.

uvicorn speaks HTTP in a thread of its own, since the main thread receives the signals. Open it to change what is done
at the start and at the end, or how long a connection may stay silent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from charlm.core import interrupts
from charlm.serve.app import Serving
from charlm.serve.limits import Limits
from charlm.serve.models import Served

log = logging.getLogger("charlm")

SILENT_SECONDS = 15  # for which a connection may lie without a whole head of a request
LISTEN_SECONDS = 0.1  # between two looks at the signals
CLOSE_SECONDS = 2  # for responses that are ready to reach their clients at the end


class Protocol(H11Protocol):
    """HTTP/1.1 whose connections end if no request comes, however slowly it is sent; what is no HTTP gets JSON, too."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._watch()

    def _watch(self) -> None:
        self.loop.call_later(SILENT_SECONDS, self._end_if_silent, self.cycle)

    def _end_if_silent(self, before: object) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is before and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
        else:
            self._watch()

    def send_400_response(self, msg: str) -> None:
        """Ends the connection, with status 400 unless a response is under way."""
        if self.cycle is None or self.cycle.response_complete:
            body = json.dumps({"error": msg}).encode() + b"\n"
            head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()


def bound(host: str, port: int) -> socket.socket:
    """Returns a socket of an address, not listening yet; raises ValueError if the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ValueError(f"--host={host}: {error.strerror or error}") from None
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(address)
    except OSError as error:
        found.close()
        raise ValueError(f"--host={host} --port={port}: {error.strerror}") from None
    return found


def address_of(sock: socket.socket) -> str:
    """Returns the URL of a bound socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def running(serving: Serving, sock: socket.socket) -> Iterator[uvicorn.Server]:
    """Within it, a server answers on a socket, in a thread of its own; afterwards it and the socket are closed."""
    config = uvicorn.Config(
        serving.app(),
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, name="http", daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield server
    finally:
        server.should_exit = True
        thread.join(CLOSE_SECONDS + 2)


def serve(
    models: Sequence[Served], limits: Limits, sock: socket.socket, access_log: bool, warm_words: Sequence[int]
) -> bool:
    """Serves models until SIGTERM or Ctrl-C; returns whether all requests that were accepted were answered.

    A second Ctrl-C ends the process at once.
    """
    serving = Serving(models, limits, access_log)
    told: list[int] = []  # the signals that came; a handler must not wait for a lock, as that of an event does
    before = {one: signal.signal(one, lambda number, _: told.append(number)) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        with interrupts.deferred(), running(serving, sock) as server:
            start = time.monotonic()
            log.info("warming up: programs are compiled, and requests get 503 until it is ready")
            for one in models:
                log.info("%s: %s, it can %s", one.name, one.model.path, ", ".join(one.abilities))
                one.warm_up(lambda: bool(told), warm_words)
            serving.batchers.start()
            if not told:
                serving.ready = True
                log.info("ready after %.1f s of warm-up: %s/docs", time.monotonic() - start, address_of(sock))
            while not told:
                time.sleep(LISTEN_SECONDS)
            serving.stopping, serving.ready = True, False
            log.info("stopping: %d requests wait", serving.batchers.waiting)
            done = serving.batchers.stop(limits.grace)
            server.should_exit = True
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    log.info("stopped")
    return done

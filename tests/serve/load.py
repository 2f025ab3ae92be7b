"""Clients that send requests over loopback as fast as they are answered, in a process of their own.

python tests/serve/load.py PORT CLIENTS REQUESTS BODIES.jsonl prints a JSON line: requests a second, quantiles of their
times in milliseconds, and how many failed.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from pathlib import Path


def request(body: bytes, path: str = "/v1/encode") -> bytes:
    """Returns the bytes of a request."""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def exchange(connection: socket.socket, sent: bytes) -> tuple[int, bytes]:
    """Sends a request and returns status and body of the response."""
    connection.sendall(sent)
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := connection.recv(1 << 16)):
            return 0, data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(lines[b"content-length"]):
        body += connection.recv(1 << 16)
    return int(head.split()[1]), body


def drive(port: int, clients: int, count: int, bodies: list[bytes]) -> dict[str, float]:
    """Sends so many requests from so many clients, each with one connection, and returns the figures."""
    seconds: list[list[float]] = [[] for _ in range(clients)]
    failed = [0] * clients

    def run(n: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i in range(n, count, clients):
                start = time.perf_counter()
                status, _ = exchange(connection, request(bodies[i % len(bodies)]))
                seconds[n].append(time.perf_counter() - start)
                failed[n] += status != 200

    threads = [threading.Thread(target=run, args=(n,)) for n in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - start
    times = sorted(one for some in seconds for one in some)
    at = lambda share: round(1000 * times[min(len(times) - 1, int(share * len(times)))], 2)
    return {
        "clients": clients,
        "per_second": round(len(times) / wall, 1),
        "p50": at(0.5),
        "p99": at(0.99),
        "failed": sum(failed),
    }


if __name__ == "__main__":
    port, clients, count, path = sys.argv[1:]
    bodies = Path(path).read_bytes().splitlines()
    print(json.dumps(drive(int(port), int(clients), int(count), bodies)))

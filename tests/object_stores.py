"""Object stores for tests: servers on this machine that speak as much of the protocols of S3 and GCS as charlm uses."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket-of-tests"


class Objects:
    """What a store holds, by name in its bucket.

    Attributes:
      log: what was done, in order: ("write", name, content) or ("remove", name, None). read: names that were read.
      forbidden: whether everything is refused.
    """

    def __init__(self) -> None:
        self.now: dict[str, bytes] = {}
        self.log: list[tuple[str, str, bytes | None]] = []
        self.read: list[str] = []
        self.forbidden = False
        self._lock = threading.Lock()

    def write(self, name: str, content: bytes) -> None:
        with self._lock:
            self.now[name] = content
            self.log.append(("write", name, content))

    def remove(self, name: str) -> None:
        with self._lock:
            self.now.pop(name, None)
            self.log.append(("remove", name, None))

    def after(self, operations: int) -> dict[str, bytes]:
        """Returns what the store held after so many of the operations."""
        held: dict[str, bytes] = {}
        for what, name, content in self.log[:operations]:
            if what == "write":
                held[name] = content or b""
            else:
                held.pop(name, None)
        return held


class Handler(BaseHTTPRequestHandler):
    """Answers requests about one bucket."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm, wbufsize = True, -1  # answers leave in one piece, at once
    objects: Objects

    def log_message(self, *_) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if self.objects.forbidden:
            return self.answer(403, b"no")
        return self.respond(unquote(path), {name: values[0] for name, values in query.items()}, body)

    do_GET = do_PUT = do_POST = do_DELETE = handle_any

    def respond(self, path: str, query: dict[str, str], body: bytes) -> None:
        raise NotImplementedError

    def content(self, name: str, version: dict[str, str], unchanged: bool) -> None:
        """Answers with an object, or the part of it that is asked for."""
        content = self.objects.now.get(name)
        if content is None:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        if unchanged:
            return self.answer(304, **version)
        self.objects.read.append(name)
        if not (wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")):
            return self.answer(200, content, **version)
        start, end = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
        if start >= len(content):
            return self.answer(416, b"<Error><Code>InvalidRange</Code></Error>")
        place = f"bytes {start}-{end}/{len(content)}"
        return self.answer(206, content[start : end + 1], Content_Range=place, **version)


class S3(Handler):
    """As S3 answers."""

    def respond(self, path: str, query: dict[str, str], body: bytes) -> None:
        _, bucket, name = path.split("/", 2)
        if bucket != BUCKET:
            return self.answer(404, b"<Error><Code>NoSuchBucket</Code><Message>no such bucket</Message></Error>")
        if not name:
            names = [one for one in sorted(self.objects.now) if one.startswith(query.get("prefix", ""))]
            entries = "".join(f"<Contents><Key>{escape(one)}</Key><Size>1</Size></Contents>" for one in names)
            head = f"<KeyCount>{len(names)}</KeyCount><IsTruncated>false</IsTruncated>"
            return self.answer(200, f"<ListBucketResult>{head}{entries}</ListBucketResult>".encode())
        if self.command == "PUT":
            self.objects.write(name, body)
            return self.answer(200, ETag=_etag(body))
        if self.command == "DELETE":
            self.objects.remove(name)
            return self.answer(204)
        tag = _etag(self.objects.now.get(name, b""))
        return self.content(name, {"ETag": tag}, self.headers.get("If-None-Match") == tag)


class Gcs(Handler):
    """As the JSON interface of Google Cloud Storage answers."""

    def respond(self, path: str, query: dict[str, str], body: bytes) -> None:
        if path.startswith("/upload/"):
            self.objects.write(query["name"], body)
            return self.answer(200, self.described(query["name"]))
        place = f"/storage/v1/b/{BUCKET}/o"
        name = path.removeprefix(f"{place}/")
        if path == place:
            first, after = query.get("startOffset", ""), query.get("endOffset", "\U0010ffff")
            items = [json.loads(self.described(one)) for one in sorted(self.objects.now) if first <= one < after]
            return self.answer(200, json.dumps({"items": items}).encode())
        if self.command == "DELETE":
            self.objects.remove(name)
            return self.answer(204)
        version = _generation(self.objects.now.get(name, b""))
        return self.content(name, {"x-goog-generation": version}, query.get("ifGenerationNotMatch") == version)

    def described(self, name: str) -> bytes:
        content = self.objects.now[name]
        return json.dumps({"name": name, "generation": _generation(content), "size": str(len(content))}).encode()


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


def _generation(content: bytes) -> str:
    return str(int(hashlib.md5(content).hexdigest()[:12], 16) + 1)


@contextlib.contextmanager
def store(scheme: str) -> Iterator[Objects]:
    """Runs a store, to which addresses of the scheme lead; yields what it holds."""
    objects = Objects()
    handler = type("Bound", (S3 if scheme == "s3" else Gcs,), {"objects": objects})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    variables = {
        "s3": {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
        "gs": {"TENSORSTORE_GCS_HTTP_URL": url, "GOOGLE_AUTH_TOKEN_FOR_TESTING": "a"},
    }[scheme]
    with mock.patch.dict("os.environ", variables):
        yield objects
    server.shutdown()
    server.server_close()

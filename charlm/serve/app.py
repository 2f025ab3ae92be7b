"""Answers requests: reads and checks them, waits for their results, and turns every failure into one line of JSON.

Open it to add a path, or to change the status of a failure. Starlette routes; `charlm.serve.batching` computes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from charlm.core import reading
from charlm.core.nearest import did_you_mean
from charlm.core.types import Json, JsonObject
from charlm.serve import pages
from charlm.serve.abilities import ABILITIES, MODEL, Item, Result
from charlm.serve.batching import Batchers
from charlm.serve.fields import read
from charlm.serve.limits import Limits, Refused
from charlm.serve.metrics import CONTENT_TYPE, Metrics
from charlm.serve.models import Key, Served

log = logging.getLogger("charlm")

GONE_SECONDS = 0.2  # between two looks at whether the client of a request still waits
CLIENT_GONE = 499  # in the metrics and the log alone, since nobody reads the response

HEADERS = {  # of the page: nothing from elsewhere, and no script at all
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}


class Serving:
    """The models of a server, with all that its requests share.

    Args:
      models: the models; a request that names none gets the first that can do what it asks.

    Attributes:
      ready: whether requests are answered; set after the warm-up, and unset when the server stops.
      stopping: whether the server stops.
    """

    def __init__(self, models: Sequence[Served], limits: Limits, access_log: bool = False) -> None:
        self._models: Mapping[str, Served] = {one.name: one for one in models}
        self._limits, self._access_log = limits, access_log
        self.ready = self.stopping = False
        self.metrics = Metrics()
        self.metrics.add_caches(models)
        self.batchers = Batchers(self._models, self._compute, limits, self._computed)
        self._openapi = _dumped(pages.openapi(models, limits))
        self._docs = pages.docs(models, limits).encode()

    def _compute(self, key: Key, items: list[Item]) -> list[Result]:
        return self._models[key.model].compute(key, items)

    def _computed(self, key: Key, requests: int, texts: int, seconds: float) -> None:
        self.metrics.computed(key.model, key.ability, requests, texts, seconds)

    def app(self) -> ASGIApp:
        """Returns the application, as an ASGI server runs it."""
        get: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/v1/models": self._list,
            "/health": self._health,
            "/metrics": self._measured,
            "/openapi.json": self._described,
            "/docs": self._page,
            "/": self._page,
        }
        routes = [Route(path, handler, methods=["GET"]) for path, handler in get.items()]
        routes += [Route(f"/v1/{name}", self._ability(name), methods=["POST"]) for name in ABILITIES]
        paths = [*get, *(f"/v1/{name}" for name in ABILITIES)]

        async def no_route(request: Request, error: Exception) -> Response:
            path, status = request.url.path, error.status_code if isinstance(error, HTTPException) else 500
            if status == 405:
                allowed = "GET" if path in get else "POST"
                return _failure(Refused(405, f"{path} expects {allowed}", allow=allowed))
            return _failure(Refused(404, f"no path {path[:80]!r}{did_you_mean(path[:80], paths, 0.8)}"))

        inner = Starlette(routes=routes, exception_handlers={HTTPException: no_route})
        inner.router.redirect_slashes = False
        return self._counted(inner, set(paths))

    def _counted(self, inner: ASGIApp, paths: set[str]) -> ASGIApp:
        """Returns the application with its requests counted and, if that is wanted, logged."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await inner(scope, receive, send)
            start, status, size = time.perf_counter(), 0, 0

            async def noted(message: Message) -> None:
                nonlocal status, size
                if message["type"] == "http.response.start":
                    status = message["status"]
                size += len(message.get("body", b""))
                await send(message)

            await inner(scope, receive, noted)
            path, seconds = scope["path"] if scope["path"] in paths else "other", time.perf_counter() - start
            self.metrics.answered(path, status, seconds)
            if self._access_log:
                client = (scope.get("client") or ("-",))[0]
                line = "%s %s %s %d, %.1f ms, %d bytes"
                log.info(line, client, scope["method"][:8], path, status, 1000 * seconds, size)

        return counted

    # Paths of GET

    async def _list(self, _request: Request) -> Response:
        listed = [
            {
                "name": one.name,
                "path": one.model.path,
                "kind": one.model.pretrained.title,
                "task": one.model.task or None,
                "labels": one.model.labels,
                "abilities": list(one.abilities),
            }
            for one in self._models.values()
        ]
        return _respond({"models": listed})

    async def _health(self, _request: Request) -> Response:
        if not self.ready:
            return _failure(self._unready())
        return _respond({"status": "ready"})

    async def _measured(self, _request: Request) -> Response:
        return Response(self.metrics.text(self.batchers.waiting, self.ready), media_type=CONTENT_TYPE)

    async def _described(self, _request: Request) -> Response:
        return Response(self._openapi, media_type="application/json")

    async def _page(self, _request: Request) -> Response:
        return Response(self._docs, media_type="text/html", headers=HEADERS)

    # Paths of POST

    def _ability(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            try:
                return await self._answer(name, request)
            except Refused as error:
                return _failure(error)
            except ValueError as error:  # of the model, about a text
                return _failure(Refused(422, str(error)))
            except Exception as error:
                # Not the error's own text, which may quote the request.
                log.info("error: %s in %s failed at %s", type(error).__name__, name, _place(error))
                return _failure(Refused(500, f"the server failed: {type(error).__name__}"))

        return answered

    async def _answer(self, name: str, request: Request) -> Response:
        if not self.ready:
            raise self._unready()
        if not any(name in one.abilities for one in self._models.values()):
            can = ", ".join(dict.fromkeys(ability for one in self._models.values() for ability in one.abilities))
            raise Refused(404, f"no model of this server can {name}; they can {can}")
        body = await self._body(request)
        ability = ABILITIES[name]
        values = read(body, (MODEL, *ability.fields), self._limits)
        model = self._model(name, values["model"])
        asked = ability.ask(values)
        if (texts := asked.texts or len(asked.items)) > self._limits.max_texts:
            raise Refused(413, f"{texts:,} texts, but a request may have {self._limits.max_texts:,} (--max-texts)")
        check = lambda found: ability.check(found, values, self._limits)
        key = Key(model.name, name, asked.options)
        waiting = self.batchers.of(model.name).submit(key, asked.items, texts, check)
        found = await self._found(request, asyncio.wrap_future(waiting))
        return _respond({"model": model.name, "results": ability.show(found, values)})

    async def _found(self, request: Request, waiting: asyncio.Future[list[Result]]) -> list[Result]:
        """Returns the results of a request, which is given up when its time is over or its client has gone."""
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({waiting, gone}, timeout=self._limits.timeout, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            if gone.done():
                raise Refused(CLIENT_GONE, "the client has gone")
            message = f"the request waited for {self._limits.timeout:g} seconds (--timeout)"
            raise Refused(503, message, retry_after=1)
        finally:
            gone.cancel()
            waiting.cancel()  # so that what is left of it is not computed

    def _unready(self) -> Refused:
        return Refused(503, f"the server is {'stopping' if self.stopping else 'warming up'}", retry_after=1)

    def _model(self, ability: str, name: str | None) -> Served:
        """Returns the model that a request names, or the first with the ability."""
        if name is None:
            return next(one for one in self._models.values() if ability in one.abilities)
        if name not in self._models:
            raise Refused(404, f"no model {name[:80]!r}{did_you_mean(name[:80], self._models)}")
        if ability not in self._models[name].abilities:
            raise Refused(404, f"{name} cannot {ability}: it can {', '.join(self._models[name].abilities)}")
        return self._models[name]

    async def _body(self, request: Request) -> Json:
        """Returns the JSON value of a request's body; a body that is too large is not read to its end."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, "expected a body of the type application/json (the header Content-Type)")
        most = self._limits.max_bytes
        too_large = Refused(413, f"expected a body of at most {most:,} bytes (--max-bytes)")
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length[:20]) > most:
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._limits.timeout):
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        raise too_large
                    parts.append(part)
        except TimeoutError:
            raise Refused(408, f"the body did not come within {self._limits.timeout:g} seconds (--timeout)") from None
        except ClientDisconnect:
            raise Refused(400, "the body was cut") from None
        try:
            return reading.loads(b"".join(parts), reading.unique)
        except ValueError as error:
            raise Refused(400, f"expected JSON in UTF-8: {_without_text(error)}") from None


async def _gone(request: Request) -> None:
    """Returns when the client of a request whose body was read has closed the connection."""
    await asyncio.sleep(GONE_SECONDS)  # most are answered before
    while not await request.is_disconnected():
        await asyncio.sleep(GONE_SECONDS)


def _without_text(error: ValueError) -> str:
    return "the body is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)[:200]


def _place(error: BaseException) -> str:
    """Returns the module and line where an error was raised."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return "?" if last is None else f"{last.tb_frame.f_globals.get('__name__')}:{last.tb_lineno}"


def _dumped(value: JsonObject) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _respond(value: JsonObject, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_dumped(value), status, headers=headers, media_type="application/json")


def _failure(error: Refused) -> Response:
    headers = {"retry-after": str(error.retry_after)} if error.retry_after else {}
    headers |= {"allow": error.allow} if error.allow else {}
    message = error.message.encode("utf-8", "backslashreplace").decode()
    return _respond({"error": message}, error.status, headers)

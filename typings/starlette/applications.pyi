from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

class Starlette:
    router: Router
    def __init__(
        self,
        *,
        routes: Sequence[Route] | None = None,
        exception_handlers: Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] | None = None,
    ) -> None: ...
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

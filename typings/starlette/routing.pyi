from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

class Route:
    def __init__(
        self, path: str, endpoint: Callable[[Request], Awaitable[Response]], *, methods: Sequence[str] | None = None
    ) -> None: ...

class Router:
    redirect_slashes: bool

"""uvicorn, an optional package that `charlm serve` speaks HTTP by: here only what it uses."""

import asyncio
import socket

from starlette.types import ASGIApp

class Config:
    def __init__(
        self,
        app: ASGIApp,
        *,
        http: type[asyncio.Protocol] = ...,
        ws: str = ...,
        lifespan: str = ...,
        log_config: None = ...,
        log_level: str | None = ...,
        access_log: bool = ...,
        server_header: bool = ...,
        proxy_headers: bool = ...,
        timeout_graceful_shutdown: int | None = ...,
    ) -> None: ...

class Server:
    started: bool
    should_exit: bool
    def __init__(self, config: Config) -> None: ...
    def run(self, sockets: list[socket.socket] | None = None) -> None: ...

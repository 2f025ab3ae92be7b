import asyncio

class RequestResponseCycle:
    response_complete: bool

class H11Protocol(asyncio.Protocol):
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    cycle: RequestResponseCycle | None
    def connection_made(self, transport: asyncio.Transport) -> None: ...  # pyright: ignore[reportIncompatibleMethodOverride]
    def send_400_response(self, msg: str) -> None: ...

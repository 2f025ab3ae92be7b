from collections.abc import Mapping

class Response:
    def __init__(
        self,
        content: bytes = ...,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> None: ...

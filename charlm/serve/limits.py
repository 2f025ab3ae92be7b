"""The limits of the server, and the refusal of a request that exceeds one of them or is wrong in another way.

Open it to change a default. It needs the standard library alone.
"""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """What one request, and all together, may ask for.

    Attributes:
      max_bytes: of a request's body.
      max_texts: of a request.
      max_characters: of a text.
      max_numbers: of the vectors in a response.
      max_batch: most texts that are computed at a time.
      queue: most requests that wait for one model while it computes others.
      timeout: seconds that a request may take, from its last byte to its answer; also that its body may take to come.
      grace: seconds that requests may still take after the server was told to stop.
    """

    max_bytes: int = 1 << 20
    max_texts: int = 64
    max_characters: int = 10_000
    max_numbers: int = 500_000
    max_batch: int = 32
    queue: int = 256
    timeout: float = 30.0
    grace: float = 10.0


class Refused(Exception):
    """Why a request gets no result, as one line, and the status of the response.

    Args:
      status: of HTTP.
      message: what is wrong; shown to the client alone, since it may quote the request.
      retry_after: seconds after which the client may try again; 0: it need not try.
      allow: the method that the path knows, for status 405.
    """

    def __init__(self, status: int, message: str, retry_after: int = 0, allow: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after, self.allow = status, " ".join(message.split()), retry_after, allow

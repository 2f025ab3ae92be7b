"""What lies in a checkpoint beside its arrays: the position in the data, and files such as a tokenizer's.

Classes in the form that orbax asks of what it saves and loads; only `charlm.core.checkpoint` and its store use them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import jax

from charlm.core.durable import write_text
from charlm.core.reading import read_json


class Position:
    """The position of a data iterator, in a file for each process; it can be read on any number of processes."""

    def __init__(self, data: Any) -> None:
        self._data = data

    async def save(self, directory: Any) -> Awaitable[None]:
        """Returns what writes the position of now."""
        text = json.dumps(self._data.get_state())  # as it is now; written in the background

        async def write() -> None:
            folder = Path(await directory.await_creation())
            write_text(folder / f"process_{jax.process_index()}-of-{jax.process_count()}.json", text)

        return write()

    async def load(self, directory: Any) -> Awaitable[None]:
        """Returns what moves the iterator to the saved position."""

        async def read() -> None:
            files = sorted(Path(directory).glob("process_*.json"))
            self._data.set_state(functools.reduce(_merged, map(read_json, files)))

        return read()


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = one.keys() & other.keys()
    return one | other | {k: _merged(one[k], other[k]) for k in both if isinstance(one[k], dict)}


class Files:
    """Files that lie with a checkpoint, for whoever uses its model; a run does not read them again."""

    def __init__(self, write: Callable[[Path], None]) -> None:
        self._write = write

    async def save(self, directory: Any) -> Awaitable[None]:
        """Returns what writes the files, on the first process."""

        async def write() -> None:
            folder = Path(await directory.await_creation())
            if jax.process_index() == 0:
                self._write(folder)

        return write()

    async def load(self, directory: Any) -> Awaitable[None]:
        """Returns what does nothing."""

        async def read() -> None:
            pass

        return read()

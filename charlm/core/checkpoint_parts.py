"""The parts of a checkpoint beside its arrays: the position in the data, and files such as a tokenizer's.

The classes follow orbax's protocol for objects that it saves and loads; only `charlm.core.checkpoint` and
`charlm.core.checkpoint_store` use them. Open it to store something else beside the arrays.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import jax

from charlm.core.durable import write_text
from charlm.core.reading import read_json
from charlm.core.types import JsonObject

if TYPE_CHECKING:
    from orbax.checkpoint import v1 as ocp


class Positioned(Protocol):
    """An iterator of data whose position can be saved."""

    def get_state(self) -> JsonObject:
        """Returns the position."""
        ...

    def set_state(self, state: JsonObject, /) -> None:
        """Moves to a position that `get_state` returned."""
        ...


class Position:
    """Saves the position of a data iterator, one file per process; any number of processes can read it back."""

    def __init__(self, data: Positioned) -> None:
        self._data = data

    async def save(self, directory: ocp.path.PathAwaitingCreation) -> Awaitable[None]:
        """Returns an awaitable that writes the current position."""
        text = json.dumps(self._data.get_state())  # read now: the write runs in the background

        async def write() -> None:
            folder = Path(await directory.await_creation())
            write_text(folder / _name(jax.process_index(), jax.process_count()), text)

        return write()

    async def load(self, directory: os.PathLike[str]) -> Awaitable[None]:
        """Returns an awaitable that moves the iterator to the saved position."""

        async def read() -> None:
            files = sorted(Path(directory).glob("process_*.json"))
            self._data.set_state(functools.reduce(_merged, map(read_json, files)))

        return read()


class Positions:
    """Saves the positions of all processes on the first one, in the files that `Position` writes on each.

    Args:
      states: the position of each process.
    """

    def __init__(self, states: Sequence[JsonObject]) -> None:
        self._texts = [json.dumps(state) for state in states]

    async def save(self, directory: ocp.path.PathAwaitingCreation) -> Awaitable[None]:
        """Returns an awaitable that writes the positions."""

        async def write() -> None:
            folder = Path(await directory.await_creation())
            for process, text in enumerate(self._texts if jax.process_index() == 0 else []):
                write_text(folder / _name(process, len(self._texts)), text)

        return write()

    async def load(self, directory: os.PathLike[str]) -> Awaitable[None]:
        """Returns an awaitable that does nothing."""

        async def read() -> None:
            pass

        return read()


def _name(process: int, processes: int) -> str:
    return f"process_{process}-of-{processes}.json"


def _merged(one: JsonObject, other: JsonObject) -> JsonObject:
    both = one.keys() & other.keys()
    return one | other | {k: _merged(one[k], other[k]) for k in both if isinstance(one[k], dict)}


class Files:
    """Saves files such as a tokenizer with a checkpoint, for users of its model; a resumed run does not read them."""

    def __init__(self, write: Callable[[Path], None]) -> None:
        self._write = write

    async def save(self, directory: ocp.path.PathAwaitingCreation) -> Awaitable[None]:
        """Returns an awaitable that writes the files, on the first process."""

        async def write() -> None:
            folder = Path(await directory.await_creation())
            if jax.process_index() == 0:
                self._write(folder)

        return write()

    async def load(self, directory: os.PathLike[str]) -> Awaitable[None]:
        """Returns an awaitable that does nothing."""

        async def read() -> None:
            pass

        return read()

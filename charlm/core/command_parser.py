"""The parser of every command's options: help at the width of the terminal, and the flag that was meant.

    parser = Parser(prog=program("charlm.show"), description=__doc__)

Open it to change what all commands say about options that they do not know.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from charlm.core.help_text import HelpText
from charlm.core.nearest import did_you_mean


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the flag that was most likely meant, also those of a command within a command."""

    def __init__(self, **options: Any) -> None:  # those of argparse, whose types are many
        super().__init__(**{"formatter_class": HelpText, **options})
        self._given: Sequence[str] = ()

    # argparse calls this for a command within a command, too, and would leave what is unknown to the parser above.
    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]  # without argparse's overloads
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses arguments, all of which must be known; returns a namespace and an empty list."""
        self._given = sys.argv[1:] if args is None else args
        found, unknown = super().parse_known_args(args, namespace or argparse.Namespace())
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Ends the program with the usage and one line."""
        within = [name for one in self._actions if isinstance(one, argparse._SubParsersAction) for name in one.choices]
        if not within:
            message += "".join(self._meant())
        elif found := re.search("invalid choice: '([^']*)'", message):
            message += did_you_mean(found[1], within)
        super().error(message)

    def _meant(self) -> Iterator[str]:
        """Yields what to add about each flag that was given and does not exist."""
        known = [option for option in self._option_string_actions if option.startswith("--")]
        given = itertools.takewhile(lambda one: one != "--", self._given)
        for flag in dict.fromkeys(one.partition("=")[0] for one in given):
            if len(flag) > 3 and flag.startswith("--") and not any(option.startswith(flag) for option in known):
                yield did_you_mean(flag, known, 0.7).replace("; ", f"; {flag}: ")

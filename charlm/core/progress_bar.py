"""A progress bar for people who watch a run on a terminal: steps, loss, speed, and the time that is left.

The training loop uses it, and `charlm predict` its counter. Open it to change how it looks, or when it is shown: never
in a pipe or file, nor with `--plain` or the environment variable NO_COLOR.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from charlm.core import hosts
from charlm.core.logs import terminal_width

FORMAT = "{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt}{postfix}  ETA {remaining}"
USUAL_WIDTH, USUAL_HEIGHT = 80, 24  # of terminals that do not tell their size

_plain = False  # whether the command line asked for plain output

log = logging.getLogger("charlm")


def use_plain_output() -> None:
    """Shows no bar in this process."""
    global _plain
    _plain = True


def is_shown() -> bool:
    """Returns whether a bar is shown: on a terminal, in a run of one host, unless plain output is asked for."""
    usual = not (_plain or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb")
    return usual and sys.stderr.isatty() and hosts.alone()


def _size() -> dict[str, Any]:  # options of tqdm
    if terminal_width() > 0:
        return {"dynamic_ncols": True}
    return {"ncols": USUAL_WIDTH, "nrows": USUAL_HEIGHT}  # on 0 columns, as containers have, tqdm draws nothing


class ProgressBar:
    """The bar of one run; it appears with the first step, so that it does not stand still while the step is compiled.

    Args:
      steps: number of steps of the whole run.
      unit: what the speed counts, such as "words".
      stack: closes the bar.
    """

    def __init__(self, steps: int, unit: str, stack: ExitStack) -> None:
        self._steps, self._unit, self._stack = steps, unit, stack
        self._bar: Any = None  # tqdm has no types

    def show(self, step: int, loss: float, speed: float) -> None:
        """Shows the bar after a step.

        Args:
          step: number of steps done; it may be lower than before, in a run that went back to a checkpoint.
          loss: the latest loss; NaN: none is known yet.
          speed: units a second; 0.0: not known yet.
        """
        if self._bar is None:
            self._bar = self._open(step)
        said = ([] if loss != loss else [f"loss {loss:.4f}"]) + ([f"{speed:,.0f} {self._unit}/s"] if speed else [])
        self._bar.set_postfix_str("  ".join(said), refresh=False)
        self._bar.update(step - self._bar.n)

    def _open(self, step: int) -> Any:  # a `tqdm`
        # Imported here, since only people on a terminal need it.
        from tqdm import tqdm
        from tqdm.contrib.logging import logging_redirect_tqdm

        bar = tqdm(
            total=self._steps,
            initial=step,
            file=sys.stderr,
            bar_format=FORMAT,
            leave=False,
            **_size(),
        )
        self._stack.callback(bar.close)
        if any(getattr(handler, "stream", None) is sys.stderr for handler in log.handlers):
            self._stack.enter_context(logging_redirect_tqdm([log]))  # log lines appear above the bar
        return bar


@contextmanager
def progress_bar(steps: int, unit: str) -> Iterator[ProgressBar | None]:
    """Yields the bar of a run; None where none is shown. Afterwards, it disappears."""
    with ExitStack() as stack:
        yield ProgressBar(steps, unit, stack) if is_shown() else None


def counter(stack: ExitStack, unit: str) -> Callable[[int], None] | None:
    """Returns a function that shows on a terminal how many more are done, of an unknown number; None: none is shown.

    Args:
      stack: ends the display.
      unit: what is counted, such as "texts".
    """
    if not is_shown():
        return None
    from tqdm import tqdm  # as above

    bar = stack.enter_context(tqdm(unit=f" {unit}", file=sys.stderr, leave=False, **_size()))

    def count(done: int) -> None:
        bar.update(done)

    return count

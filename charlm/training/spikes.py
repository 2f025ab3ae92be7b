"""What a run does about loss spikes: leaves their updates out, or goes back and passes over the batches since.

`charlm.core.spikes` finds a spike inside the training step, which then leaves its update out. That is all that the
policy "skip" does, and what "restore" does where there is no checkpoint to go back to. Otherwise "restore" goes back to
a checkpoint some steps before the spike and passes over the batches between, as PaLM was trained (Chowdhery et al.,
2022, section 5.1). Batches are passed over by number, and `FILE` in the workdir remembers how many after which
checkpoint, so a run that is killed at any moment decides the same again. Open it to change where a run goes back to.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import NamedTuple

import ml_collections

from charlm.core import hosts
from charlm.core.durable import write_json
from charlm.core.reading import read_json
from charlm.core.spikes import Seen

log = logging.getLogger("charlm")

FILE = "spikes.json"
LIMIT = "train.spike_limit"  # the config key


class Restored(NamedTuple):
    """One return to a checkpoint.

    Attributes:
      checkpoint: its step.
      spike: the step of the spike for which the run went back.
      batches: how many batches it passes over.
      in_row: returns up to this one, in none of which the run got `train.spike_rewind` steps past the last spike.
      furthest: the last step of a spike among these.
      total: returns of the run up to this one.
    """

    checkpoint: int
    spike: int
    batches: int
    in_row: int
    furthest: int
    total: int


def kept_to_go_back(train: ml_collections.ConfigDict) -> int:
    """Returns how many of the newest checkpoints a run needs so that one is `train.spike_rewind` steps old; 0: none.

    With fewer, the best checkpoint would be the one to go back to, however much was learned since.
    """
    return 1 + math.ceil(train.spike_rewind / train.checkpoint_every) if train.spike_policy == "restore" else 0


class Spikes:
    """The spikes of a run and where it went back for them; all processes must make the same calls.

    Args:
      train: section of the config.
      folder: the workdir of the run.
      start: the step that the run starts from. What happened after it will happen again, and is forgotten.

    Attributes:
      restores: whether the run goes back at all.
      on: whether spikes are looked for.
      total: spikes so far.

    Raises:
      ValueError: `FILE` is damaged.
    """

    def __init__(self, train: ml_collections.ConfigDict, folder: Path, start: int) -> None:
        self.on, self.restores = bool(train.spike_policy), train.spike_policy == "restore"
        self.total = 0
        self._limit, self._rewind = train.spike_limit, train.spike_rewind
        self._path = folder / FILE
        self._past: list[Restored] = []
        found = hosts.primary_first(self._read)
        self._past = [Restored(*one) for one in hosts.from_primary(found) if one[0] <= start]

    def _read(self) -> list[list[int]]:
        if not self._path.exists():
            return []
        try:
            return [[int(one[name]) for name in Restored._fields] for one in read_json(self._path)["restored"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self._path} is damaged, so the run cannot know which batches it passed over: {error}"
            ) from error

    def to_pass_over(self, checkpoint: int) -> int:
        """Returns how many batches after the position of a checkpoint are passed over."""
        return sum(one.batches for one in self._past if one.checkpoint == checkpoint)

    def note(self, step: int, loss: float, seen: Seen) -> None:
        """Counts and logs a spike; `seen` is on the host.

        Raises:
          ValueError: one too many in a row.
        """
        log.warning(
            "step %d is a spike: loss %.4g%s, gradient norm %.4g%s; its update is left out",
            step, loss, _most(float(seen.loss_limit)), float(seen.norm), _most(float(seen.norm_limit)),
        )  # fmt: skip
        self._check(int(seen.in_row))

    def count(self, seen: Seen) -> None:
        """Takes over how many spikes there were up to a step; `seen` is on the host."""
        self.total = int(seen.total) + (self._past[-1].total if self._past else 0)

    def restored(self, checkpoint: int, spike: int) -> Restored:
        """Returns the return to a checkpoint for the spike of a step; ValueError if it is one too many in a row."""
        last = self._past[-1] if self._past else Restored(0, 0, 0, 0, -self._rewind - 1, 0)
        again = spike <= last.furthest + self._rewind
        in_row, furthest = (last.in_row + 1, max(last.furthest, spike)) if again else (1, spike)
        self._check(in_row)
        return Restored(checkpoint, spike, spike - checkpoint, in_row, furthest, last.total + 1)

    def most(self, step: int) -> int:
        """Returns the last step that a run may go back to for the spike of a step."""
        return step - max(self._rewind, 1)

    def add(self, restored: Restored) -> None:
        """Remembers that the run goes back to a checkpoint; ValueError if `FILE` cannot be written."""
        self._past = [*(one for one in self._past if one.checkpoint <= restored.checkpoint), restored]

        def write() -> None:
            if hosts.is_primary():
                try:
                    write_json(self._path, {"restored": [one._asdict() for one in self._past]})
                except OSError as error:
                    raise ValueError(f"{self._path} cannot be written: {error.strerror}") from error

        hosts.primary_first(write)

    def _check(self, in_row: int) -> None:
        if in_row > self._limit:
            raise ValueError(f"{in_row} spikes in a row, one more than {LIMIT} allows")


def _most(limit: float) -> str:
    return f" (at most {limit:.4g})" if math.isfinite(limit) else ""

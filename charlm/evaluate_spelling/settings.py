"""What an evaluation of spellers is asked to do, and the checks that need no model.

Open it to add an option, or to see why one is refused. It needs no JAX.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from charlm.families.corrections import THRESHOLD, check_threshold
from charlm.text.defences import Entry, parsed
from charlm.wordrec.defences import KNOWN

RIVALS: dict[str, Entry] = {name: entry for name, entry in KNOWN.items() if name != "nfkc"}  # it mends no spelling


@dataclasses.dataclass(frozen=True)
class SpellingSettings:
    """The options of `python -m charlm.evaluate_spelling`, which explains them."""

    models: list[str]
    data: list[str]
    lists: list[str]
    typos: list[str]
    rewritten: list[str]
    rivals: list[str]
    words: str
    threshold: list[float]
    rate: float
    clean: float
    no_real_words: bool
    heldout_words: float
    sentences: int
    seed: int
    samples: int
    batch_size: int
    fit: bool
    out: str
    command: str

    def __post_init__(self) -> None:
        """Checks the options; raises a ValueError that names the wrong one."""
        if not (self.data or self.typos or self.rewritten):
            raise ValueError(
                "expected --data FILE with --lists FILE, --typos FILE, or --rewritten FILE REWRITE: the sentences to "
                "correct"
            )
        if len(self.rewritten) == 1:
            raise ValueError(f"--rewritten {self.rewritten[0]}: expected a file and one or more rewrites of it")
        if bool(self.data) != bool(self.lists):
            given, other = ("--data", "--lists") if self.data else ("--lists", "--data")
            raise ValueError(f"{given} without {other}: the misspellings of --lists are put into the text of --data")
        if self.words and not self.models:
            raise ValueError(f"--words={self.words} is for --models, which names none")
        if twice := [path for path in self.models if [Path(one) for one in self.models].count(Path(path)) > 1]:
            raise ValueError(f"--models: {twice[0]} is named twice")
        if self.fit and (len(self.models) != 1 or self.rivals or self.threshold != [THRESHOLD]):
            raise ValueError("--fit: expected one model in --models, no --rivals and no --threshold")
        for name in ("rate", "clean"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ValueError(f"--{name}={value}: expected a share from 0 to 1")
        if not 0 < self.heldout_words <= 1:
            raise ValueError(f"--heldout-words={self.heldout_words}: expected a share above 0, at most 1")
        for name, least in (("sentences", 0), ("seed", 0), ("samples", 1), ("batch_size", 1)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"--{name.replace('_', '-')}={value}: expected at least {least}")
        for option in ("lists", "typos", "rewritten"):
            for path in getattr(self, option):
                if not Path(path).is_file():
                    what = "is no file" if Path(path).exists() else "does not exist"
                    raise ValueError(f"--{option}: {path!r} {what}")
        for threshold in self.threshold:
            check_threshold(threshold)
        for rival in self.rivals:
            if len(parsed(rival, RIVALS, "--rivals")) != 1:
                raise ValueError(f"--rivals={rival}: expected single systems, not a chain")

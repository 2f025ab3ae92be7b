"""The files of a league: where each job writes, below the workdir. Open it to see what a workdir holds."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Places(NamedTuple):
    """The places below the workdir of a league.

    Attributes:
      root: the workdir.
    """

    root: Path

    @property
    def config(self) -> Path:
        """The config that the workdir belongs to."""
        return self.root / "league.json"

    @property
    def events(self) -> Path:
        """The log of starts, stops and resumes, a JSON object a line."""
        return self.root / "events.jsonl"

    def log(self, job: str) -> Path:
        """The output of a job, of all its starts."""
        return self.root / "logs" / f"{job.replace('/', '.')}.log"

    def subwords(self, system: str) -> Path:
        """The tokenizer that was trained for a system."""
        return self.root / "subwords" / system

    def parts(self, task: str) -> Path:
        """The parts of a task's examples, to learn from and to measure on."""
        return self.root / "parts" / task

    def budget(self, system: str) -> Path:
        """The measured words and operations of a step, and the settings that follow."""
        return self.root / "budgets" / f"{system}.json"

    def model(self, system: str, seed: int | None = None) -> Path:
        """The run of pre-training; with a seed, one of several."""
        folder = self.root / "models" / system
        return folder if seed is None else folder / f"seed_{seed}"

    def tuned(self, task: str, system: str, seed: int) -> Path:
        """The run of fine-tuning."""
        return self.root / "tuned" / task / system / f"seed_{seed}"

    def measured(self, task: str, system: str, seed: int) -> Path:
        """The robustness report of a fine-tuned model."""
        return self.root / "measured" / task / system / f"seed_{seed}"

    def begun(self, section: str, name: str) -> bool:
        """Says whether anything is kept of an entry of "systems" or "tasks"."""
        if section == "systems":
            kept = [self.budget(name), self.model(name), self.subwords(name)]
            kept += [path for kind in ("tuned", "measured") for path in self.root.glob(f"{kind}/*/{name}")]
        else:
            kept = [self.parts(name), self.root / "tuned" / name, self.root / "measured" / name]
        return any(path.exists() for path in kept)

"""Fixture: a finished Char2Subword run in three stages, shared by all tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import charlm.training.stages
import charlm.training.train

if TYPE_CHECKING:
    from small_char2subword_run import Finished


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Finished:
    """Three finished stages; tests change copies of them."""
    from small_char2subword_run import train_three_stages
    from small_run import quick_compilation

    with quick_compilation(programs):
        return train_three_stages(tmp_path_factory.mktemp("char2subword"))


@pytest.fixture
def same_runs(stages: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training builds nothing: it takes the programs of the finished run, with the data that it would build with."""

    def take(config, data):
        number = 1 if config.stage == "contextual" else 2 * ("2_contextual" in config.init_from)
        run = stages.runs[number]
        run.objective.data = data
        return run

    monkeypatch.setattr(charlm.training.train, "build", take)
    monkeypatch.setattr(charlm.training.stages, "build", lambda config, data: None)  # what is only looked at, too

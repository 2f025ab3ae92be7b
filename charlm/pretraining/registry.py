"""The families that can be pre-trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_collections

from charlm.pretraining.base import Objective
from charlm.pretraining.char2subword import TableImitation
from charlm.pretraining.char2subword_config import APPROXIMATION, CONTEXTUAL
from charlm.pretraining.char2subword_contextual import CharacterMaskedLM
from charlm.pretraining.charbert import NoisyLanguageModelling
from charlm.pretraining.hlm import MaskedCharacters
from charlm.pretraining.xrayemb import SecondPretraining

OBJECTIVES: dict[str, type[Objective]] = {
    "hlm": MaskedCharacters,
    "charbert": NoisyLanguageModelling,
    "xrayemb": SecondPretraining,
}
STAGES: dict[str, type[Objective]] = {APPROXIMATION: TableImitation, CONTEXTUAL: CharacterMaskedLM}  # of Char2Subword


def objective_of(config: ml_collections.ConfigDict) -> type[Objective]:
    """Returns what the config's family pre-trains on; in a family with stages, what its stage does."""
    return STAGES[config.stage] if config.family == "char2subword" else OBJECTIVES[config.family]


def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> Any:
    """Returns the vocabularies and encoded corpora of a run; see `Objective.prepare`."""
    return objective_of(config).prepare(config, run)

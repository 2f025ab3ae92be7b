"""The families that can be pre-trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_collections

from charlm.families.char2subword.contextual import CharacterMaskedLM
from charlm.families.char2subword.keys import APPROXIMATION, CONTEXTUAL
from charlm.families.char2subword.objective import TableImitation
from charlm.families.charbert.objective import NoisyLanguageModelling
from charlm.families.hlm.objective import MaskedCharacters
from charlm.families.objective import Objective
from charlm.families.xrayemb.objective import SecondPretraining

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

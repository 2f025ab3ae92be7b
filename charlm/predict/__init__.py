"""Applies trained models to texts: `Predictor` from Python, `python -m charlm.predict` as a command.

`command_line` says what the command can do; begin with it. `options` has its options, `stream` reads texts and writes
answers, `pretrained` and `fine_tuned` ask the models. `charlm.families.predictor` is the interface of all predictors.
"""

from __future__ import annotations

from charlm.families.predictor import Encoding, Fill, Generation, Predictor, Score
from charlm.predict.command_line import main
from charlm.text.wordlist import WordList

__all__ = ["Encoding", "Fill", "Generation", "Predictor", "Score", "WordList", "main"]

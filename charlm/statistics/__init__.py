"""Statistics of texts and models: lengths in words and subwords, and numbers of parameters.

The command line is `python -m charlm.statistics`; begin with `lengths` for texts, with `parameters` for models,
and with `movement` for what training changed.
"""

from __future__ import annotations

from charlm.statistics.lengths import Lengths, TextStatistics, read_sentences, text_statistics

__all__ = ["Lengths", "TextStatistics", "read_sentences", "text_statistics"]

"""What a speller believes: costs of unknown words, of edits and spaces, what context tells, and limits.

Open it to change a default, or to add a cost.
"""

from __future__ import annotations

import dataclasses
import re

from charlm.text.noise.keyboards import AUTO
from charlm.text.speller.channel import Costs, check_numbers

MORE_WITH_WORDS = 5.0  # nats by which an unknown word costs more if the words of the documents are known
WORD = re.compile(r"[^\W\d_]+")
MARKS = ".,;:!?\"'()[]{}“”’‘"


@dataclasses.dataclass(frozen=True)
class SpellerSettings:
    """Costs in nats, and limits.

    Attributes:
      prior: what the negative log-probability of a known word is multiplied by.
      unknown, letter: cost of an unknown word, and of each of its letters.
      capital: what an unknown word costs less for each of its capitals, since it is more often a name.
      ending: what a known word with a common ending costs beside both.
      space: cost of a space that is missing or too many.
      case: cost of a missing space before a capital behind a small letter ("wasNASA").
      sign: cost of a sign or digit that stands for a letter.
      odd: cost of a sign or digit within or beside a word if it does not.
      candidates: how many words near a typed one are weighed.
      kept: how many of them a reading has at most.
      misspelled: the share of words that a writer of whom nothing is known misspells.
      usual: for how many words of a text that knowledge counts.
      writer: how much the other words of a text tell about its writer. An unknown word costs more by `writer` times the
        nats by which misspelled words are likelier than for a writer of whom nothing is known.
      careless: the most of these nats.
      context: what the fit of a word between those around it is multiplied by, if the speller has a context; 0: it is
        not asked.
      other: what it costs, with a context, to read a known word as another; less beside misspelled words, as with
        `writer`.
      language: whose keyboard it is; "auto": that of the script.
      costs: those of edits.
    """

    prior: float = 0.8
    unknown: float = 10.0
    letter: float = 0.9
    capital: float = 2.0
    ending: float = 0.0
    space: float = 3.5
    case: float = 1.0
    sign: float = 1.0
    odd: float = 3.0
    candidates: int = 200
    kept: int = 8
    misspelled: float = 0.03
    usual: float = 10.0
    writer: float = 1.5
    careless: float = 6.0
    context: float = 0.7
    other: float = 4.0
    language: str = AUTO
    costs: Costs = dataclasses.field(default_factory=Costs)

    def __post_init__(self) -> None:
        """Checks the values; raises a ValueError that names the wrong one."""
        check_numbers(self)
        if not 0 < self.misspelled < 1:
            raise ValueError(f"misspelled={self.misspelled!r}: expected a share between 0 and 1")
        if not self.usual >= 1:
            raise ValueError(f"usual={self.usual!r}: expected at least 1 word")


def with_words(settings: SpellerSettings) -> SpellerSettings:
    """Returns settings for a speller that knows the words of the documents, which seldom lack a word that is asked."""
    return dataclasses.replace(settings, unknown=settings.unknown + MORE_WITH_WORDS)

"""A speller that keeps several words possible: the noisy channel (Kernighan, Church and Gale, 1990) over known words.

    speller = Speller(Lexicon({"the": 30, "cat": 2, "car": 1}))
    speller.read("teh cat")   # [Reading(0, 3, (("the", 1.0),))]

Open `channel` for what typing errors cost, `lexicon` for the known words, `reading` for how a text is understood. It
needs no model. `files` keeps it beside an encoder, which `charlm.families.subword.respelled` gives the mean of the rows
of the words that are possible.
"""

from charlm.text.speller.lexicon import Lexicon, mixed
from charlm.text.speller.reading import Speller
from charlm.text.speller.settings import SpellerSettings
from charlm.text.speller.ways import Reading

__all__ = ["Lexicon", "Reading", "Speller", "SpellerSettings", "mixed"]

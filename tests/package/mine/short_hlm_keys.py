"""The config keys of the example family: those of an HLM, and one more."""

from charlm.families.hlm import keys as hlm
from charlm.register import Key

KEYS = hlm.KEYS | {"short.words": Key(2, "how short the words are", least=1)}
VALUES = {"model.char_slots": 8}
MEASURED, validate = hlm.MEASURED, hlm.validate

"""The config keys of the family: those of an HLM, and one more."""

from charlm.families.hlm import keys as hlm

CHOICES, POSITIVE, NOT_NEGATIVE = hlm.CHOICES, (*hlm.POSITIVE, "model.shortness"), hlm.NOT_NEGATIVE
SHARES, MEASURED, RESUMABLE, SET_BY = hlm.SHARES, hlm.MEASURED, hlm.RESUMABLE, hlm.SET_BY
validate = hlm.validate


def family_keys(config):
    """Sets the keys."""
    hlm.family_keys(config)
    model = config.model
    model.shortness = 2  # how short the words are
    model.char_slots = 8

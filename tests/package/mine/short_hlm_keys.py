"""The config keys of the family: those of an HLM, and one more."""

import ml_collections

from charlm.families.hlm import keys as hlm

CHOICES, POSITIVE, NOT_NEGATIVE = hlm.CHOICES, (*hlm.POSITIVE, "short.words"), hlm.NOT_NEGATIVE
SHARES, MEASURED, RESUMABLE, SET_BY = hlm.SHARES, hlm.MEASURED, hlm.RESUMABLE, hlm.SET_BY
validate = hlm.validate


def family_keys(config):
    """Sets the keys."""
    hlm.family_keys(config)
    config.short = short = ml_collections.ConfigDict()
    short.words = 2  # how short the words are
    config.model.char_slots = 8

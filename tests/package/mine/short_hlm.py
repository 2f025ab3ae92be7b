"""A family: an HLM that its package trains with a config of its own."""

import dataclasses

from charlm.families.hlm import FAMILY as HLM

FAMILY = dataclasses.replace(HLM, name="short_hlm", title="Short HLM", keys="mine.short_hlm_keys")

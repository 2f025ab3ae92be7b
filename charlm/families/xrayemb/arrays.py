"""The plain arrays that an XRayEmb reads outside of charlm: ids of pieces, and the characters of selected words.

`charlm.export` makes programs of them. Open it to change what such a program reads.
"""

from __future__ import annotations

from pathlib import Path

from charlm.core.types import JsonObject
from charlm.families.spelled.arrays import SpelledArrays
from charlm.families.xrayemb.chars import XRAY_CHARS_FILE
from charlm.families.xrayemb.conversion import chars_of
from charlm.families.xrayemb.units import XRayEmbUnits


class XRayEmbArrays(SpelledArrays):
    """A selected word is one position, read from its characters; the other positions are pieces."""

    units: XRayEmbUnits
    texts = (
        "a position is a piece of tokenizer.json, whose id stands in ids, or a word that the policy selects (such as "
        "all words of several pieces, all_multi): its characters between two marks (reading.mark) are a row of chars, "
        "the number of a character being 1 plus its place in the list of xray_chars.json, and reading.unknown if it is "
        "not there. reading.before and reading.after are the ids around a text"
    )

    def reading(self) -> JsonObject:
        """See `Arrays`."""
        chars, config = chars_of(self.pretrained), self.pretrained.config
        policy = config.eval_policy or config.policy
        return super().reading() | {"mark": chars.end, "unknown": chars.unknown, "policy": policy}

    def write_beside(self, folder: Path) -> None:
        """See `Arrays`."""
        super().write_beside(folder)
        chars_of(self.pretrained).save(folder / XRAY_CHARS_FILE)

"""Config keys of alignment: how noisy text is aligned with a teacher's vectors of the clean text.

Char2Subword's stage of that name and `charlm.align`, which is for every family, have them. Open it to add a key of both
or to change its default.
"""

from __future__ import annotations

import ml_collections

from charlm.core.keys import Key, amount, whole_share
from charlm.text.noise import KINDS, Noise

PARTS = ("sentence", "words", "teaching")  # of the loss, each with a weight

ALIGNMENT_KEYS: dict[str, Key] = {
    "alignment.sentence": amount(1.0, "weight of 1 - cos of the vectors of texts; 0: left out"),
    "alignment.words": amount(1.0, "weight of 1 - cos of the vectors of words, paired by their characters"),
    "alignment.teaching": amount(1.0,
        "weight of self-teaching: the divergence of a text's similarities to the others (Zhuang and Zuccon, 2022)"),
    "alignment.temperature": amount(0.05, "by which similarities are divided in self-teaching"),
    "alignment.pooling": Key("mean",
        'the vector of a text: the "mean" of its positions, special ones included, or its first, "cls"',
        ("mean", "cls")),
    "alignment.noise": Key(
        ("charbert:1", "char2subword:1", "keyboard:0.2", "swap:0.2", "drop:0.2", "insert:0.2", "spaces:0.2"),
        "kinds of noise, one of which is drawn for a text, and its rate from 0 to the one given"),
    "alignment.noise_share": whole_share(0.75, "share of the texts that get noise"),
    "alignment.misspellings": Key("", 'list of misspellings for the kind "misspelling"'),
}  # fmt: skip


def check_alignment(config: ml_collections.ConfigDict) -> None:
    """Checks the section `alignment` of a config; ValueError naming the key, its value and the values expected."""
    own = config.alignment
    if not any(own[name] for name in PARTS):
        keys = ", ".join(f"alignment.{name}" for name in PARTS)
        raise ValueError(f"{keys} are all 0; expected one to be more")
    if not own.temperature:
        raise ValueError("alignment.temperature=0: similarities are divided by it; expected more")
    if not own.noise:
        raise ValueError("alignment.noise names no kind of noise; alignment.noise_share=0 leaves texts as they are")
    try:
        kinds = [Noise.parse(spec).kind for spec in own.noise]
    except ValueError as error:
        raise ValueError(f"alignment.noise: {error}") from None
    if needy := [kind for kind in kinds if KINDS[kind].listed and not own.misspellings]:
        raise ValueError(f"alignment.noise: {needy[0]} needs a list; alignment.misspellings names none")

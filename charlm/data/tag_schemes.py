"""Tags such as B-PER and I-PER: detects the scheme in which they mark entities, and converts between tags and entities.

Entities are read as conlleval, the script of the CoNLL shared tasks, reads them, whatever the scheme: an I- opens an
entity when no entity of its type is open. E-, S- and the letters of BILOU and BMES are read as seqeval reads IOBES;
conlleval, which knows only B, I and O, would join neighbours of one type. Open this module to support another scheme,
or when entities are counted differently than expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

SCHEMES = ("auto", "iob1", "iob2", "iobes", "none")

_TAG = re.compile(r"O|[BIESLUMW](-.+)?", re.DOTALL)
_LETTERS = {"M": "I", "L": "E", "U": "S", "W": "S"}  # BILOU and BMES (also with W) are IOBES with other letters
_BEYOND_IOB = set("ESLUMW")


class Entity(NamedTuple):
    """An entity: words `start` to `stop` (excluded) of a sentence; without a type in the tags, `type` is empty."""

    type: str
    start: int
    stop: int


def is_iob(tags: Iterable[str]) -> bool:
    """Returns whether every tag is O, or one of B, I, E, S, L, U, M, W, alone or before a hyphen and a type."""
    return all(_TAG.fullmatch(tag) for tag in tags)


def _split(tag: str) -> tuple[str, str]:
    """Returns the letter of a tag, as one of B, I, O, E, S, and its type."""
    return _LETTERS.get(tag[0], tag[0]), tag[2:]


def entities(tags: Sequence[str]) -> list[Entity]:
    """Returns the entities of a sentence as conlleval reads them; the tags must pass `is_iob`."""
    found: list[Entity] = []
    start, letter, kind = 0, "O", ""
    for i, tag in enumerate([*tags, "O"]):
        new_letter, new_kind = _split(tag)
        if new_letter in "IE" and letter in "BI" and new_kind == kind:
            letter = new_letter
            continue
        if letter != "O":
            found.append(Entity(kind, start, i))
        start, letter, kind = i, new_letter, new_kind
    return found


def strict_entities(tags: Sequence[str]) -> list[Entity]:
    """Returns the entities of a sentence in strict IOB2, which ignores an I- that follows no B- or I- of its type."""
    found: list[Entity] = []
    for i, tag in enumerate(tags):
        letter, kind = _split(tag)
        if letter == "B":
            found.append(Entity(kind, i, i + 1))
        elif letter == "I" and found and found[-1].type == kind and found[-1].stop == i:
            found[-1] = found[-1]._replace(stop=i + 1)
    return found


def from_entities(found: Iterable[Entity], length: int) -> list[str]:
    """Returns the IOB2 tags of a sentence of `length` words."""
    tags = ["O"] * length
    for kind, start, stop in found:
        ending = f"-{kind}" if kind else ""
        tags[start:stop] = ["B" + ending] + ["I" + ending] * (stop - start - 1)
    return tags


def to_iob2(tags: Sequence[str], scheme: str = "auto") -> list[str]:
    """Returns the tags of a sentence in IOB2, with the same entities; tags that do not mark entities stay unchanged.

    Args:
      tags: the tags of one sentence.
      scheme: "none": the tags mark no entities; "auto": they do if `is_iob` says so; any other: they must.

    Raises:
      ValueError: unknown scheme, or a tag that does not belong to the scheme.
    """
    check_scheme(scheme)
    if scheme == "none" or (scheme == "auto" and not is_iob(tags)):
        return list(tags)
    for tag in tags:
        if not is_iob([tag]):
            raise ValueError(f'tag {tag!r}: expected O or a tag such as B-PER (scheme {scheme}; others: scheme="none")')
    return from_entities(entities(tags), len(tags))


def check_scheme(scheme: str) -> None:
    """Raises ValueError when there is no such scheme."""
    if scheme not in SCHEMES:
        raise ValueError(f"scheme={scheme!r}: expected one of {', '.join(SCHEMES)}")


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """Returns the scheme of a file's tags: "none", "iobes" (also BILOU, BMES), "iob1" or "iob2".

    "iob1" means that I- opens entities and B- only separates neighbours of one type. All other tags in B, I and O are
    "iob2", also when some I- open entities and some B- could not occur in IOB1: such a file breaks its scheme.
    """
    letters: set[str] = set()
    opens_with_i = opens_with_b = False
    for tags in sentences:
        if not is_iob(tags):
            return "none"
        previous = "O"
        for tag in tags:
            letters.add(tag[0])
            inside = previous != "O" and previous[1:] == tag[1:]
            opens_with_i |= tag[0] == "I" and not inside
            opens_with_b |= tag[0] == "B" and not inside
            previous = tag
    if letters & _BEYOND_IOB:
        return "iobes"
    return "iob1" if opens_with_i and not opens_with_b else "iob2"


def orphans(tags: Sequence[str]) -> list[int]:
    """Returns the indices of I- tags that follow no B- or I- of their type, which IOB2 does not allow."""
    before = ["O", *tags]
    return [i for i, tag in enumerate(tags) if tag[0] == "I" and (before[i][0] not in "BI" or before[i][1:] != tag[1:])]

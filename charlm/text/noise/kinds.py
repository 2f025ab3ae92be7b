"""The table of all kinds of noise. Open it to add one to charlm; `charlm.register.noise` adds one from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from charlm.core.entries import check_fields, is_line, takes
from charlm.core.registry import Registry
from charlm.text.noise import evasion, mobile, ocr, operations, sounds, words
from charlm.text.noise.characters import Characters
from charlm.text.noise.edits import Edit
from charlm.text.noise.operations import How


@dataclass(frozen=True)
class Kind:
    """A kind of noise, which hits each of the characters or words named by `share_of` with the probability `rate`.

    Attributes:
      operation: makes the edits.
      unit: whether the rate is a share of characters or of words.
      share_of: which characters or words the rate is a share of, for users; the noise never hits any others.
      rate: the rate if a spec names none.
      line: what the noise does, and its source.
      min_length: words of fewer characters stay unchanged, unless a spec says otherwise.
      highest: the highest possible rate.
      resizes: whether the noise may merge or cut words, which changes their number.
      listed: whether the noise needs a list of misspellings.
    """

    operation: Callable[[Characters, How, np.random.Generator], list[Edit]]
    unit: Literal["character", "word"]
    share_of: str
    rate: float
    line: str
    min_length: int = 1
    highest: float = 1.0
    resizes: bool = False
    listed: bool = False


_IN_WORDS = "characters of words"
_ALL = "characters, spaces and punctuation too"
_CASED = "letters that have another case"
_EQUAL = "a swap of equal letters changes none"

_OWN: dict[str, Kind] = {
    "drop": Kind(
        operation=operations.drop,
        unit="character",
        share_of=_IN_WORDS,
        rate=0.1,
        line="deletes a character",
    ),
    "repeat": Kind(
        operation=operations.repeat,
        unit="character",
        share_of=_IN_WORDS,
        rate=0.1,
        line="doubles a character",
    ),
    "case": Kind(
        operation=operations.case,
        unit="character",
        share_of=_CASED,
        rate=0.1,
        line="puts a letter into the other case",
    ),
    "swap": Kind(
        operation=operations.swap,
        unit="character",
        share_of="pairs of neighbours in a word that differ",
        rate=0.1,
        highest=0.5,
        line="exchanges two characters, each at most once",
    ),
    "insert": Kind(
        operation=operations.insert,
        unit="character",
        share_of=_IN_WORDS,
        rate=0.1,
        line="inserts a letter behind a character",
    ),
    "keyboard": Kind(
        operation=operations.keyboard,
        unit="character",
        share_of="letters that are on the keyboard",
        rate=0.1,
        line="replaces a letter by one beside it on the keyboard",
    ),
    "toggle": Kind(
        operation=words.per_word(words.toggle),
        unit="word",
        share_of="words with a letter that has another case",
        rate=0.1,
        line="puts one letter into the other case (Char2Subword, table 1)",
    ),
    "punctuation": Kind(
        operation=words.per_word(words.punctuation),
        unit="word",
        share_of="words of two characters or more",
        rate=0.1,
        line="inserts one of -.'_ inside (Char2Subword, table 1)",
    ),
    "hlm_drop": Kind(
        operation=operations.hlm_drop,
        unit="character",
        share_of=_ALL,
        rate=0.1,
        line="deletes a character (HLM, section 4.2)",
        resizes=True,
    ),
    "hlm_repeat": Kind(
        operation=operations.hlm_repeat,
        unit="character",
        share_of=_ALL,
        rate=0.2,
        line="adds one to three copies of a character (HLM, section 4.2)",
    ),
    "hlm_case": Kind(
        operation=operations.hlm_case,
        unit="character",
        share_of=f"{_CASED}; half of those hit change",
        rate=1.0,
        line="draws the case of a letter anew (HLM, section 4.2)",
    ),
    "hlm": Kind(
        operation=operations.hlm,
        unit="character",
        share_of=_ALL,
        rate=0.1,
        line="deletes a character or adds one to three copies (HLM, section 4.2: 0.05 to 0.2)",
        resizes=True,
    ),
    "charbert": Kind(
        operation=words.per_word(words.charbert),
        unit="word",
        share_of=f"words; {_EQUAL}, nor a mistyped digit",
        rate=1.0,
        min_length=4,
        line="drops, adds, swaps or mistypes a character inside (CharBERT, section 4.5)",
    ),
    "charbert_nlm": Kind(
        operation=words.per_word(words.charbert_nlm),
        unit="word",
        share_of=f"words; {_EQUAL}",
        rate=0.15,
        line="drops or swaps; inserts in words of fewer than four characters (released code of CharBERT)",
    ),
    "charbert_inner": Kind(
        operation=words.per_word(words.charbert_inner),
        unit="word",
        share_of="words of two characters or more",
        rate=0.15,
        line="drops, adds or swaps a character inside (CharBERT, section 3.5)",
    ),
    "char2subword": Kind(
        operation=words.per_word(words.char2subword),
        unit="word",
        share_of=f"words; {_EQUAL}",
        rate=0.5,
        min_length=5,
        line="mistypes, repeats, swaps, drops, toggles or punctuates (Char2Subword, table 1)",
    ),
    "spaces": Kind(
        operation=operations.spaces,
        unit="word",
        share_of="words between spaces, but a last one of one character",
        rate=0.1,
        line="deletes the space behind a word or puts one inside",
        resizes=True,
    ),
    "homoglyph": Kind(
        operation=evasion.homoglyph,
        unit="character",
        share_of="letters that have a lookalike in another script",
        rate=0.1,
        line="replaces a letter by its lookalike (Unicode's confusables, UTS 39)",
    ),
    "leet": Kind(
        operation=evasion.leet,
        unit="character",
        share_of="letters that leet has a sign for",
        rate=0.1,
        line="replaces a letter by a digit or sign that looks like it (Wikipedia, Leet)",
    ),
    "viper_dces": Kind(
        operation=evasion.viper_dces,
        unit="character",
        share_of="ASCII letters of words",
        rate=0.1,
        line="writes another letter that Unicode names alike: with a mark, turned (VIPER's names, Eger et al., 2019)",
    ),
    "viper_eces": Kind(
        operation=evasion.viper_eces,
        unit="character",
        share_of="ASCII letters of words, but Q",
        rate=0.1,
        line="puts a mark on a letter, on each letter always the same (VIPER's easy table, Eger et al., 2019)",
    ),
    "zero_width": Kind(
        operation=evasion.zero_width,
        unit="character",
        share_of="letters and digits with a further character of the word behind them",
        rate=0.1,
        line="inserts a character without width behind one (Bad Characters, Boucher et al., 2022)",
    ),
    "combining": Kind(
        operation=evasion.combining,
        unit="character",
        share_of="letters and digits of words",
        rate=0.1,
        line="puts a mark on a character (Unicode, Combining Diacritical Marks)",
    ),
    "fullwidth": Kind(
        operation=evasion.fullwidth,
        unit="character",
        share_of="ASCII letters and digits of words",
        rate=0.1,
        line="writes a character in full width (Unicode, Halfwidth and Fullwidth Forms)",
    ),
    "styled": Kind(
        operation=words.per_word(evasion.styled),
        unit="word",
        share_of="words with an ASCII letter",
        rate=0.1,
        line="writes a word in bold, script or another styled alphabet (Unicode, Mathematical Alphanumeric Symbols)",
    ),
    "bidi": Kind(
        operation=words.per_word(evasion.bidi),
        unit="word",
        share_of="words with two different letters side by side behind the first one",
        rate=0.1,
        line="exchanges two letters, and controls of direction put them back on the display (Boucher et al., 2022)",
    ),
    "ocr": Kind(
        operation=ocr.ocr,
        unit="word",
        share_of="words between spaces, but a last one of one character",
        rate=0.1,
        line="misreads one or two characters, joins or splits words (ambiguities of Tesseract; nlpaug's table)",
        resizes=True,
    ),
    "homophone": Kind(
        operation=sounds.homophone,
        unit="word",
        share_of="common English words that sound like another one",
        rate=0.1,
        line="writes a word that sounds alike, as dictation does (pronouncing dictionary CMUdict)",
    ),
    "phonetic": Kind(
        operation=words.per_word(sounds.phonetic),
        unit="word",
        share_of="words with a spelling that one of the rules respells",
        rate=0.1,
        line="writes an English spelling as it sounds: ph f, ck k, -ed -t (rules of Metaphone, Philips, 1990)",
    ),
    "mobile": Kind(
        operation=mobile.mobile,
        unit="word",
        share_of="words between spaces",
        rate=0.1,
        line="hits or misses the space bar, types twice, capitalises a word (slips on phones, Yesilada et al., 2010)",
        resizes=True,
    ),
    "misspelling": Kind(
        operation=words.misspelling,
        unit="word",
        share_of="words that the list of misspellings has",
        rate=0.1,
        line="writes a word as people misspell it (natural noise of Belinkov and Bisk)",
        listed=True,
    ),
}


def _checked(name: str, kind: object) -> Kind:
    """Checks and returns a kind that a package adds; raises a ValueError that names the missing or wrong field."""
    if not isinstance(kind, Kind):
        raise ValueError(f"noise {name!r}: expected a charlm.text.noise.Kind, got {kind!r}")
    if not callable(kind.operation) or isinstance(kind.operation, type):
        raise ValueError(f"noise {name!r}: its operation is {kind.operation!r}, expected a function that makes edits")
    if not takes(kind.operation, 3):
        raise ValueError(f"noise {name!r}: its operation {kind.operation!r}, expected to take characters, how and rng")
    numbers: dict[str, type | tuple[type, ...]] = dict.fromkeys(("rate", "highest"), (int, float))
    check_fields(f"noise {name!r}", kind, numbers | {"min_length": int, "resizes": bool, "listed": bool})
    if kind.unit not in ("character", "word"):
        raise ValueError(f"noise {name!r}: its unit is {kind.unit!r}, expected 'character' or 'word'")
    for field in ("share_of", "line"):
        if not (said := getattr(kind, field)):
            raise ValueError(
                f"noise {name!r}: it lacks {field}, which says what its rate is a share of, or what it does"
            )
        if not is_line(said):
            raise ValueError(f"noise {name!r}: {field}={said!r}, expected one line of text")
    if not 0 <= kind.rate <= kind.highest <= 1 or kind.min_length < 1:
        raise ValueError(
            f"noise {name!r}: rate={kind.rate}, highest={kind.highest}, min_length={kind.min_length}, expected "
            "0 <= rate <= highest <= 1 and a shortest word of at least 1"
        )
    return kind


KINDS: Registry[Kind] = Registry("noise", "charlm.noises", _OWN, _checked)

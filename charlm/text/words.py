"""Splits text into words, given as character offsets, so that the text can always be restored exactly.

There are five splitters: "spacy" (the HLM paper, section 3.5), "rules" (no dependency, fast), "icu" (the same, with
dictionaries), "reference" (the released code) and "spaces". The first two split scripts written without spaces per
character (HLM, section Limitations), "icu" splits them into words. Open it to add a splitter, or to change what counts
as a word.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from charlm.core import extras
from charlm.core.nearest import did_you_mean

Span = tuple[int, int]
KEPT_WORDS = 2**18  # most distinct words of which a reader remembers what it made of them


class Splitter(Protocol):
    """Finds the words of a text."""

    name: str

    def spans(self, text: str) -> list[Span]:
        """Returns the (start, end) character offsets of the words: ascending, non-empty, never overlapping."""
        ...


@dataclass(frozen=True)
class SplitText:
    """A text cut into W words; `gaps` are the W + 1 pieces of text before, between and after the words."""

    words: tuple[str, ...]
    starts: tuple[int, ...]
    gaps: tuple[str, ...]

    def restore(self) -> str:
        """Returns exactly the text that was split."""
        return self.gaps[0] + "".join(word + gap for word, gap in zip(self.words, self.gaps[1:], strict=True))

    @property
    def spans(self) -> list[Span]:
        """The (start, end) character offsets of the words."""
        return [(start, start + len(word)) for start, word in zip(self.starts, self.words, strict=True)]


def split(text: str, splitter: Splitter) -> SplitText:
    """Cuts `text` into the words of `splitter` and the gaps between them."""
    spans = splitter.spans(text)
    gap_starts = [0, *(end for _, end in spans)]
    gap_ends = [*(start for start, _ in spans), len(text)]
    return SplitText(
        words=tuple(text[start:end] for start, end in spans),
        starts=tuple(start for start, _ in spans),
        gaps=tuple(text[start:end] for start, end in zip(gap_starts, gap_ends, strict=True)),
    )


def get_splitter(name: str, language: str = "en") -> Splitter:
    """Returns the splitter that config key `text.splitter` names: one of `SPLITTERS`.

    Args:
      name: the name of the splitter.
      language: the code of the spaCy pipeline; the other splitters treat all languages alike.

    Raises:
      ValueError: the name or the language is unknown, or spaCy or ICU is needed and not installed.
    """
    if name in SPLITTERS:
        return _MAKERS[name](language)
    near = did_you_mean(name, SPLITTERS)
    raise ValueError(f"text.splitter={name!r} is not one of {', '.join(SPLITTERS)}{near}")


# Blocks of the scripts that are split per character: Thai and Lao, Burmese, Khmer, Han, kana. Only their letters and
# letter-like symbols are split: native digits stay numbers, punctuation stays punctuation, marks stay with their base.
_UNSPACED_BLOCKS = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17DF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F)),
    *((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x3035), (0x3038, 0x303C), (0x3041, 0x30FF)),
    *((0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9D)),
)
_ASTRAL_UNSPACED = "\U0001aff0-\U0001b16f\U00020000-\U0003fffd"  # kana extensions; planes 2 and 3 are all Han
_ASTRAL = "\U00010000-\U0010ffff"
_HALFWIDTH_VOICING = (0xFF9E, 0xFF9F)  # letters in Unicode, but written as marks on the kana before them
_PICTOGRAPH = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2194-\u21aa\u231a-\u23ff\u25aa-\u25fe\u2600-\u27bf\u2934\u2935\u2b05-\u2b55"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001f1e5\U0001f200-\U0001fbef"
)
_CJK_PUNCTUATION = "\u3001-\u3003\u3008-\u3020\u3030\u303d\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"


def _members(code_points: Iterable[int]) -> str:
    """Returns ascending code points as the inside of a regular-expression class."""
    runs = [list(run) for _, run in itertools.groupby(enumerate(code_points), lambda pair: pair[1] - pair[0])]
    # Escapes take Python's parser twice the time; only characters of ASCII may need them.
    shown = lambda code: chr(code) if code > 0x7F else f"\\x{code:02x}"
    return "".join(f"{shown(run[0][1])}-{shown(run[-1][1])}" for run in runs)


def _extending(codes: Iterable[int]) -> list[int]:
    """Returns those characters that extend the one before: marks, joiners, variation selectors, other formatters."""
    category = unicodedata.category
    return [code for code in codes if category(chr(code)) in ("Mn", "Mc", "Me", "Cf") or code in _HALFWIDTH_VOICING]


def _unspaced() -> list[int]:
    """Returns the characters of the basic plane that are words of their own, ascending."""
    found = []
    for code in itertools.chain(*(range(first, last + 1) for first, last in sorted(_UNSPACED_BLOCKS))):
        category = unicodedata.category(chr(code))
        if category[0] in "LNS" and category not in ("Nd", "Sc") and code not in _HALFWIDTH_VOICING:
            found.append(code)
    return found


@functools.cache
def _classes() -> tuple[str, str, str, str]:
    """Returns four expressions: basic-plane letters, a word, extending characters, and unspaced characters.

    The first and the last are the inside of a character class, the other two are complete expressions.

    Python's regular-expression engine tests basic-plane members with one look-up, and other members one range at a
    time. The guards `(?=[astral])` avoid this: without them the end of every word would be compared with hundreds of
    ranges.
    """
    beyond = [*range(0x10000, 0x1AFF0), *range(0x1B170, 0x20000), *range(0xE0000, 0xE0200)]  # without kana
    basic, found = range(0x10000), _unspaced()
    alone = frozenset(found)
    extending, others = _extending(basic), _extending(beyond)
    unspaced = _members(found) + _ASTRAL_UNSPACED
    letters = _members(sorted({*extending, *(c for c in basic if chr(c).isalnum() and c not in alone)}))
    rarer = _members(sorted({*others, *(c for c in beyond if chr(c).isalnum())}))
    word = f"(?>(?:[{letters}]++|(?=[{_ASTRAL}])[{rarer}]++)+)"
    skin_tones = "\U0001f3fb-\U0001f3ff"
    extension = f"(?>(?:[{_members(extending)}]++|(?=[{_ASTRAL}])[{_members(others)}{skin_tones}]++)*)"
    return letters, word, extension, unspaced


# Words that end in a period without ending a sentence.
_TITLES = r"(?:M(?:rs?|s)|[DJS]r|Prof|St|Inc|Ltd|Co(?:rp)?|vs)\."
# With one of these endings, a bare "name.ending" is an address; otherwise it is two sentences without a space between.
_DOMAIN_ENDINGS = "com|org|net|edu|gov|info|io|co|uk|de|fr|ru|cn|jp|kr|vn|br|au|eu|tv|ly|ai|nl|pl"
_LABEL = r"[A-Za-z0-9][A-Za-z0-9-]{0,62}+"  # RFC 1035's limit, which also keeps failed attempts short
_SUFFIX = r"['’](?:[sSmMdD]|[lL][lL]|[vV][eE]|[rR][eE])"  # we 've, it 's; n't has a rule of its own


def _address_patterns(letters: str, unspaced: str) -> list[str]:
    """Returns the expressions for URLs, e-mail addresses and bare domains; a failed match takes at most linear time."""
    body = rf"[^\s<>\"“”«»(){{}}|\\^`…{_CJK_PUNCTUATION}{unspaced}]"
    last = rf"{body}(?<![.,;:!?'’*\[\]~-])"
    rest = rf"(?>(?:{body}*+\({body}*+\)){{0,8}})(?:{body}*{last})?"
    scheme = r"(?:[hH][tT][tT][pP][sS]?|[fF][tT][pP])://(?=[\w\[])|[wW]{3}\.(?=[A-Za-z0-9-]{1,63}+\.[A-Za-z0-9])"
    return [
        rf"(?:{scheme}){rest}",
        rf"[A-Za-z0-9][A-Za-z0-9._%+-]{{0,63}}+@(?:{_LABEL}\.){{1,8}}[A-Za-z]{{2,24}}+(?![{letters}_])",
        rf"(?:{_LABEL}\.){{1,8}}(?:{_DOMAIN_ENDINGS})(?![{letters}_@-])(?::[0-9]{{1,5}}+)?(?:/{rest})?",
    ]


@functools.cache
def _rules_pattern() -> re.Pattern[str]:
    """Compiles the expression whose matches are the words; every character except whitespace belongs to a match.

    Every repetition is atomic, bounded, or over a single class, so hostile text takes linear time too. Repetitions of
    more than a class are written `(?>...)`, since Python before 3.11.5 matches `(?:...)*+` wrongly (its issue 106052).
    """
    letters, word, extension, unspaced = _classes()
    negation = rf"[nN]['’][tT](?![{letters}])"
    inner = rf"_++|(?<=\d)[.,:/](?=\d)|(?!{_SUFFIX}(?![{letters}]))['’](?=[{letters}])"  # snake_case 1,234.5 o'clock
    starting_with_letter = [
        *_address_patterns(letters, unspaced),
        _TITLES,
        rf"[^\W\d_](?>(?:\.[^\W\d_{unspaced}](?![{letters}]))+)\.?+",  # U.S. e.g. p.m
        rf"(?=[{letters}]++(?<=[nN])['’][tT](?![{letters}]))[{letters}]+(?={negation})",  # do n't, ca n't
        rf"{word}(?>(?:(?:{inner}){word})*)",
    ]
    alternatives = [
        # The two cheap cases come first; they cover most words of running text.
        rf"[{letters}]++(?=[\s;!?)\"”]|,(?!\d)|\Z)",
        r"[,.;:!?)\"](?=\s)",
        rf"[{unspaced}]{extension}",
        rf"[\U0001f1e6-\U0001f1ff]{{1,2}}+{extension}",  # flags
        rf"[{_PICTOGRAPH}]{extension}(?>(?:(?<=\u200d)[{_PICTOGRAPH}]{extension})*)",
        rf"(?=[{letters}{_ASTRAL}])(?:{'|'.join(starting_with_letter)})",
        rf"(?<=[{letters}]){_SUFFIX}(?![{letters}])",
        r"(?<!\w)@[A-Za-z0-9_]++",
        rf"(?<!\w)#(?!\d++(?![{letters}_]))(?>(?:[{letters}_]++|{word})+)",
        r"(?<!\w)[:;][-']?+(?:\)++|\(++|[DPp](?!\w))|<3(?!\w)",  # :-) ;( :D <3
        rf"(\S)(?>\1*){extension}",
    ]
    return re.compile(rf"(?=\S)(?:{'|'.join(alternatives)})")


class RulesSplitter:
    """Finds words with one regular expression for all languages, in linear time; it knows English contractions."""

    name = "rules"

    def spans(self, text: str) -> list[Span]:
        """Returns the offsets of the words; together they hold every character of `text` except whitespace."""
        return [match.span() for match in _rules_pattern().finditer(text)]


class IcuSplitter:
    """Splits as "rules" does, but finds the words of scripts without spaces by the dictionaries of ICU.

    These are Chinese and Japanese together, Thai, Lao, Khmer and Burmese. Which words there are depends on ICU's
    version, which comes with the package icu4py.
    """

    name = "icu"

    def __init__(self) -> None:
        """Loads ICU; ValueError if it is missing."""
        try:
            self._breaker = extras.load('text.splitter="icu"', "icu4py.breakers").WordBreaker
        except ValueError as error:
            raise ValueError(f'{error}; text.splitter="rules" needs nothing') from error.__cause__

    def __reduce__(self) -> tuple[type[IcuSplitter], tuple[()]]:
        return IcuSplitter, ()

    def spans(self, text: str) -> list[Span]:
        """Returns the offsets of the words; together they hold every character of `text` except whitespace."""
        found = RulesSplitter().spans(text)
        unspaced, _ = _unspaced_patterns()
        if not unspaced.search(text):
            return found
        spans: list[Span] = []
        run: list[Span] = []  # characters of scripts without spaces that stand side by side
        for span in found:
            alone = unspaced.match(text, span[0]) is not None
            if run and not (alone and span[0] == run[-1][1]):
                spans += self._words(text, run)
                run = []
            if alone:
                run.append(span)
            else:
                spans.append(span)
        return spans + (self._words(text, run) if run else [])

    def _words(self, text: str, run: list[Span]) -> list[Span]:
        """Returns the words of a run of characters; none ends inside one with its marks."""
        start, end = run[0][0], run[-1][1]
        part = text[start:end]
        ends = {word_end for _, word_end in self._breaker(part, "en").segments()}
        places, units = [], 0  # ICU counts in UTF-16, where characters beyond the basic plane have two units
        for first, last in run:
            units += last - first + sum(char > "\uffff" for char in text[first:last])
            if units in ends:
                places.append(last)
        bounds = [start, *places]
        if bounds[-1] != end:
            bounds.append(end)
        return list(itertools.pairwise(bounds))


_REFERENCE_SPACES = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_REFERENCE_SPLITTERS = re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~，。：；（）")
_REFERENCE = re.compile(f"[{_REFERENCE_SPLITTERS}]|[^{_REFERENCE_SPACES}{_REFERENCE_SPLITTERS}]+")


class SpacesSplitter:
    """Splits at whitespace only, so punctuation stays part of the words."""

    name = "spaces"

    def spans(self, text: str) -> list[Span]:
        """Returns the offsets of the words."""
        return [match.span() for match in re.finditer(r"\S+", text)]


class ReferenceSplitter:
    """Splits as the released HLM code does: at 29 kinds of space; 38 punctuation marks are words of their own."""

    name = "reference"

    def spans(self, text: str) -> list[Span]:
        """Returns the offsets of the words."""
        return [match.span() for match in _REFERENCE.finditer(text)]


# spaCy's own pipelines for these languages need further packages, or do not exist. The result must not depend on what
# is installed, so all of them use the language-neutral rules, and the per-character split if the script has no spaces.
_NEUTRAL_LANGUAGES = frozenset({"zh", "ja", "ko", "th", "vi", "lo", "km", "my"})
_SPACY_STRINGS = 2**20  # spaCy remembers every word it has seen; beyond this number the tokenizer is built again
# spaCy's time grows with the square of the length of a run of marks (20,000 quotes: 24 s), so the splitter "rules"
# handles runs of more than 256 characters.
_LONG_RUN = re.compile(r"(?<!\S)\S{257,}+")


@functools.cache
def _unspaced_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compiles two expressions: an unspaced character, and the pieces of a spaCy word with unspaced characters."""
    _, _, extension, unspaced = _classes()
    pieces = rf"[{unspaced}]{extension}|[{_CJK_PUNCTUATION}]|[^{unspaced}{_CJK_PUNCTUATION}]+"
    return re.compile(f"[{unspaced}]"), re.compile(pieces)


class SpacySplitter:
    """Splits with spaCy's rule-based tokenizer (the HLM paper, section 3.5)."""

    name = "spacy"

    def __init__(self, language: str = "en") -> None:
        """Builds the tokenizer of a blank pipeline; ValueError if spaCy or the language is missing."""
        self._language = language
        self._tokenizer = _spacy_tokenizer(language)

    def __reduce__(self) -> tuple[type[SpacySplitter], tuple[str]]:
        return SpacySplitter, (self._language,)  # other processes build the tokenizer again, without its cached words

    def spans(self, text: str) -> list[Span]:
        """Returns the offsets of the words; whitespace tokens are dropped, unspaced scripts split per character."""
        spans: list[Span] = []
        start = 0
        for run in _LONG_RUN.finditer(text):
            spans.extend(self._token_spans(text[start : run.start()], start))
            spans.extend(match.span() for match in _rules_pattern().finditer(text, *run.span()))
            start = run.end()
        spans.extend(self._token_spans(text[start:], start))
        return spans

    def _token_spans(self, text: str, offset: int) -> Iterable[Span]:
        """Yields the word offsets of a piece of text that begins at `offset`."""
        if len(self._tokenizer.vocab.strings) > _SPACY_STRINGS:
            self._tokenizer = _spacy_tokenizer(self._language)
        try:
            doc = self._tokenizer(text)
        except UnicodeEncodeError:  # lone surrogates; U+FFFD has the same length, so offsets stay right
            doc = self._tokenizer(re.sub("[\ud800-\udfff]", "\ufffd", text))
        table = doc.to_array(["IDX", "LENGTH", "IS_SPACE"]).tolist() if len(doc) else []
        unspaced, pieces = _unspaced_patterns()
        anywhere = unspaced.search(text)
        for start, end in ((start, start + length) for start, length, is_space in table if not is_space):
            if anywhere and unspaced.search(text, start, end):
                yield from (
                    (piece.start() + offset, piece.end() + offset) for piece in pieces.finditer(text, start, end)
                )
            else:
                yield start + offset, end + offset


def _spacy_tokenizer(language: str):
    """Returns spaCy's blank tokenizer of a language; ValueError if spaCy or the language is missing."""
    try:
        spacy = extras.load('text.splitter="spacy"', "spacy")
    except ValueError as error:
        raise ValueError(f'{error}; text.splitter="rules" needs nothing') from error.__cause__
    code = "xx" if re.split("[-_]", language.lower())[0] in _NEUTRAL_LANGUAGES else language
    try:
        return spacy.blank(code).tokenizer
    except ImportError as error:
        message = f'text.language={language!r}: spaCy has no blank pipeline for it, "xx" suits every language; {error}'
        raise ValueError(" ".join(message.split())) from None


_MAKERS: dict[str, Callable[[str], Splitter]] = {
    "spacy": SpacySplitter,
    "rules": lambda _: RulesSplitter(),
    "icu": lambda _: IcuSplitter(),
    "reference": lambda _: ReferenceSplitter(),
    "spaces": lambda _: SpacesSplitter(),
}
SPLITTERS = tuple(_MAKERS)

"""Corrects texts in front of a model: by a spelling corrector, or by normalising what only looks like plain text.

    corrected = defence_of("nfkc").text("pаyраl", key=0).text   # three letters are Cyrillic

A defence changes a text as noise does, with a record of its edits, so spans, tags and predictions follow it. Open it to
add a defence, or to change what one corrects. `DEFENCES` lists them; `charlm.robustness.defended` puts them in front of
a model.
"""

from __future__ import annotations

import abc
import difflib
import functools
import hashlib
import re
import shutil
import subprocess
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata, resources
from types import MappingProxyType
from typing import IO, NamedTuple

import numpy as np

from charlm.core import extras
from charlm.core.nearest import did_you_mean
from charlm.text.confusables import prototypes
from charlm.text.noise.characters import Characters
from charlm.text.noise.edits import Edit, NoisedText, NoisedWords, keep_protected
from charlm.text.words import Span


class Defence(abc.ABC):
    """A correction of texts; equal texts are always corrected alike.

    Attributes:
      version: changes when the corrections may.
    """

    version: str

    @abc.abstractmethod
    def edits(self, text: str) -> list[Edit]:
        """Returns the corrections of a text, ascending; they may join and cut words."""

    def corrected(self, words: Sequence[str]) -> list[str]:
        """Returns as many words, those of a sentence, corrected: each by `one`, unless a defence reads those around."""
        return [self.one(word) for word in words]

    def one(self, word: str) -> str:
        """Returns a corrected word, which stays one word; as it is where a defence does not read words alone."""
        return word

    def text(self, text: str, key: str | int, protected: Sequence[Span] = ()) -> NoisedText:
        """Returns a text with its corrections.

        Args:
          text: any text.
          key: has no effect; noise has such an argument.
          protected: spans that must not vanish, and whose borders no correction crosses.
        """
        edits = keep_protected(text, self.edits(text), protected, np.random.default_rng(0))
        return NoisedText.of(text, edits)

    def words(self, words: Sequence[str], key: str | int, spaces: Sequence[bool] | bool = True) -> NoisedWords:
        """Returns as many words, corrected; `key` and `spaces` have no effect."""
        edits, start = [], 0
        for word, found in zip(words, self.corrected(words), strict=True):
            if found != word and found.strip():
                edits.append(Edit(start, start + len(word), found))
            start += len(word) + 1
        return NoisedWords.of(words, edits)


class SymSpell(Defence):
    """The spelling corrector SymSpell (Garbe, 2012) with the English dictionary of symspellpy, edit distance 2.

    A word of a sentence becomes the nearest word of the dictionary, the most frequent one of several; texts are
    corrected by SymSpell's compound correction, which also joins and cuts words. Words of the dictionary
    stay as they are, and so do words that are near none of them or have other characters than ASCII letters.

    Args:
      words: further words with their counts, such as those of the documents that are searched. Their shares are brought
        to the scale of the dictionary's counts and added to these, so that frequent words of the documents win.
    """

    _DISTANCE = 2

    def __init__(self, words: Mapping[str, int] | None = None) -> None:
        """Loads the dictionary, which takes seconds; raises ValueError if symspellpy is not installed."""
        self._package = extras.load("--defence=symspell", "symspellpy")
        self.version = f"symspell {metadata.version('symspellpy')}"
        self._speller = self._package.SymSpell(self._DISTANCE)
        files = resources.files("symspellpy")
        self._speller.load_dictionary(str(files / "frequency_dictionary_en_82_765.txt"), 0, 1)
        self._speller.load_bigram_dictionary(str(files / "frequency_bigramdictionary_en_243_342.txt"), 0, 2)
        if words:
            self._add(words)
        self._nearest = functools.lru_cache(1 << 16)(self._found)
        self._compound = functools.lru_cache(1 << 12)(self._corrected)

    def _add(self, words: Mapping[str, int]) -> None:
        """Adds words to the dictionary; those with other characters than ASCII letters are never corrected to."""
        known = {word: count for word, count in words.items() if _RUN.fullmatch(word) and " " not in word}
        total, listed = sum(known.values()), "\n".join(f"{word} {count}" for word, count in sorted(known.items()))
        for word, count in known.items():
            self._speller.create_dictionary_entry(word.lower(), round(count / total * self._package.SymSpell.N))
        self.version += f" {len(known)} words {hashlib.sha256(listed.encode()).hexdigest()[:16]}"

    def edits(self, text: str) -> list[Edit]:
        """Returns the corrections of all runs of words with single spaces between them."""
        found = []
        for run in _RUN.finditer(text):
            for start, end, new in self._compound(run[0].lower()):
                old = run[0][start:end]
                found.append(Edit(run.start() + start, run.start() + end, cased(new, old)))
        return found

    def one(self, word: str) -> str:
        """Returns the nearest word of the dictionary in the case of `word`."""
        if " " in word or not _RUN.fullmatch(word):
            return word
        found = self._nearest(word.lower())
        return word if found == word.lower() else cased(found, word)

    def _found(self, word: str) -> str:
        nearest = self._speller.lookup(word, self._package.Verbosity.TOP, max_edit_distance=self._DISTANCE)
        return nearest[0].term if nearest else word

    def _corrected(self, run: str) -> tuple[Edit, ...]:
        """Returns the edits of a run of words in lower case."""
        found = self._speller.lookup_compound(run, max_edit_distance=self._DISTANCE, split_by_space=True)[0].term
        return tuple(Edit(a, b, found[c:d]) for kind, a, b, c, d in _differences(run, found) if kind != "equal")


class Piped(Defence):
    """A spelling corrector that is asked through its program's pipe, in the protocol of Ispell.

    A word that its dictionary neither has nor builds becomes the first suggestion for it; a word of a sentence the
    first one without a space. Words without a suggestion stay, and so do those with digits.

    Attributes:
      program: the program and its options.
      packages: how Debian names the packages of program and dictionary.
    """

    program: tuple[str, ...]
    packages: str

    def __init__(self) -> None:
        """Starts the program; raises ValueError if the program or its dictionary is not installed."""
        self._process = subprocess.Popen(
            self.program,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8",
        )  # fmt: skip
        banner = self._line()
        self.version = re.sub(r".*(Hunspell|Aspell) ([\d.]+).*", lambda found: f"{found[1].lower()} {found[2]}", banner)
        self._suggested = functools.lru_cache(1 << 16)(self._asked)

    def edits(self, text: str) -> list[Edit]:
        """Returns the corrections of all words of a text."""
        found = ((match, self._suggested(match[0])) for match in WORD.finditer(text))
        return [Edit(*match.span(), suggested[0]) for match, suggested in found if suggested]

    def one(self, word: str) -> str:
        """Returns the first suggestion that is one word."""
        if not WORD.fullmatch(word):
            return word
        return next((one for one in self._suggested(word) if " " not in one), word)

    def _asked(self, word: str) -> tuple[str, ...]:
        """Returns the suggestions for a word; () if it is right, or there are none."""
        try:
            self._to.write(f"^{word}\n")  # behind ^ nothing is read as a command
            self._to.flush()
        except OSError:
            raise self._ended() from None
        suggested: tuple[str, ...] = ()
        while line := self._line():  # an empty line ends the answer; a word with an apostrophe may have several
            if line.startswith("&"):
                suggested = tuple(line.partition(": ")[2].split(", "))
        return suggested

    @property
    def _to(self) -> IO[str]:
        assert self._process.stdin is not None  # it is a pipe
        return self._process.stdin

    def _line(self) -> str:
        assert self._process.stdout is not None  # it is a pipe
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return line.rstrip("\n")

    def _ended(self) -> ValueError:
        status = self._process.wait()
        name, dictionary = self.program[0], self.packages.split()[-1]
        return ValueError(f"--defence={name}: the program ended with status {status}: is {dictionary} installed?")


class Hunspell(Piped):
    """The spelling corrector Hunspell, as its program corrects with the dictionary en_US; see `Piped`."""

    program = ("hunspell", "-a", "-i", "utf-8", "-d", "en_US")
    packages = "hunspell hunspell-en-us"


class Aspell(Piped):
    """The spelling corrector GNU Aspell, as its program corrects with the dictionary en_US; see `Piped`."""

    program = ("aspell", "-a", "--encoding=utf-8", "--lang=en_US")
    packages = "aspell aspell-en"


class Normal(Defence):
    """Compatibility normalisation (NFKC), letters folded to ASCII ones that look alike, invisible characters removed.

    A word is folded if only Latin letters are left then: if it has an ASCII letter, or if nothing in the text is in a
    script of its own. So words of other scripts stay. Joiners stay behind letters of other scripts and pictographs,
    which need them.
    """

    version = f"nfkc 1, Unicode {unicodedata.unidata_version}"

    def edits(self, text: str) -> list[Edit]:
        """Returns the corrections of a text, one for each character with its marks."""
        if text.isascii():
            return []
        characters = Characters.of(text)
        old = list(characters.pieces(0, len(characters.codes_U)))
        new = [_plain(piece) for piece in old]
        words = [range(first, end) for first, end in characters.words_2W.T.tolist()]
        for folded, word in zip(_folded(["".join(new[n] for n in word) for word in words]), words, strict=True):
            if folded:
                for n in word:
                    new[n] = _fold(new[n])
        starts = characters.starts.tolist()
        return [
            Edit(starts[n], starts[n + 1], after)
            for n, (one, after) in enumerate(zip(old, new, strict=True))
            if one != after
        ]

    def corrected(self, words: Sequence[str]) -> list[str]:
        """Returns words normalised; those around a word say whether it is folded."""
        plain = ["".join(map(_plain, _pieces(word))) for word in words]
        parts = zip(words, plain, _folded(plain), strict=True)
        return [old if old.isascii() else _fold(new) if folded else new for old, new, folded in parts]


class Entry(NamedTuple):
    """A defence.

    Attributes:
      make: makes it, from what stands behind its name if it `takes` something.
      line: what it does.
      package: the optional package that it needs; "": none.
      program: how Debian names the packages of the program that it needs, the program first; "": none.
      takes: what stands behind its name and a colon, for messages; "": nothing.
      check: raises ValueError if that is wrong, without making the defence.
    """

    make: Callable[..., Defence]
    line: str
    package: str = ""
    program: str = ""
    takes: str = ""
    check: Callable[[str], object] | None = None


DEFENCES = MappingProxyType(
    {
        "symspell": Entry(SymSpell, "the spelling corrector SymSpell, English (extra [defence])", "symspellpy"),
        "hunspell": Entry(
            Hunspell, "the spelling corrector Hunspell, English (the program)", program=Hunspell.packages
        ),
        "aspell": Entry(Aspell, "the spelling corrector GNU Aspell, English (the program)", program=Aspell.packages),
        "nfkc": Entry(Normal, "NFKC, lookalikes folded to ASCII, invisible characters removed"),
    }
)


def words_in(texts: Iterable[str]) -> Counter[str]:
    """Returns how often each word of letters occurs in texts, in lower case; what `SymSpell` takes as its words."""
    return Counter(word.lower() for text in texts for word in WORD.findall(text))


def parsed(spec: str, known: Mapping[str, Entry] = DEFENCES, asked_as: str = "--defence") -> tuple[str, ...]:
    """Returns the parts of "name", "name:ARGUMENT" or several joined by "+", which work one after the other.

    Args:
      spec: the names, each with its argument if it takes one.
      known: the table of defences.
      asked_as: the option or config key to name in errors.

    Raises:
      ValueError: a name is unknown, a part is given twice, an argument is missing, wrong or one too many, or the
        package or program of a defence is not installed.
    """
    between = r"\+"
    if any(entry.takes and f"{name}:" in spec for name, entry in known.items()):  # an argument may hold a plus
        between = rf"\+(?=\s*(?:{'|'.join(map(re.escape, known))})(?:[:+]|\s*$))"
    parts = tuple(part.strip() for part in re.split(between, spec))
    for part in parts:
        name, _, argument = part.partition(":")
        if name not in known:
            near = did_you_mean(name, known)
            raise ValueError(f"{asked_as}={spec}: {name!r} is not one of {', '.join(known)}{near}")
        entry = known[name]
        if bool(argument) != bool(entry.takes) or (":" in part and not argument):
            raise ValueError(f"{asked_as}={spec}: expected {name}{entry.takes and f':{entry.takes}'}, got {part!r}")
        if entry.check is not None:
            entry.check(argument)
        if entry.package:
            extras.check(f"{asked_as}={spec}", entry.package)
        program = entry.program.partition(" ")[0]
        if program and shutil.which(program) is None:
            raise ValueError(f"{asked_as}={spec}: {program} is not installed: apt install {entry.program}")
    if len(set(parts)) < len(parts):
        raise ValueError(f"{asked_as}={spec}: a defence is named twice")
    return parts


def new_defence(part: str, known: Mapping[str, Entry] = DEFENCES) -> Defence:
    """Returns a new defence of a part that `parsed` returned."""
    name, _, argument = part.partition(":")
    return known[name].make(argument) if argument else known[name].make()


def defence_of(part: str, known: Mapping[str, Entry] = DEFENCES) -> Defence:
    """Returns the defence of a part that `parsed` returned; one without argument is made once."""
    name, _, argument = part.partition(":")
    return new_defence(part, known) if argument else _made(known[name].make)


@functools.cache
def _made(make: Callable[..., Defence]) -> Defence:
    return make()


WORD = re.compile(r"(?<![^\W_])[^\W\d_]+(?:['’][^\W\d_]+)*(?![^\W_])")  # letters, with apostrophes inside
# Words of ASCII letters with single spaces between them; words with an apostrophe inside are none of them.
_RUN = re.compile(r"(?<![^\W_])(?<![A-Za-z]['’])[A-Za-z]+(?: [A-Za-z]+)*(?![^\W_]|['’][A-Za-z])")
# Format characters that never change what a text says: soft hyphen, those without width, controls of direction.
_INVISIBLE = frozenset("\u00ad\u061c\u180e\u200b\u200e\u200f\ufeff") | {
    chr(code) for first, end in ((0x202A, 0x202F), (0x2060, 0x2065), (0x2066, 0x2070)) for code in range(first, end)
}
_JOINERS = frozenset("\u200c\u200d")


def cased(new: str, old: str) -> str:
    """Returns a correction, in lower case, in the case of what it replaces."""
    if len(old) > 1 and old.isupper():
        return new.upper()
    if old[:1].isupper():
        return new[:1].upper() + new[1:]
    return new


def _differences(one: str, other: str) -> Iterable[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()


def _pieces(text: str) -> Sequence[str]:
    characters = Characters.of(text)
    return characters.pieces(0, len(characters.codes_U))


def _plain(piece: str) -> str:
    """Returns a character with its marks, normalised and without what is invisible."""
    if piece.isascii():
        return piece
    kept = "".join(char for char in piece if char not in _INVISIBLE)
    if kept[:1].isalnum() and _is_latin(unicodedata.normalize("NFKC", kept[:1])):
        kept = "".join(char for char in kept if char not in _JOINERS)
    normal = unicodedata.normalize("NFKC", kept)
    return normal if piece[:1].isspace() or not normal[:1].isspace() else kept


def _fold(text: str) -> str:
    table = prototypes()
    return "".join(table.get(char, char) for char in text)


def _folded(words: Sequence[str]) -> list[bool]:
    """Says of each word of a text whether its letters are folded to those that they look like."""
    table = prototypes()
    letters = [[char for char in word if char.isalpha()] for word in words]
    latin = [all(char in table or _is_latin(char) for char in word) for word in letters]
    alone = all(latin) and any(char.isascii() for word in letters for char in word)
    return [fits and (alone or any(map(str.isascii, word))) for fits, word in zip(latin, letters, strict=True)]


@functools.lru_cache(1 << 12)
def _is_latin(text: str) -> bool:
    return all(unicodedata.name(char, "").startswith("LATIN") for char in text if char.isalpha())

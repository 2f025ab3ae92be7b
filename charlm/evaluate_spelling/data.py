"""Makes the sentences of an evaluation: real text, with real misspellings put in or as they were written.

Open it to change which sentences are used, how misspellings get into them, or what is read of a CoNLL-U file.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Sequence

from charlm.core.reading import read_bytes, unpacked_bytes
from charlm.data.sentences import SPLITTER
from charlm.data.streams import generator
from charlm.text.noise.misspellings import Misspellings
from charlm.text.words import Span, get_splitter

log = logging.getLogger("charlm")

_TOKEN = re.compile(r"\d+(?:[-.]\d+)?(?:\t[^\t]*){9}$")  # a line of a word, of several in one, or of an empty node
_RIGHT = "CorrectForm="  # in MISC, before what a word should be


@dataclasses.dataclass(frozen=True)
class Example:
    """A sentence as it is read.

    Attributes:
      text: the sentence.
      spans: the characters (start, end) of its words, ascending.
      meant: what each word should be; None: it does not count.
    """

    text: str
    spans: tuple[Span, ...]
    meant: tuple[str | None, ...]

    @property
    def read(self) -> list[str]:
        """The words as they stand in the text."""
        return [self.text[start:end] for start, end in self.spans]

    @property
    def clean(self) -> str:
        """The sentence as it is meant."""
        return self.as_meant.text

    @property
    def as_meant(self) -> Example:
        """The sentence as it is meant, with its words."""
        text, spans, at = "", [], 0
        for (start, end), meant in zip(self.spans, self.meant, strict=True):
            text += self.text[at:start]
            word = self.text[start:end] if meant is None else meant
            spans.append((len(text), len(text) + len(word)))
            text, at = text + word, end
        return Example(text + self.text[at:], tuple(spans), self.meant)


def misspelled(
    sentences: Iterable[str], listed: Misspellings, rate: float, clean: float, seed: int = 0, real_words: bool = True
) -> list[Example]:
    """Returns sentences with listed misspellings put in; equal arguments give equal sentences.

    Args:
      listed: misspellings; a misspelling of several words is not used.
      rate: the share of the words with a listed misspelling that get one, each of its misspellings as likely.
      clean: the share of the sentences that stay as they are.
      seed: of the draws, which for a sentence depend on its number alone.
      real_words: whether misspellings that are another word of the lists are used, such as "form" for "from".
    """
    splitter, found = get_splitter(SPLITTER), []
    for number, sentence in enumerate(sentences):
        rng = generator(seed, number)
        share = 0.0 if rng.random() < clean else rate
        parts: list[str] = []
        spans, meant, at, length = [], [], 0, 0
        for start, end in splitter.spans(sentence):
            word = read = sentence[start:end]
            draw, which = rng.random(2)
            forms: Sequence[str] = listed.of(word) if draw < share else ()
            if not real_words:
                forms = [form for form in forms if form not in listed]
            if forms:
                read = forms[int(which * len(forms))]
            parts += [sentence[at:start], read]
            length += start - at
            spans.append((length, length + len(read)))
            meant.append(word)
            length, at = length + len(read), end
        found.append(Example("".join([*parts, sentence[at:]]), tuple(spans), tuple(meant)))
    return found


def read_typos(path: str) -> list[Example]:
    """Returns the sentences of a CoNLL-U file with what their misspelled words should be (`CorrectForm` in MISC).

    Words that were run together or cut in two, or whose correction has another case alone, do not count.

    Raises:
      ValueError: the file cannot be read, is no CoNLL-U, or no sentence has its text; names the file and the line.
    """
    data = read_bytes(path)
    try:
        text = (unpacked_bytes(data, path) if data.startswith(b"\x1f\x8b") else data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is no UTF-8") from error
    blocks: list[list[str]] = [[]]
    for number, line in enumerate((line.removesuffix("\r") for line in text.split("\n")), start=1):
        if not line.strip():
            blocks.append([])
            continue
        if not line.startswith("#") and not _TOKEN.match(line):
            raise ValueError(f"{path}, line {number}: expected the ten columns of CoNLL-U, got {line[:40]!r}")
        blocks[-1].append(line)
    made = [_typos_of(block) for block in blocks if block]
    found = [one for one in made if one is not None]
    if not found:
        raise ValueError(f'{path}: expected a CoNLL-U file whose sentences have a line "# text = ..."')
    if left := len(made) - len(found):
        log.warning("%s: %d sentences are left out, whose words do not stand in their text", path, left)
    return found


def _typos_of(lines: Sequence[str]) -> Example | None:
    """Returns one sentence; None if its words do not stand in its text."""
    text = next((line.partition("=")[2].strip() for line in lines if line.startswith("# text =")), "")
    spans, meant, at, inside = [], [], 0, 0
    for fields in (line.split("\t") for line in lines if line[:1].isdigit()):
        number, form, misc = fields[0], fields[1], fields[-1]
        if "." in number or (number.isdigit() and int(number) <= inside):
            continue  # an empty node, or a part of a word that was read
        start = text.find(form, at)
        if start < 0 or text[at:start].strip():
            return None
        at = start + len(form)
        joined = "-" in number
        inside = int(number.partition("-")[2]) if joined else inside
        right = next((one[len(_RIGHT) :] for one in misc.split("|") if one.startswith(_RIGHT)), form)
        unclear = joined or right == "_" or " " in right or (right != form and right.lower() == form.lower())
        spans.append((start, at))
        meant.append(None if unclear else right)
    return Example(text, tuple(spans), tuple(meant)) if spans and not text[at:].strip() else None

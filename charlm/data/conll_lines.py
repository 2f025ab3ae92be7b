"""Splits lines in CoNLL columns, CoNLL-U and UNER's .iob2 into sentences, for `conll.read_tagged`.

Open it when the columns of a file are misread.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from charlm.core.nearest import ALIKE, did_you_mean

CONLL_FORMATS = ("auto", "columns", "conllu", "iob2")
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
DOCUMENT = "-DOCSTART-"  # a line that separates documents in CoNLL-2003
# The line before every sentence of LinCE's files, which in its sentiment data holds the sentence's class, too.
SENTENCE_NUMBER = re.compile(r"#\s*sent_enum\s*=\s*(\d+)\s*?(?:\t(.*))?")

_DEFAULTS = {"columns": (0, -1), "conllu": (1, "upos"), "iob2": (1, 2)}  # default columns of word and tag
_NUMBER = re.compile(r"\d+")
_ID = re.compile(r"\d+([-.]\d+)?")  # 3, the range 3-4 of a contraction, the empty node 3.1
_COMMENT = re.compile(r"#\s*(sent_id|text)\s*=\s?(.*)")


@dataclasses.dataclass(frozen=True)
class ColumnLayout:
    """The meaning of each column.

    Attributes:
      format: "columns", "conllu" or "iob2".
      word: number of the column with words.
      tag: number of the column with tags; None: no tags are read.
      key: KEY of "misc:KEY" or "feats:KEY", else empty.
      tabs: whether columns are separated by tabs instead of spaces.
      comments: whether lines that begin with "#" are comments.
      width: number of columns that every line must have when a column is counted from the end; 0: any number.
      numbered: whether sentences begin with lines such as "# sent_enum = 1" (LinCE). These are known by their shape;
        other lines with "#", such as hashtags, are words.
    """

    format: str
    word: int
    tag: int | None
    key: str
    tabs: bool
    comments: bool
    width: int
    numbered: bool = False


@dataclasses.dataclass
class Sentence:
    """A sentence while it is read; `ranges` holds (ids "first-last", form, space after it) of each contraction.

    `label` is the class that stands beside the number of a sentence in LinCE's sentiment data.
    """

    id: str = ""
    text: str = ""
    label: str = ""
    numbers: list[int] = dataclasses.field(default_factory=list)
    ids: list[str] = dataclasses.field(default_factory=list)
    words: list[str] = dataclasses.field(default_factory=list)
    tags: list[str] = dataclasses.field(default_factory=list)
    spaces: list[bool] = dataclasses.field(default_factory=list)
    ranges: list[tuple[str, str, bool]] = dataclasses.field(default_factory=list)


def settle(
    path: str,
    lines: Sequence[tuple[int, str]],
    format: str,
    word: int | None,
    tag: int | str | None,
    comments: bool | None,
) -> ColumnLayout:
    """Returns the layout of a file; what the caller leaves open is decided by the first line that holds a word.

    Raises:
      ValueError: there is no such line, or the format has no column `tag`.
    """
    written = [line for _, line in lines if line.strip(" \t") and not line.startswith(DOCUMENT)]
    if not written:
        raise ValueError(f"{path}: no sentences")
    if len(lines) == 1 and "\r" in lines[0][1].strip("\r"):
        raise ValueError(f"{path}: one line, with carriage returns inside: expected lines that end in a newline")
    numbered = format in ("auto", "columns") and bool(SENTENCE_NUMBER.fullmatch(written[0]))
    shaped = SENTENCE_NUMBER.fullmatch if numbered else lambda line: line.startswith("#")
    first = next((line for line in written if not shaped(line)), written[0])
    cells = first.split("\t")
    if numbered:
        format = "columns"
    elif format == "auto":
        width = len(cells) if _ID.fullmatch(cells[0]) else 0
        after_comment = written[0].startswith("#") and "\t" not in written[0]
        format = "conllu" if width == len(CONLLU) else "iob2" if width == 5 and after_comment else "columns"
    default_word, default_tag = _DEFAULTS[format]
    column, key = _tag_column(path, default_tag if tag == "auto" else tag, format)
    word = default_word if word is None else word
    tabs = numbered or format != "columns" or len(cells) > 1
    width = len(_cells(first, tabs)) if min(word, column or 0) < 0 else 0
    comments = format != "columns" if comments is None else comments
    return ColumnLayout(format, word, column, key, tabs, comments and not numbered, width, numbered)


def _cells(line: str, tabs: bool) -> list[str]:
    """Returns the columns of a line; only tabs or spaces separate columns, other white space belongs to a word."""
    return line.split("\t") if tabs else [cell for cell in line.split(" ") if cell]


def _tag_column(path: str, tag: int | str | None, format: str) -> tuple[int | None, str]:
    """Returns the number of the tag column, and the key to read inside its cells ("" for the whole cell)."""
    if tag is None or isinstance(tag, int):
        return tag, ""
    name, _, key = tag.partition(":")
    if format == "conllu" and name in CONLLU and (not key or name in ("feats", "misc")):
        return CONLLU.index(name), key
    if tag.removeprefix("-").isdecimal():
        return int(tag), ""
    expected = "a number"
    if format == "conllu":
        expected = f"a number, feats:KEY, misc:KEY or one of {', '.join(CONLLU)}{did_you_mean(name, CONLLU, ALIKE)}"
    raise ValueError(f"{path}: tag={tag!r} in the format {format}: expected {expected}")


def split_sentences(path: str, lines: Sequence[tuple[int, str]], layout: ColumnLayout) -> list[Sentence]:
    """Returns the sentences of a file; sentences without words are left out."""
    found, sentence = [], Sentence()
    for number, line in [*lines, (0, "")]:
        cells = _cells(line, layout.tabs)
        opening = SENTENCE_NUMBER.fullmatch(line) if layout.numbered else None
        if opening or not line.strip(" \t") or (layout.format == "columns" and cells[0] == DOCUMENT):
            if sentence.words:
                found.append(sentence)
            sentence = Sentence(id=opening[1], label=(opening[2] or "").strip()) if opening else Sentence()
        elif layout.comments and line.startswith("#"):
            _add_comment(sentence, line)
        else:
            _add_word(sentence, f"{path}:{number}", number, cells, layout)
    return found


def _add_comment(sentence: Sentence, line: str) -> None:
    match = _COMMENT.match(line)
    if match and match[1] == "sent_id":
        sentence.id = match[2].strip()
    elif match:
        sentence.text = match[2]


def _add_word(sentence: Sentence, place: str, number: int, cells: list[str], layout: ColumnLayout) -> None:
    """Adds the word of a line to the sentence, or notes a contraction."""
    _check_width(place, cells, layout)
    word, space = cells[layout.word], True
    if layout.format == "conllu":
        space = "SpaceAfter=No" not in cells[CONLLU.index("misc")].split("|")
    if layout.format != "columns" and not _NUMBER.fullmatch(cells[0]):
        if not _ID.fullmatch(cells[0]):
            raise ValueError(f"{place}: first column is {cells[0]!r}; expected the number of a word ({layout.format})")
        if "-" in cells[0]:
            sentence.ranges.append((cells[0], word, space))
        return
    if not word:
        raise ValueError(f"{place}: empty word (column {layout.word})")
    sentence.numbers.append(number)
    sentence.ids.append(cells[0])
    sentence.words.append(word)
    sentence.spaces.append(space)
    if layout.tag is not None:
        sentence.tags.append(_tag(cells[layout.tag].strip(" "), layout.key))


_UNLABELLED = "; only data.test may have no labels, with data.test_labels=False"


def _check_width(place: str, cells: list[str], layout: ColumnLayout) -> None:
    if layout.width and len(cells) != layout.width:
        raise ValueError(f"{place}: line has {len(cells)} columns; expected {layout.width} as in the first line")
    asked = {layout.word, layout.word if layout.tag is None else layout.tag}
    needed = len(CONLLU) if layout.format == "conllu" else max(i + 1 if i >= 0 else -i for i in asked)
    if len({i % len(cells) for i in asked}) < len(asked):
        needed = max(needed, len(cells) + 1)  # the same column cannot hold both words and tags
    if len(cells) < needed:
        raise ValueError(
            f"{place}: line has {len(cells)} columns; expected at least {needed} ({layout.format})"
            + _UNLABELLED * (layout.tag is not None)
        )


def _tag(cell: str, key: str) -> str:
    """Returns the cell itself, or with a key the key's value in it ("_" where the cell does not have the key)."""
    if not key:
        return cell
    values = {name: value for name, _, value in (pair.partition("=") for pair in cell.split("|"))}
    return values.get(key, "_")

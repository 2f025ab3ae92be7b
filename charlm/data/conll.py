"""Reads tagged sentences in CoNLL columns, CoNLL-U and UNER's .iob2; writes predictions in conlleval's columns.

The task of tagging reads and writes its files here. Open it when tags are rejected or repaired; `conll_lines` has the
details of the columns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from charlm.core.durable import replacing
from charlm.core.nearest import ALIKE, did_you_mean
from charlm.data.conll_lines import CONLL_FORMATS, CONLLU, DOCUMENT, ColumnLayout, Sentence, settle, split_sentences
from charlm.data.examples import Skipped, TaggedExample, joined
from charlm.data.lines import numbered_lines
from charlm.data.tag_schemes import check_scheme, detect_scheme, is_iob, orphans, to_iob2

BROKEN = ("error", "repair")

_BOUNDARY = "-X-"  # conlleval takes this word for the end of a sentence
_LOST = "\ufffd"


def read_tagged(
    path: str,
    *,
    word: int | None = None,
    tag: int | str | None = "auto",
    scheme: str = "auto",
    format: str = "auto",
    comments: bool | None = None,
    tags: Sequence[str] | None = None,
    broken: str = "error",
    as_iob2: bool = False,
    skipped: Skipped | None = None,
) -> list[TaggedExample]:
    """Reads the sentences of a file, also gzipped; the characters of words are never changed.

    There are three formats:
      "columns": columns are separated by tabs when the first line with words contains one, else by spaces. Every line
        is a word, even one that begins with "#". Lines of -DOCSTART- separate sentences. If the first line is
        "# sent_enum = 1" (LinCE), such lines separate sentences and give their ids, and columns are separated by tabs.
      "conllu": ten columns. Ranges (3-4) and empty nodes (3.1) are not words. `spaces` come from SpaceAfter=No; inside
        a contraction there is a space where its words do not spell it (in "im" = "in dem", but not in "cannot").
      "iob2": UNER's columns id, word, tag, and more. `spaces` come from the comment "# text".
    In the last two, lines that begin with "#" are comments, and "# sent_id" gives the id (else it is file and line).
    "auto" decides by the first line of words: if its first column is an id, ten columns mean "conllu", and five mean
    "iob2" in a file that begins with a comment; everything else is "columns".

    Args:
      path: the file.
      word: number of the word column from 0; None: 0, in the other formats 1.
      tag: number of the tag column, negative from the end; in "conllu" also a name ("upos", "xpos" and so on) or a
        key as in "misc:CSID", "feats:Case" ("_" where a word does not have it); "auto": the last column, in "conllu"
        upos, in "iob2" 2; None: no tags are read.
      scheme: "iob1", "iob2", "iobes", "none", or "auto": detected over the whole file. In IOB2, I- must follow B- or
        I- of its type.
      format: one of the formats above, or "auto".
      comments: whether lines that begin with "#" are comments; None: by format.
      tags: the allowed tags; None: any.
      broken: what to do with an I- that opens an entity in IOB2: "error", or "repair" (it becomes B-, which conlleval
        reads the same; counted).
      as_iob2: whether to rewrite the tags as IOB2, whatever the scheme.
      skipped: counts repairs.

    Raises:
      ValueError: unreadable file, too few columns, empty word or tag, unknown tag, broken scheme, no sentence at all.
    """
    check_scheme(scheme)
    _check_choice("format", format, CONLL_FORMATS)
    _check_choice("broken", broken, BROKEN)
    lines = list(numbered_lines(path))
    layout = settle(path, lines, format, word, tag, comments)
    sentences = split_sentences(path, lines, layout)
    if not sentences:
        raise ValueError(f"{path}: no sentences")
    if layout.tag is not None:
        _check_tags(path, sentences, layout, tags)
        found = detect_scheme(sentence.tags for sentence in sentences) if scheme == "auto" else scheme
        _check_scheme(path, sentences, found, broken, skipped or Skipped())
        if as_iob2:
            _rewrite(sentences, found)
    return [_example(path, sentence, layout) for sentence in sentences]


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(known)}{did_you_mean(value, known, ALIKE)}")


def _rewrite(sentences: Iterable[Sentence], scheme: str) -> None:
    """Rewrites the tags of sentences from their scheme as IOB2."""
    for sentence in sentences:
        sentence.tags = to_iob2(sentence.tags, scheme)


def _check_tags(path: str, sentences: Sequence[Sentence], layout: ColumnLayout, known: Sequence[str] | None) -> None:
    seen: set[str] = set()
    allowed = None if known is None else set(known)
    for sentence in sentences:
        for number, tag in zip(sentence.numbers, sentence.tags, strict=True):
            if not tag:
                raise ValueError(f"{path}:{number}: empty tag (column {layout.tag})")
            if allowed is not None and tag not in allowed:
                some = ", ".join([*(known or ())][:20]) + (", ..." if len(allowed) > 20 else "")
                raise ValueError(
                    f"{path}:{number}: tag {tag!r}; expected one of {some}{did_you_mean(tag, [*allowed], ALIKE)}"
                )
            seen.add(tag)
    if layout.key and seen == {"_"}:
        raise ValueError(f"{path}: no word has the key {layout.key!r} in column {CONLLU[layout.tag or 0]}")


def _check_scheme(path: str, sentences: Sequence[Sentence], scheme: str, broken: str, skipped: Skipped) -> None:
    """Repairs or reports tags that break IOB2; in the other schemes only the form of the tags is checked."""
    if scheme == "none":
        return
    for sentence in sentences:
        for number, tag in zip(sentence.numbers, sentence.tags, strict=True):
            if not is_iob([tag]):
                raise ValueError(f"{path}:{number}: tag {tag!r}; expected O or a tag such as B-PER (scheme {scheme})")
        opening = orphans(sentence.tags) if scheme == "iob2" else []
        for i in opening:
            tag, place = sentence.tags[i], f"{path}:{sentence.numbers[i]}"
            if broken == "error":
                before = repr(sentence.tags[i - 1]) if i else "the beginning of the sentence"
                raise ValueError(
                    f"{place}: tag {tag!r} after {before} opens no entity in IOB2; expected {'B' + tag[1:]!r} "
                    '(broken="repair" reads it so)'
                )
            skipped.repair("I- that opens an entity, read as B-", place)
        for i in opening:
            sentence.tags[i] = "B" + sentence.tags[i][1:]


def _example(path: str, sentence: Sentence, layout: ColumnLayout) -> TaggedExample:
    first = sentence.numbers[0]
    spaces: list[bool] | None = None
    if layout.format == "conllu":
        spaces = _conllu_spaces(sentence)
    elif sentence.text:
        spaces = _spaces_in(sentence.text, sentence.words)
    return TaggedExample(
        sentence.id or f"{os.path.basename(path)}:{first}",
        f"{path}:{first}",
        tuple(sentence.words),
        tuple(sentence.tags) if layout.tag is not None else None,
        None if spaces is None else tuple(spaces),
    )


def _conllu_spaces(sentence: Sentence) -> list[bool]:
    """Returns whether a space follows each word; the words of a contraction replace its written form."""
    spaces, where = list(sentence.spaces), {name: i for i, name in enumerate(sentence.ids)}
    for name, form, space in sentence.ranges:
        first, last = (where.get(end) for end in name.split("-"))
        if first is None or last is None:
            continue
        apart = "".join(sentence.words[first : last + 1]) != form
        spaces[first:last] = [apart] * (last - first)
        spaces[last] = space
    return spaces


def _spaces_in(text: str, words: Sequence[str]) -> list[bool] | None:
    """Returns whether a space follows each word in the text; None when the text is not these words in a row."""
    spaces, position = [], 0
    for word in words:
        if not text.startswith(word, position):
            return None
        position += len(word)
        rest = text[position:].lstrip()
        spaces.append(len(rest) < len(text) - position or not rest)
        position = len(text) - len(rest)
    return spaces if position == len(text) else None


def write_conll(
    path: str,
    examples: Sequence[TaggedExample],
    predicted: Sequence[Sequence[str]],
    *,
    offsets: bool = False,
    separator: str | None = None,
) -> int:
    """Writes a line for each word (word, gold tag, predicted tag) in conlleval's format; the file is whole or absent.

    Args:
      path: file to write.
      examples: the sentences; without tags, "_" is written as the gold tag.
      predicted: the tags of each sentence.
      offsets: whether to add two columns after the word: its start and end in the sentence's text (`examples.joined`).
      separator: between columns; None: a space, as conlleval expects, or a tab when a word or tag contains a space
        (then run `conlleval -d '\\t'`).

    Returns:
      How many words had to be changed to keep their line. U+FFFD replaces an empty word, and a tab, line end or
      separator within a word; it is put before -DOCSTART- and -X-, which readers take for something else.

    Raises:
      ValueError: the numbers of predicted tags and words of a sentence differ, or a tag cannot be written.
    """
    if len(predicted) != len(examples):
        raise ValueError(f"{path}: expected tags of {len(examples)} sentences, got {len(predicted)}")
    if separator is None:
        pairs = zip(examples, predicted, strict=True)
        cells = (cell for example, tags in pairs for cell in (*example.words, *(example.tags or ()), *tags))
        separator = "\t" if any(" " in cell for cell in cells) else " "
    changed = 0
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        if examples and examples[0].words[:1] and examples[0].words[0].startswith("\ufeff"):
            file.write("\ufeff")  # readers take the first U+FEFF for the file's BOM
        for example, tags in zip(examples, predicted, strict=True):
            if len(tags) != len(example.words):
                counts = f"expected {len(example.words)} predicted tags, one a word, got {len(tags)}"
                raise ValueError(f"{path}: {example.place}: {counts}")
            words = [_writable(word, separator) for word in example.words]
            changed += sum(new != old for new, old in zip(words, example.words, strict=True))
            where = joined(example.words, example.spaces)[1]
            for i, word in enumerate(words):
                span = [str(where[i][0]), str(where[i][1])] if offsets else []
                gold = example.tags[i] if example.tags is not None else "_"
                row = [word, *span, gold, tags[i]]
                if any(not cell or _column(cell, separator) != cell for cell in row[1:]):
                    raise ValueError(f"{path}: {example.place}: tags {gold!r}, {tags[i]!r} do not fit in columns")
                file.write(separator.join(row) + "\n")
            file.write("\n")
    return changed


def _writable(word: str, separator: str) -> str:
    """Returns a word as one column that a reader takes for a word again."""
    word = _column(word, separator)
    return _LOST + word if word in ("", DOCUMENT, _BOUNDARY) else word


def _column(cell: str, separator: str) -> str:
    cell = cell.encode("utf-8", "replace").decode()  # replaces half a surrogate pair, which UTF-8 cannot hold
    for char in {"\t", "\n", "\r", separator}:
        cell = cell.replace(char, _LOST)
    return cell

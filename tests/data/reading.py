"""Helpers for tests of raw text and of encoded corpora: files to read, and what must be read from them."""

from __future__ import annotations

import numpy as np

from charlm.data.records import read_record
from charlm.data.sources import open_source
from charlm.text.chars import WordEncoder
from charlm.text.words import get_splitter


def texts(spec, **kwargs):
    """The documents of a corpus, and its source."""
    source = open_source(str(spec), **kwargs)
    return [text for part in source.parts for text in source.documents(part)], source


def quiet(*progress):
    """Stands in for the progress log."""


def never(*args, **kwargs):
    """Stands in for what must not happen."""
    raise AssertionError("this must not be called")


def records(encoded):
    """The records of a corpus, in order."""
    from array_record.python.array_record_module import ArrayRecordReader

    for path in encoded.paths:
        reader = ArrayRecordReader(path)
        yield from map(read_record, reader.read_all())
        reader.close()


def decoded_words(encoded):
    """The words of all records, as tuples of ids."""
    for record in records(encoded):
        yield from (tuple(ids) for ids in np.split(record.chars, np.cumsum(record.words)[:-1]))


def expected_words(texts, vocab, config):
    """The words of documents, as tuples of ids."""
    splitter = get_splitter("rules", "en")
    words = [text[start:end] for text in texts for start, end in splitter.spans(text)]
    encoder = WordEncoder(vocab, config.model.char_slots, config.text.normalize)
    lengths, ids = encoder.encode(words)
    return [tuple(word) for word in np.split(ids, np.cumsum(lengths)[:-1])]

"""Reads labelled texts as data of retrieval: queries look for their class, the mean of its texts' vectors.

    data = read_intents("train.tsv", "dev.tsv", "sentence", "label")
    classes_KD = centroids(texts_ND, data)

So retrieval measures a classifier by nearest centroid, which needs no training. Open it to change what a class is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from charlm.core.nearest import ALIKE, did_you_mean
from charlm.data.examples import Skipped, TextExample
from charlm.data.text_tables import read_texts
from charlm.evaluate_retrieval.data import RetrievalData

_CLASSES = 20  # names of classes that a message lists


def read_intents(train: str, dev: str, text: str, label: str) -> RetrievalData:
    """Returns the training texts as documents, with their classes, and the other texts as queries for their class.

    Args:
      train: file of the texts that make the classes, as `charlm.data.rows.read_rows` reads it.
      dev: file of the queries.
      text, label: their columns, by name, or by number where there is no header.

    Raises:
      ValueError: a file is damaged or has no such column or no texts, there is only one class, or a query's class has
        no training text.
    """
    known, asked = (_read(path, text, label) for path in (train, dev))
    classes = {example.id: str(example.label) for example in known}
    names = sorted(set(classes.values()))
    if len(names) == 1:
        raise ValueError(f"{train}: column {label!r}: expected at least two classes, got only {names[0]!r}")
    for example in asked:
        if example.label not in names:
            some = ", ".join(names[:_CLASSES]) + (", ..." if len(names) > _CLASSES else "")
            raise ValueError(
                f"{example.place}: column {label!r} has {str(example.label)[:80]!r}, which has no text in {train}; "
                f"expected one of {some}{did_you_mean(example.label, names, ALIKE)}"
            )
    return RetrievalData(
        {example.id: example.text for example in known},
        {example.id: example.text for example in asked},
        {example.id: {str(example.label): 1.0} for example in asked},
        classes,
    )


def _read(path: str, text: str, label: str) -> Sequence[TextExample]:
    skipped = Skipped()
    found = read_texts(path, text=text, label=label, skipped=skipped)
    if not found:
        raise ValueError(f"{path}: expected texts in column {text!r}, got only empty ones")
    skipped.log()
    return found


def centroids(texts_ND: np.ndarray, data: RetrievalData) -> np.ndarray:
    """Returns the vectors of the classes, float32 [K, D] in the order of `data.ranked`: unit means of their texts'.

    Args:
      texts_ND: unit vectors of the documents, in their order.
      data: has the classes of the documents.

    Raises:
      ValueError: the mean of a class is 0, so that it has no direction.
    """
    rows = {name: k for k, name in enumerate(data.ranked)}
    index_N = [rows[data.classes[document]] for document in data.documents]
    sums_KD = np.zeros((len(rows), texts_ND.shape[1]))  # float64: a class may have very many texts
    np.add.at(sums_KD, index_N, texts_ND)
    norms_K = np.linalg.norm(sums_KD, axis=1)
    if not norms_K.all():
        raise ValueError(f"the vectors of the class {data.ranked[int(norms_K.argmin())]!r} cancel each other out")
    return (sums_KD / norms_K[:, None]).astype(np.float32)

"""An index of texts: their vectors and texts in one folder, with the identity of the model that made them.

    write_index(folder, texts, vectors_ND, made_by, path)
    index = Index(folder)
    scores_QK, rows_QK = index.search(vectors_QD, top=10)

The search is exact, one product of matrices, or approximate by FAISS (extra `[search]`), whose graph lies in the
folder, too. Open it to change the files of an index.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from charlm.core import extras
from charlm.core.durable import remove_folder, replacing, write_bytes, write_json
from charlm.core.reading import LINE, loads, read_object, scaled
from charlm.core.types import Json
from charlm.core.version import __version__

ABOUT, VECTORS, TEXTS, OFFSETS, GRAPH = "index.json", "vectors.npy", "texts.jsonl", "offsets.npy", "hnsw.faiss"
KINDS = ("exact", "hnsw")
FORMAT = 1
LINKS = 32  # neighbours of a vector in the graph (Malkov and Yashunin, 2018, call it M)
BUILD, SEARCH = 200, 64  # candidates that are kept while the graph is built and searched
_ROWS = 1 << 16  # vectors that are multiplied at a time
_WHAT = "--kind=hnsw"


class WrongModel(ValueError):
    """Raised when an index is asked with vectors of another model than the one that made it."""


class Index:
    """An index on disk; its vectors are mapped into memory, and a text is read when it is asked for.

    Args:
      folder: a folder that `write_index` made.

    Attributes:
      made_by: `charlm.search.vectors.identity` of the model that made the vectors.
      model: the path that this model was loaded from.
      kind: one of `KINDS`.
      vectors_ND: float32, each of length 1.

    Raises:
      ValueError: files are missing or damaged, or FAISS is needed and not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        about = read_object(folder / ABOUT)
        if about.get("format") != FORMAT:
            raise ValueError(f"{folder / ABOUT}: format {about.get('format')!r}, expected {FORMAT}")
        self.made_by, self.model, self.kind = (_text(about, key, folder) for key in ("made_by", "model", "kind"))
        if self.kind not in KINDS:
            raise ValueError(f"{folder / ABOUT}: kind {self.kind!r}: expected one of {', '.join(KINDS)}")
        try:
            self.vectors_ND = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
            self._offsets = np.load(folder / OFFSETS, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"{folder} is a damaged index: {' '.join(str(error).split())}") from None
        shapes = (self.vectors_ND.ndim, self.vectors_ND.dtype, self._offsets.shape, self._offsets.dtype)
        if shapes != (2, np.float32, (len(self.vectors_ND) + 1,), np.int64) or len(self) != about.get("texts"):
            raise ValueError(f"{folder} is a damaged index: its files do not fit each other")
        self._graph = _read_graph(folder / GRAPH, self.vectors_ND.shape) if self.kind == "hnsw" else None

    def __len__(self) -> int:
        return len(self.vectors_ND)

    def check(self, made_by: str, model: str, same_space: bool = False) -> None:
        """Raises WrongModel unless this model made the index.

        Args:
          made_by: the identity of the model that embeds the queries.
          model: its path, for the message.
          same_space: accept another model, which makes vectors in the same space, such as a student.
        """
        if made_by != self.made_by and not same_space:
            raise WrongModel(
                f"{self.folder} was made by another model, {self.model}: {model} cannot query it; --same-space accepts "
                "a model that was trained to make vectors in its space"
            )

    def text(self, row: int) -> str:
        """Returns a text; ValueError if the file of texts is damaged."""
        start, end = int(self._offsets[row]), int(self._offsets[row + 1])
        try:
            if not 0 <= end - start <= scaled(LINE):
                raise ValueError(f"a text of {end - start} bytes")
            with open(self.folder / TEXTS, "rb") as file:
                file.seek(start)
                found: Json = loads(file.read(end - start))
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.folder / TEXTS}: text {row} is damaged: {error}") from None
        if not isinstance(found, str):
            raise ValueError(f"{self.folder / TEXTS}: text {row} is damaged: expected a string")
        return found

    def search(self, vectors_QD: np.ndarray, top: int, exact: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cosines [Q, K] of the texts nearest to each query, the nearest first, and their rows, int64.

        Args:
          vectors_QD: float32, each of length 1.
          top: the number of texts; K is at most that of the index.
          exact: whether to search exactly whatever the kind of the index.

        Raises:
          ValueError: the vectors have another width, or `top` is not positive.
        """
        if vectors_QD.ndim != 2 or vectors_QD.shape[1] != self.vectors_ND.shape[1] or top < 1:
            raise ValueError(
                f"queries {vectors_QD.shape}, top={top}: expected vectors of {self.vectors_ND.shape[1]} numbers and at "
                "least one result"
            )
        top = min(top, len(self))
        queries_QD = np.ascontiguousarray(vectors_QD, np.float32)
        if self._graph is None or exact:
            return self._exact(queries_QD, top)
        self._graph.hnsw.efSearch = max(SEARCH, top)
        scores_QK, rows_QK = self._graph.search(queries_QD, top)
        return scores_QK, rows_QK.astype(np.int64)

    def _exact(self, queries_QD: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
        scores = np.zeros((len(queries_QD), 0), np.float32)
        rows = np.zeros((len(queries_QD), 0), np.int64)
        for start in range(0, len(self), _ROWS):
            part_QN = queries_QD @ np.asarray(self.vectors_ND[start : start + _ROWS]).T
            numbers = np.broadcast_to(np.arange(start, start + part_QN.shape[1]), part_QN.shape)
            scores, rows = np.concatenate([scores, part_QN], axis=1), np.concatenate([rows, numbers], axis=1)
            if scores.shape[1] > top:
                kept = np.argpartition(-scores, top - 1, axis=1)[:, :top]
                scores, rows = np.take_along_axis(scores, kept, axis=1), np.take_along_axis(rows, kept, axis=1)
        order = np.lexsort((rows, -scores), axis=1)  # of equal scores the first text first
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


def write_index(
    folder: Path,
    texts: Sequence[str],
    vectors_ND: np.ndarray,
    made_by: str,
    model: str,
    kind: str = "exact",
    replace: bool = False,
) -> None:
    """Writes an index into a folder, whole or not at all.

    Args:
      folder: where it is to be.
      texts: the texts.
      vectors_ND: float32, their vectors, each of length 1.
      made_by: the identity of the model that made them.
      model: the path that this model was loaded from.
      kind: "exact", or "hnsw" for a graph of FAISS beside the vectors.
      replace: whether an index that lies there is replaced.

    Raises:
      ValueError: there are no texts, the folder exists and may not be replaced or is no index, the kind does not exist,
        or FAISS is needed and not installed.
      OSError: the folder cannot be written.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: expected one of {', '.join(KINDS)}")
    if not texts or len(texts) != len(vectors_ND):
        raise ValueError(f"{len(texts)} texts and {len(vectors_ND)} vectors: expected as many, at least one")
    check_free(folder, replace)
    graph = None if kind == "exact" else _graph_of(vectors_ND)
    with replacing(folder) as temporary:
        made = Path(temporary)
        made.mkdir(parents=True)
        lines = [json.dumps(text).encode() + b"\n" for text in texts]
        write_bytes(made / TEXTS, b"".join(lines))
        np.save(made / OFFSETS, np.cumsum([0, *map(len, lines)], dtype=np.int64))
        np.save(made / VECTORS, np.ascontiguousarray(vectors_ND, np.float32))
        if graph is not None:
            _faiss().write_index(graph, str(made / GRAPH))
        about = {"format": FORMAT, "charlm": __version__, "kind": kind, "made_by": made_by, "model": model}
        write_json(made / ABOUT, about | {"texts": len(texts), "width": int(vectors_ND.shape[1])})
        if folder.exists():
            remove_folder(folder)


def check_free(folder: Path, replace: bool) -> None:
    """Raises ValueError if something lies at a folder and may not be replaced by an index."""
    if not folder.exists():
        return
    if not replace:
        raise ValueError(f"{folder} exists already: --replace replaces an index there")
    if not (folder / ABOUT).is_file():
        raise ValueError(f"{folder} is no index ({ABOUT} is missing), so it is not replaced")


def check_installed() -> None:
    """Raises ValueError, saying how to install it, if FAISS is not installed."""
    extras.check(_WHAT, "faiss")


def _faiss() -> ModuleType:
    return extras.load(_WHAT, "faiss")


# FAISS has no types.
def _graph_of(vectors_ND: np.ndarray) -> Json:
    """Returns FAISS's graph of vectors, by inner products."""
    faiss = _faiss()
    graph = faiss.IndexHNSWFlat(vectors_ND.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = BUILD
    graph.add(np.ascontiguousarray(vectors_ND, np.float32))
    return graph


def _read_graph(path: Path, shape: tuple[int, ...]) -> Json:
    """Returns the graph in a file; ValueError if it is damaged or of other vectors."""
    faiss = _faiss()
    try:
        graph = faiss.read_index(str(path))
    except RuntimeError as error:
        raise ValueError(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(graph, faiss.IndexHNSWFlat) or (graph.ntotal, graph.d) != shape:
        raise ValueError(f"{path}: expected the graph of {shape[0]} vectors of {shape[1]} numbers")
    return graph


def _text(about: dict[str, Json], key: str, folder: Path) -> str:
    if not isinstance(about.get(key), str):
        raise ValueError(f"{folder / ABOUT}: expected a text {key!r}")
    return about[key]

"""Reads what retrieval is measured on: BEIR's layout of files, or SQuAD's questions with their paragraphs as documents.

    data = read_beir(Path("scifact"))
    data = read_squad_index(["dev-v1.1.json"])

BEIR (Thakur et al., 2021) has `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`. Open it to read another layout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from charlm.core.durable import replacing, write_text
from charlm.core.types import JsonObject
from charlm.data.lines import numbered_lines, parsed_json
from charlm.data.squad import read_squad

CORPUS, QUERIES, JUDGEMENTS = "corpus.jsonl", "queries.jsonl", "qrels"
_HEADER = ("query-id", "corpus-id", "score")


class RetrievalData(NamedTuple):
    """Documents, queries, and which documents are right for which query.

    Attributes:
      documents: texts by id; of a document with a title, the title is its beginning.
      queries: texts by id; each has a right document.
      relevant: for each query the relevance of what is ranked, by its name; only those above 0.
      classes: the class of each document, by id, where classes are ranked; empty: documents are.
    """

    documents: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, float]]
    classes: Mapping[str, str] = MappingProxyType({})

    @property
    def ranked(self) -> list[str]:
        """The names of what queries are compared with: the classes, sorted, or the ids of the documents."""
        return sorted(set(self.classes.values())) if self.classes else list(self.documents)

    def some(self, count: int, seed: int) -> RetrievalData:
        """Returns the data with `count` of the queries, drawn by a seed and in their order; 0 or too many: all."""
        if not 0 < count < len(self.queries):
            return self
        names = list(self.queries)
        chosen = np.sort(np.random.default_rng(seed).choice(len(names), count, replace=False))
        kept = [names[n] for n in chosen]
        return self._replace(
            queries={name: self.queries[name] for name in kept}, relevant={name: self.relevant[name] for name in kept}
        )


def read_beir(folder: Path, split: str = "test") -> RetrievalData:
    """Returns the data in a folder of BEIR's layout; its files may be gzipped (`corpus.jsonl.gz`).

    Queries without a right document in the split are left out.

    Raises:
      ValueError: a file is missing or damaged, an id is there twice, or a judgement names no document or query.
    """
    documents = {key: _joined(row) for key, row in _rows(_found(folder / CORPUS), ("text",))}
    queries = {key: row["text"] for key, row in _rows(_found(folder / QUERIES), ("text",))}
    path = _found(folder / JUDGEMENTS / f"{split}.tsv")
    relevant: dict[str, dict[str, float]] = {}
    for place, query, document, score in _judgements(path):
        for name, known, what in ((query, queries, QUERIES), (document, documents, CORPUS)):
            if name not in known:
                raise ValueError(f"{place}: {name[:80]!r} is not in {what}")
        if score > 0:
            relevant.setdefault(query, {})[document] = score
    if not relevant:
        raise ValueError(f"{path}: no query has a right document (a score above 0)")
    return RetrievalData(documents, {name: text for name, text in queries.items() if name in relevant}, relevant)


def read_squad_index(files: Sequence[str]) -> RetrievalData:
    """Returns the questions of SQuAD files as queries, and all their distinct paragraphs as documents.

    The right document of a question is its paragraph; questions that it does not answer count, too, since they are
    about it.

    Raises:
      ValueError: a file is damaged or an id is there twice.
    """
    names: dict[str, str] = {}
    queries: dict[str, str] = {}
    relevant: dict[str, dict[str, float]] = {}
    for file in files:
        for example in read_squad(file):
            if example.id in queries:
                raise ValueError(f"{file}: the id {example.id!r} is also that of a question of an earlier file")
            document = names.setdefault(example.context, f"paragraph{len(names):06d}")
            queries[example.id], relevant[example.id] = example.question, {document: 1.0}
    return RetrievalData({name: text for text, name in names.items()}, queries, relevant)


def write_beir(data: RetrievalData, folder: Path, split: str = "test") -> None:
    """Writes data in BEIR's layout into a new folder, whole or not at all.

    Raises:
      ValueError: the folder exists, or an id has a tab or line end.
    """
    if folder.exists():
        raise ValueError(f"{folder} exists already: expected a new folder")
    if odd := [name for name in (*data.documents, *data.queries) if any(char in name for char in "\t\r\n")]:
        raise ValueError(f"the id {odd[0]!r} has a tab or line end, which {JUDGEMENTS}/{split}.tsv cannot hold")
    with replacing(folder) as temporary:
        made = Path(temporary)
        (made / JUDGEMENTS).mkdir(parents=True)
        _write(made / CORPUS, [{"_id": key, "title": "", "text": text} for key, text in data.documents.items()])
        _write(made / QUERIES, [{"_id": key, "text": text} for key, text in data.queries.items()])
        lines = ["\t".join(_HEADER)]
        lines += [f"{q}\t{d}\t{score:g}" for q, found in data.relevant.items() for d, score in found.items()]
        write_text(made / JUDGEMENTS / f"{split}.tsv", "\n".join(lines) + "\n")


def _write(path: Path, rows: Sequence[JsonObject]) -> None:
    lines = (json.dumps(row) for row in rows)  # ASCII: halves of surrogate pairs have no UTF-8
    write_text(path, "".join(f"{line}\n" for line in lines))


def _found(path: Path) -> str:
    """Returns the file, or the gzipped one of its name."""
    packed = path.with_name(f"{path.name}.gz")
    if not path.is_file() and packed.is_file():
        return str(packed)
    if not path.is_file():
        raise ValueError(f"{path}: expected this file of BEIR's layout ({CORPUS}, {QUERIES}, {JUDGEMENTS}/SPLIT.tsv)")
    return str(path)


def _rows(path: str, texts: Sequence[str]) -> Iterator[tuple[str, JsonObject]]:
    """Yields id and object of each line of a file of JSON lines."""
    seen: set[str] = set()
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        row = parsed_json(line, place)
        if not isinstance(row, dict) or not isinstance(row.get("_id"), str | int):
            raise ValueError(f"{place}: expected an object with a text _id")
        for key in texts:
            if not isinstance(row.get(key), str):
                raise ValueError(f"{place}: expected a text {key!r}; keys: {', '.join(map(str, row))[:80]}")
        name = str(row["_id"])
        if name in seen:
            raise ValueError(f"{place}: the _id {name[:80]!r} is there twice")
        seen.add(name)
        yield name, row


def _joined(row: Mapping[str, object]) -> str:
    """Returns title and text of a document, as BEIR's own code joins them."""
    title = row.get("title")
    return f"{title} {row['text']}".strip() if isinstance(title, str) and title else str(row["text"])


def _judgements(path: str) -> Iterator[tuple[str, str, str, float]]:
    """Yields place, query, document and score of each line of a table of judgements, which has a header."""
    for number, line in numbered_lines(path):
        cells = line.split("\t")
        place = f"{path}:{number}"
        if number == 1 and cells[:1] == [_HEADER[0]]:
            continue
        if not line.strip():
            continue
        try:
            query, document, said = cells
            score = float(said)
        except ValueError:
            raise ValueError(
                f"{place}: expected query, document and a number between tabs, got {line[:80]!r}"
            ) from None
        if not math.isfinite(score):
            raise ValueError(f"{place}: the score {said[:40]} is not a finite number")
        yield place, query, document, score

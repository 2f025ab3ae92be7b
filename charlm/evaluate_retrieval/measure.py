"""Measures retrieval: embeds documents once and queries under every noise, with and without a spelling corrector.

`measure` returns what `report` writes. Open it to change what is compared or how the shown queries are chosen. The
search is exact: one product of the queries' vectors and the documents', or the classes'.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from charlm.api.model import Model, load
from charlm.core.kept_rows import kept_rows
from charlm.core.types import JsonObject
from charlm.evaluate_retrieval.data import RetrievalData, read_beir, read_squad_index
from charlm.evaluate_retrieval.intents import centroids, read_intents
from charlm.evaluate_retrieval.settings import RIVALS, WITH_WORDS, RetrievalSettings
from charlm.metrics import per_query_retrieval, score_of
from charlm.metrics.compare import Metric
from charlm.metrics.systems import Measured, comparisons_of, differing, in_turn, scores_of
from charlm.search.vectors import digest_of, identity, vectors_of
from charlm.text.defences import Defence, defence_of, parsed
from charlm.text.noise import Noiser
from charlm.text.noise.levels import Level, planned
from charlm.text.noise.misspellings import Misspellings

log = logging.getLogger("charlm")

FORMAT = 1
SHOWN = 10  # queries that the report shows with what each system finds
_AT_A_TIME = 256  # queries whose scores of all documents are in memory at once
_KIND = "ranking"
_OF_ROWS = {"accuracy": "recall@1"}  # what the rows' scores are called where a query has one right class


class System(NamedTuple):
    """A model, behind a spelling corrector or alone.

    Attributes:
      name: in the report.
      model: the model that embeds queries.
      spec: the corrector; "": none.
      documents_ND: unit vectors of the documents.
      ranked_KD: unit vectors of what is ranked: those of the documents, or of the classes.
      key: what its rows are known by: both models and the documents.
    """

    name: str
    model: Model
    spec: str
    documents_ND: np.ndarray
    ranked_KD: np.ndarray
    key: str


def measure(settings: RetrievalSettings) -> JsonObject:
    """Returns all numbers of a report, see `charlm.evaluate_retrieval.report.write_report`.

    Raises:
      ValueError: a setting, a file or a model is wrong.
      OSError: the folder of the report or the cache of vectors cannot be written.
    """
    levels, notes = planned(settings.noise, settings.misspellings)
    data = _read(settings).some(settings.queries, settings.query_seed)
    log.info("%d documents, %d queries", len(data.documents), len(data.queries))
    bench = Bench(settings, data)
    measured = bench.run(levels)
    return {
        "format": FORMAT,
        "settings": settings.to_dict(),
        "metric": settings.metric,
        "documents": len(data.documents),
        "classes": len(data.ranked) if data.classes else 0,
        "queries": len(data.queries),
        "systems": [
            {"name": one.name, "model": one.model.path, "defence": one.spec, "title": one.model.pretrained.title}
            for one in bench.systems
        ],
        "noise": [level.name for level in levels],
        "scores": list(scores_of(measured, {n: _metric(settings, n) for n in settings.scores}, settings.samples)),
        "comparisons": list(comparisons_of(measured, _metric(settings, settings.metric), settings.samples)),
        "shown": bench.shown(levels, measured),
        "notes": notes,
    }


def _read(settings: RetrievalSettings) -> RetrievalData:
    """Returns the data that the settings name."""
    if settings.intents:
        train, dev = settings.intents
        return read_intents(train, dev, settings.text, settings.label)
    return read_beir(Path(settings.beir), settings.split) if settings.beir else read_squad_index(settings.squad)


class Bench:
    """Documents, queries and systems.

    Args:
      settings: which they are.
      data: documents and queries.

    Attributes:
      systems: the systems, in the order of the report.
    """

    def __init__(self, settings: RetrievalSettings, data: RetrievalData) -> None:
        self._settings, self._data = settings, data
        self._texts = list(data.queries.values())
        self._ranked = data.ranked
        columns = {name: n for n, name in enumerate(self._ranked)}
        self._relevant = [{columns[d]: gain for d, gain in data.relevant[q].items()} for q in data.queries]
        # A document with the id of a query is that query, as in ArguAna, and BEIR's evaluation leaves it out.
        self._own = {} if data.classes else {n: columns[q] for n, q in enumerate(data.queries) if q in columns}
        own = [self._own] if self._own else []
        self._judged = json.dumps([*(sorted(found.items()) for found in self._relevant), *own])
        self._misspellings = Misspellings.read(settings.misspellings) if settings.misspellings else None
        self._chains = {spec: self._chain(spec) for spec in settings.defence}
        self.systems = list(self._systems())

    def _chain(self, spec: str) -> list[Defence]:
        texts = self._data.documents.values()
        parts = parsed(spec, RIVALS)
        return [WITH_WORDS[part](texts) if part in WITH_WORDS else defence_of(part, RIVALS) for part in parts]

    def _systems(self) -> Iterator[System]:
        shared = self._embedded(load(self._settings.documents)) if self._settings.documents else None
        for path in self._settings.models:
            model = load(path, batch_size=self._settings.batch_size)
            vectors_ND, ranked_KD, by = self._embedded(model) if shared is None else shared
            width = model.encode("a", normalize=True).shape[0]
            if width != vectors_ND.shape[1]:
                raise ValueError(f"{path} makes vectors of {width} numbers, the documents' have {vectors_ND.shape[1]}")
            key = digest_of([identity(model), by, self._settings.query_prompt, self._judged])
            behind = self._settings.defence if path in (self._settings.defended or self._settings.models) else ()
            for spec in ("", *behind):
                yield System(f"{path} behind {spec}" if spec else path, model, spec, vectors_ND, ranked_KD, key)

    def _embedded(self, model: Model) -> tuple[np.ndarray, np.ndarray, str]:
        """Returns the vectors of the documents and of what is ranked, and a digest of what made them."""
        texts, by = list(self._data.documents.values()), identity(model)
        prompt = self._settings.document_prompt or None
        vectors_ND = vectors_of(model, texts, by, prompt_name=prompt)
        if not self._data.classes:
            return vectors_ND, vectors_ND, digest_of([by, prompt or "", *texts])
        classes = [self._data.classes[name] for name in self._data.documents]
        return vectors_ND, centroids(vectors_ND, self._data), digest_of([by, prompt or "", *texts, *classes])

    def asked(self, level: Level, seed: int) -> list[str]:
        """Returns the queries under a noise."""
        if level.noise is None:
            return self._texts
        noiser = Noiser(level.noise, seed, self._misspellings)
        return [noiser.text(text, key=name).text for name, text in self._data.queries.items()]

    def corrected(self, texts: Sequence[str], spec: str) -> list[str]:
        """Returns queries as a corrector leaves them; "" changes nothing."""
        found = list(texts)
        for defence in self._chains.get(spec, ()):
            found = [defence.text(text, 0).text for text in found]
        return found

    def run(self, levels: Sequence[Level]) -> Measured:
        """Returns the rows of `per_query_retrieval` of every system under every noise."""
        by_seed: dict[tuple[str, str], list[np.ndarray]] = {}
        for level in levels:
            first = self._settings.first_seed
            seeds = range(first, first + self._settings.seeds) if level.noise else [first]
            for seed in seeds:
                texts = self.asked(level, seed)
                read = {spec: self.corrected(texts, spec) for spec in ("", *self._settings.defence)}
                for system in self.systems:
                    rows = self._rows(system, read[system.spec])
                    by_seed.setdefault((system.name, level.name), []).append(rows)
            for system in self.systems:
                sums_S = np.mean(by_seed[system.name, level.name], axis=0).sum(axis=0)
                (value,) = _metric(self._settings, self._settings.metric)(sums_S[None])
                log.info("%s, %s: %s %.3f", level.name, system.name, self._settings.metric, value)
        return Measured.of_seeds(by_seed)

    def _rows(self, system: System, texts: Sequence[str]) -> np.ndarray:
        """Returns a system's rows for queries as it reads them, from the folder of the report if they are there."""
        path = Path(self._settings.out) / "rows" / f"{digest_of([system.key, *texts])[:40]}.npy"
        shape = (len(texts), 5 + len(self._settings.recalls))
        return kept_rows(path, shape, lambda: self._ranked_rows(system, texts))

    def _ranked_rows(self, system: System, texts: Sequence[str]) -> np.ndarray:
        vectors_QD = self.embed(system, texts)
        parts, recalls = [], self._settings.recalls
        for start in range(0, len(texts), _AT_A_TIME):
            part = slice(start, start + _AT_A_TIME)
            scores_QK = self._scores(system, vectors_QD[part], start)
            parts.append(per_query_retrieval(self._relevant[part], scores_QK, recalls))
        return np.concatenate(parts)

    def _scores(self, system: System, vectors_QD: np.ndarray, start: int) -> np.ndarray:
        """Returns what is ranked for consecutive queries, [Q, K]; that with the id of a query comes last for it."""
        scores_QK = vectors_QD @ system.ranked_KD.T
        for q, row_K in enumerate(scores_QK, start):
            if (own := self._own.get(q)) is not None:
                row_K[own] = row_K.min() - 1
        return scores_QK

    def embed(self, system: System, texts: Sequence[str]) -> np.ndarray:
        """Returns the unit vectors of queries, float32 [Q, D]."""
        return system.model.encode(texts, normalize=True, prompt_name=self._settings.query_prompt or None)

    def shown(self, levels: Sequence[Level], measured: Measured) -> list[JsonObject]:
        """Returns queries with typos and what each system finds.

        They are taken from the noises in turn, each time the next query, in the order of the data, on which the systems
        differ in whether a right document comes first. With one system it is the next one on which it fails.
        """
        noisy = {level.name: level for level in levels if level.noise is not None}
        firsts = {name: [measured.by_seed[one.name, name][0][:, 1] == 1 for one in self.systems] for name in noisy}
        chosen = in_turn({name: differing(right) for name, right in firsts.items()}, SHOWN)
        return [self._entry(noisy[name], q) for name, q in chosen]

    def _entry(self, level: Level, q: int) -> JsonObject:
        asked = self.asked(level, self._settings.first_seed)[q]
        found = []
        for system in self.systems:
            (read,) = self.corrected([asked], system.spec)
            vector_D = self.embed(system, [read])[0]
            (scores_K,) = self._scores(system, vector_D[None], q)
            right = max(self._relevant[q], key=lambda n: scores_K[n])
            rank = int((scores_K > scores_K[right]).sum()) + 1
            first = self._first(system, self._ranked[int(scores_K.argmax())], vector_D)
            found.append({"system": system.name, "read": read, "rank": rank, **first})
        classes = [self._ranked[n] for n in self._relevant[q]] if self._data.classes else []
        return {"noise": level.name, "query": self._texts[q], "classes": classes, "asked": asked, "found": found}

    def _first(self, system: System, name: str, vector_D: np.ndarray) -> JsonObject:
        """Returns the text of a document; or a class, and the text of it that is nearest to a query."""
        documents = self._data.documents
        if not self._data.classes:
            return {"first": documents[name]}
        own = [n for n, document in enumerate(documents) if self._data.classes[document] == name]
        nearest = own[int((system.documents_ND[own] @ vector_D).argmax())]
        return {"first": name, "nearest": list(documents.values())[nearest]}


def _metric(settings: RetrievalSettings, name: str) -> Metric:
    """Returns a score of the report as a function of sums of rows."""
    return score_of(_KIND, _OF_ROWS.get(name, name), recall_at=settings.recalls)

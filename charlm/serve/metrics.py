"""Counts what the server does, in the text format of Prometheus. Open it to add a metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from charlm.serve.models import Served

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one server, apart from those of others in the process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter("charlm_requests", "Requests answered", ["path", "status"], registry=registry)
        self._seconds = Histogram(
            "charlm_request_seconds", "From the head of a request to the end of its response", ["path"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._texts = Counter("charlm_texts", "Texts computed", ["model", "ability"], registry=registry)
        self._batch_requests = Histogram(
            "charlm_batch_requests",
            "Requests in a batch",
            ["model", "ability"],
            buckets=BATCHES,
            registry=registry,
        )
        self._batch_seconds = Histogram(
            "charlm_batch_seconds", "Computing a batch", ["model", "ability"], buckets=SECONDS, registry=registry
        )
        self._waiting = Gauge("charlm_waiting_requests", "Requests that wait", registry=registry)
        self._ready = Gauge("charlm_ready", "1 from the end of the warm-up to the stop", registry=registry)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Counts a response; `path` is one that the server knows, or "other"."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def computed(self, model: str, ability: str, requests: int, texts: int, seconds: float) -> None:
        """Counts a batch."""
        self._texts.labels(model, ability).inc(texts)
        self._batch_requests.labels(model, ability).observe(requests)
        self._batch_seconds.labels(model, ability).observe(seconds)

    def add_caches(self, models: Iterable[Served]) -> None:
        """Adds the counts of the models' word caches."""
        self.registry.register(_Caches(list(models)))

    def text(self, waiting: int, ready: bool) -> bytes:
        """Returns all metrics in the format of `CONTENT_TYPE`."""
        self._waiting.set(waiting)
        self._ready.set(ready)
        return generate_latest(self.registry)


class _Caches(Collector):
    """Reads the counts of word caches when they are asked for."""

    def __init__(self, models: list[Served]) -> None:
        self._models = models

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        hits = CounterMetricFamily("charlm_word_cache_hits", "Distinct words that were there", labels=["model"])
        misses = CounterMetricFamily("charlm_word_cache_misses", "Distinct words that were not", labels=["model"])
        words = GaugeMetricFamily("charlm_word_cache_words", "Words that are kept", labels=["model"])
        for model in self._models:
            if (stats := model.cache_stats()) is not None:
                hits.add_metric([model.name], stats.hits)
                misses.add_metric([model.name], stats.misses)
                words.add_metric([model.name], stats.words)
        yield from (hits, misses, words)

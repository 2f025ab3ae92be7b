"""A model without weights for the server's tests, and a server around it, on loopback or called in the process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from charlm.api.results import Class, Encoding
from charlm.serve.app import Serving
from charlm.serve.limits import Limits
from charlm.serve.models import Served
from charlm.serve.running import address_of, bound, running


class Stub:
    """Stands for a model: it encodes and classifies, refuses texts with "refuse", and breaks down at "break".

    Attributes:
      calls: the texts of each call.
      gate: every call waits for it.
      entered: set when a call begins.
    """

    abilities = ("encode", "classify")
    task = ""
    labels = ()
    path = "runs/stub"
    pretrained = SimpleNamespace(title="Stub")
    predictor = SimpleNamespace(cache=None)

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.sizes: list[int] = []
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()

    def sized(self, batch_size: int) -> Stub:
        self.sizes.append(batch_size)
        return self

    def _called(self, texts: list[str]) -> None:
        self.calls.append(list(texts))
        self.entered.set()
        assert self.gate.wait(20)
        for text in texts:
            if "refuse" in text:
                raise ValueError("no text with such a word")
            if "break" in text:
                raise RuntimeError(f"secret {text}")

    def encode(self, texts: list[str], unit: str = "words") -> list[Encoding]:
        self._called(texts)
        words = [tuple(text.split()) for text in texts]
        place = lambda text, word: (text.find(word), text.find(word) + len(word))
        spans = [tuple(place(text, word) for word in w) for text, w in zip(texts, words, strict=True)]
        vectors = [np.full((len(w), 4), len(text), np.float32) for text, w in zip(texts, words, strict=True)]
        return [Encoding(*one, np.ones(4, np.float32)) for one in zip(words, spans, vectors, strict=True)]

    def classify(self, texts: list[str], pairs: list[str | None]) -> list[Class]:
        self._called(texts)
        return [Class(str(pair), 1.0, {str(pair): 1.0, "odd": float("nan")}) for pair in pairs]


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    yield made
    made.gate.set()


@contextlib.contextmanager
def server_of(model: Any, **limits: Any) -> Iterator[tuple[Serving, TestClient]]:
    """A server that is ready, called in the process."""
    bounds = Limits(**limits)
    serving = Serving([Served("stub", model, bounds)], bounds)
    serving.batchers.start()
    serving.ready = True
    try:
        with TestClient(serving.app()) as client:
            yield serving, client
    finally:
        if hasattr(model, "gate"):
            model.gate.set()
        serving.batchers.stop(20)


@contextlib.contextmanager
def server_on_loopback(model: Any, **limits: Any) -> Iterator[tuple[Serving, int]]:
    """A server that is ready, and its port."""
    bounds = Limits(**limits)
    serving, sock = Serving([Served("stub", model, bounds)], bounds), bound("127.0.0.1", 0)
    port = int(address_of(sock).rpartition(":")[2])
    with running(serving, sock):
        serving.batchers.start()
        serving.ready = True
        try:
            yield serving, port
        finally:
            model.gate.set()
            serving.batchers.stop(20)


def until(condition: Any, seconds: float = 10) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)

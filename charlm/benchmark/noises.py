"""The case `noises`: how many sentences a second one core puts each kind of noise into.

Open it to change the sentences, or what is timed.
"""

from __future__ import annotations

import time

import ml_collections

from charlm.benchmark.figures import Figure, spread
from charlm.benchmark.text import Corpus, TextShape
from charlm.text.noise import KINDS, Noise, Noiser
from charlm.text.noise.misspellings import Misspellings

SENTENCES = TextShape(256, 24)  # as many words as a sentence of news has


def list_of(file: str) -> Misspellings | None:
    """Returns the list of misspellings of a file, None for ""; raises ValueError if it cannot be read."""
    try:
        return Misspellings.read(file) if file else None
    except OSError as error:
        raise ValueError(f"--misspellings={file} cannot be read: {error.strerror}") from error


def noises(config: ml_collections.ConfigDict, repeats: int, misspellings: str = "") -> list[Figure]:
    """Returns the speed of every kind at its usual rate, in sentences per second of processor time.

    All kinds read the same sentences, one kind after the other in every round. Processor time is that of this process
    alone, so other work on the machine hardly changes the figures.

    Args:
      config: names the corpus.
      repeats: number of rounds.
      misspellings: file of a list, for the kinds that need one; "": these are left out.
    """
    sentences = Corpus(config).texts(SENTENCES)
    words = list_of(misspellings)
    kinds = [name for name, kind in KINDS.usable() if words is not None or not kind.listed]
    noisers = {name: Noiser(Noise.parse(name), 0, words) for name in kinds}
    seconds: dict[str, list[float]] = {name: [] for name in noisers}
    for noiser in noisers.values():
        noiser.text(sentences[0], 0)  # tables are built once
    for _ in range(repeats):
        for name, noiser in noisers.items():
            start = time.process_time()
            for number, sentence in enumerate(sentences):
                noiser.text(sentence, number)
            seconds[name].append(time.process_time() - start)
    figures = []
    for name, times in seconds.items():
        speeds = [len(sentences) / second for second in times]
        figure = {"case": "noises", "path": str(noisers[name].noise)} | spread(speeds, 0) | {"unit": "sentences/s"}
        figure |= {"batch": str(SENTENCES), "rounds": repeats}
        figures.append(figure | ({"misspellings": misspellings} if KINDS[name].listed else {}))
    return figures

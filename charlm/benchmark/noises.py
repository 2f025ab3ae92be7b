"""The case `noises`: how many sentences a second one core puts each kind of noise into.

Open it to change the sentences, or what is timed.
"""

from __future__ import annotations

import time

import ml_collections

from charlm.benchmark.figures import Figure, spread
from charlm.benchmark.text import Corpus, TextShape
from charlm.text.noise import KINDS, Noise, Noiser

SENTENCES = TextShape(256, 24)  # as many words as a sentence of news has


def noises(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """Returns the speed of every kind at its usual rate, in sentences per second of processor time.

    All kinds read the same sentences, one kind after the other in every round. Processor time is that of this process
    alone, so other work on the machine hardly changes the figures. Kinds that need a list of the user are left out.
    """
    sentences = Corpus(config).texts(SENTENCES)
    noisers = {name: Noiser(Noise.parse(name), 0) for name, kind in KINDS.usable() if not kind.listed}
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
        figures.append(figure | {"batch": str(SENTENCES), "rounds": repeats})
    return figures

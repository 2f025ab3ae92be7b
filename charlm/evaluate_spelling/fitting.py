"""Fits how a speller weighs the candidates of a correction, to sentences whose misspellings are known.

`python -m charlm.evaluate_spelling --fit` calls it. Open it to change which sentences are used.
"""

from __future__ import annotations

import logging
from pathlib import Path

from charlm.convert.files import new_folder
from charlm.core.stores import here
from charlm.evaluate_spelling.evaluation import further_words, kept_from_training, sets_of
from charlm.evaluate_spelling.settings import SpellingSettings
from charlm.families.corrections import Meant, write_weighing
from charlm.families.family import family
from charlm.families.pretrained import from_pretrained
from charlm.text.noise.mixture import parted

log = logging.getLogger("charlm")


def fit(settings: SpellingSettings) -> Path:
    """Writes a copy of the speller, with weights that fit the sentences, into `settings.out`; returns that folder.

    Listed misspellings are those of words that training kept apart, without those that an evaluation with the same
    `settings.heldout_words` is made of.

    Raises:
      ValueError: a file cannot be read, the model is no speller, the folder is not empty, or training kept no more
        words apart than evaluations take.
    """
    (path,) = settings.models
    model = from_pretrained(here(path))
    predictor = family(model.family).get_predictor().from_pretrained(model)
    predictor.require("correct")
    listed = None
    if settings.lists:
        kept, taken = kept_from_training(predictor), settings.heldout_words
        if kept <= taken:
            raise ValueError(
                f"--heldout-words={taken:g}: expected less than the {kept:g} of the words of its lists that {path} was "
                "not trained on, so that some are left to fit to"
            )
        listed = parted(settings.lists, kept, held_out=True, without=taken)
        if not listed:
            raise ValueError(
                f"--lists: none of their words is kept from training ({kept:g}) and from evaluations (--heldout-words="
                f"{taken:g}): expected longer lists, or a smaller --heldout-words"
            )
    with new_folder(settings.out, key="--out=") as folder:
        given: list[Meant] = []
        for name, about, examples in sets_of(settings, listed):
            log.info("%s: %s", name, about)
            given += [Meant(one.text, one.spans, one.meant) for one in examples]
        weighing = predictor.fit_corrections(given, settings.batch_size, words=further_words(settings))
        model.save_pretrained(folder)
        write_weighing(from_pretrained(folder).folder, weighing)
    return Path(settings.out)

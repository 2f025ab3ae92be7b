"""Makes a reader of an encoder: a copy with the file of a speller beside it (`charlm.text.speller`).

`charlm search speller` runs it. Open it to change which words a reader knows.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from charlm.convert.files import new_folder
from charlm.convert.heads import FINE_TUNED
from charlm.core import checksums
from charlm.core.stores import here
from charlm.core.trained import CARD, MODEL_CARD
from charlm.families.family import family
from charlm.families.pretrained import from_pretrained
from charlm.search.texts import read_texts
from charlm.text.noise.keyboards import keyboard_for
from charlm.text.speller.context import FILE as CONTEXT_FILE
from charlm.text.speller.context import read_context
from charlm.text.speller.files import FILE, StoredSpeller, counted, read_speller, write_speller
from charlm.text.speller.settings import SpellerSettings


def make_reader(
    model: str, output: str, texts: Sequence[str], settings: SpellerSettings, context: str | None = None
) -> str:
    """Writes a copy of a model that reads through a speller into a new folder; returns a line about it.

    Args:
      model: an encoder, as `charlm.load` takes it.
      output: the folder.
      texts: files of texts whose words the speller knows beside those of the model's table.
      settings: costs and limits of the speller.
      context: a folder with what `charlm search context` trained on this encoder; None: the model's own, if it has one.

    Raises:
      ValueError: there is no such model, folder or file, the model is none that can read so, or the folder exists.
    """
    keyboard_for(settings.language)
    pretrained = from_pretrained(here(model))
    if pretrained.head in FINE_TUNED or "task" in pretrained.metadata:
        raise ValueError(f"--model={model}: it predicts labels; expected a model that makes vectors of texts")
    beside = read_speller(pretrained.folder)
    if beside is not None and beside.words:
        raise ValueError(
            f"--model={model}: it has a speller already, which knows words of texts; expected the encoder that it was "
            "made of"
        )
    predictors = family(pretrained.family).get_predictor()
    weights = None if beside is None else beside.context
    if context is not None:
        place = Path(context)
        if not place.exists():
            raise ValueError(f"--context={context}: there is no such folder")
        weights = read_context(place.parent if place.name == CONTEXT_FILE else place)
        if weights is None:
            raise ValueError(f"--context={context}: no {CONTEXT_FILE} in it; charlm search context makes one")
    predictors.with_speller(pretrained, StoredSpeller({}, settings, weights))  # it says what does not fit, before texts
    read = [text for path in texts for text in read_texts("--texts", path)]
    words = counted(read, pretrained.tokenizer().normalized)
    if texts and not words:
        raise ValueError(f"--texts={' '.join(texts)}: no words in {len(read):,} texts")
    with new_folder(output) as folder:
        shutil.copytree(pretrained.folder, folder, dirs_exist_ok=True)
        write_speller(folder, StoredSpeller(words, settings, weights))
        if (folder / CARD).is_file():  # of a model that comes with charlm; it tells of that model, not of this one
            for name in (CARD, MODEL_CARD):
                (folder / name).unlink(missing_ok=True)
        if (folder / checksums.FILE).is_file():
            checksums.write(folder)
        predictors.from_pretrained(from_pretrained(folder))  # what cannot be read gets no name
    known = f", which knows {len(words):,} words of {len(read):,} texts, too" if read else ""
    around = "" if weights is None else " and reads words in context"
    return f"{output}: {model} behind a speller{known}{around} ({Path(output) / FILE})"

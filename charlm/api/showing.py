"""Where a model looks, from Python: `charlm.show(model, text)`.

It is the page of `python -m charlm.show`. Open it to change what a call takes.
"""

from __future__ import annotations

import os

from charlm.api.model import Model, load
from charlm.families.views import MOST_SHOWN
from charlm.show.shown import Shown


def show(model: Model | str | os.PathLike[str], text: str, most: int = MOST_SHOWN) -> Shown:
    """Returns the attention of a model that reads a text, inside words and between them; notebooks show it as a page.

    Args:
      model: what `charlm.load` or `charlm.finetune` returned, or what `charlm.load` takes.
      text: one text.
      most: words (or pieces) of it that are read and shown; the others are left out.

    Raises:
      ValueError: the model cannot be loaded or has nothing to show, the text has no words, or `most` is not positive.
    """
    return (model if isinstance(model, Model) else load(model)).show(text, most)

"""What answers a cloze test: models, alone or behind a spelling corrector, and the commonest word as the least of all.

Open it to change how a model is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from charlm.api.model import Model
from charlm.evaluate_cloze.questions import Asked

TOP = 5  # answers to a question that are looked at
COMMONEST = "the commonest word of that length"


class System(NamedTuple):
    """A model, alone or behind a corrector; or nothing that reads.

    Attributes:
      name: in the report.
      path: what the model was loaded from; "": there is none.
      model: the model that guesses; None: the first words of the list are said, whatever the question.
      spec: the corrector; "": none.
      key: what its answers are known by.
    """

    name: str
    path: str = ""
    model: Model | None = None
    spec: str = ""
    key: str = COMMONEST

    def answers(self, asked: Sequence[Asked], lengths: Sequence[int], words: Sequence[str]) -> list[list[str]]:
        """Returns the likeliest words for the gap of each text, best first.

        Args:
          asked: the texts.
          lengths: how many characters each word has.
          words: the words to choose from, the most frequent first; the model can write all of them.
        """
        if self.model is None:
            return [[word for word in words if len(word) == length][:TOP] for length in lengths]
        filled = self.model.fill_mask([one.text for one in asked], TOP, words=words)
        return [
            next([word.word for word in gap.words] for gap in gaps if gap.start == one.gap)
            for gaps, one in zip(filled, asked, strict=True)
        ]

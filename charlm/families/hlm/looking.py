"""Where an HLM looks: its attention over the characters of each word, and between words.

`HLMPredictor.views` calls it. Open it to change what is shown, or how it is explained.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from charlm.core.types import Params
from charlm.families.hlm.model import HLM
from charlm.families.views import AttentionMap, AttentionView, layers_of
from charlm.nn.probes import probed

WORD_SLOT = "[W]"  # how [WORD_CLS] is shown among the characters of a word
# Whether the vector of a word is the state of [WORD_CLS].
_ABOUT_INSIDE = {
    True: "How much the vector of a word, which is the state of [WORD_CLS], reads from each of its "
    f"characters; {WORD_SLOT} is [WORD_CLS] itself.",
    False: "How much the characters of a word, which are pooled to its vector, read from each other; "
    f"{WORD_SLOT} is [WORD_CLS].",
}


def probabilities(hlm: HLM, params: Params, chars_WC: jax.Array) -> tuple[list[jax.Array], list[jax.Array]]:
    """Returns the attention of one sentence inside its words, [W, H, Q, C] of each layer, and between them."""
    words_WD, inside = probed(hlm, params, chars_WC, method="encode_words")
    _, between = probed(hlm, params, words_WD[None], (chars_WC[:, 0] != 0)[None], method="contextualize")
    return inside["intra_word"], between["inter_word"]


def attention_views(
    words: Sequence[str],
    spelled: Sequence[str],
    chars_WC: np.ndarray,
    inside: list[np.ndarray],
    between: list[np.ndarray],
    of_word_cls: bool,
) -> tuple[AttentionView, AttentionView]:
    """Returns the attention inside words and between them.

    Args:
      words: the words of a sentence.
      spelled: the characters of each as the model reads them.
      chars_WC: the sentence with [CLS] and [SEP].
      inside, between: what `probabilities` returns for it.
      of_word_cls: whether the vector of a word is the state of [WORD_CLS], so that only its attention is shown.
    """

    def of_word(n: int) -> AttentionMap:
        slots = int((chars_WC[n + 1] != 0).sum())
        names = (WORD_SLOT, *spelled[n][: slots - 1])
        first, stop = (0, 1) if of_word_cls else (1, slots)
        readers = names[first:stop]
        return AttentionMap(readers, names, layers_of(inside, n + 1, slice(first, stop), slice(slots)), words[n])

    names, all_words = ("[CLS]", *words, "[SEP]"), slice(len(chars_WC))
    return (
        AttentionView("Inside words", _ABOUT_INSIDE[of_word_cls], tuple(map(of_word, range(len(words))))),
        AttentionView(
            "Between words",
            "How much each word reads from each other, through their vectors.",
            (AttentionMap(names, names, layers_of(between, 0, all_words, all_words)),),
        ),
    )

"""Config keys that several families have in pre-training: what they have in common is declared here, once.

Open it to add a key that the `keys` modules of two families would otherwise both declare. The `keys` module of a family
takes it from here, with `Key.but` where its default, its help or its rule differs. The keys that every family has are
in `charlm.config.pretraining`.
"""

from __future__ import annotations

from charlm.core.keys import Key, amount, count, natural, whole_share
from charlm.nn.choices import ACTIVATIONS, POSITIONS

# Text
TOKENIZER = Key("", "folder or file of the subwords; empty: those of init_from, else built from the corpora")
BERT_PIECES = 28_996  # subwords of BERT's cased vocabulary
PIECES = Key(BERT_PIECES, "subwords of a vocabulary that is built; BERT has as many")
CHAR_VOCAB = Key("", "file of the characters")
CHARS = count(1000, "entries of a character vocabulary that is built")

# Batches
MAX_LENGTH = Key(512, "subwords of a sequence, special ones included", least=8)
MASK_RATE = whole_share(0.15, "share of the words to predict")
NOISE_RATE = whole_share(0.5, "share of the words that get a typo")
BUCKET_SLOTS = Key((), "character slots of the length buckets, ascending; empty: measured")
BUCKET_ROWS = Key((), "distinct words per bucket, of a part of a micro-batch; empty: measured")

# The model. Sizes that are 0 or empty are those of the model that `init_from` names.
BACKBONE = Key("", "the kind of the transformer", ("", "bert", "roberta", "roformer"))
VOCAB_SIZE = natural(0, "rows of the table of subwords; 0: those of init_from, else as many as there are subwords")
MAX_POSITIONS = natural(0, "rows of the position table")
POSITION = Key("absolute", '"rotary" (Su et al., 2021): no table of positions, attention knows distances', POSITIONS)
ACTIVATION = Key("", '"gelu" (exact), "gelu_new" (by tanh) or "relu"', ("", *ACTIVATIONS))
EPSILON = amount(0.0, "of every LayerNorm")
LAYERS = count(12, "transformer layers")
FFN = count(3072, "feed-forward width")
CHAR_SLOTS = Key(20, "characters of the longest word; longer ones are cut")
CHAR_HIDDEN = count(256, "width of a character's embedding")
WINDOWS = Key((3, 4, 5), "tokens under each convolution")


def check_even_heads(said: str, hidden: int, heads: int) -> None:
    """Raises ValueError if heads have an odd width, which rotary positions cannot have: they turn pairs of columns.

    Args:
      said: the setting that makes positions rotary, such as "model.position=rotary".
    """
    if hidden // heads % 2:
        raise ValueError(
            f"{said} turns pairs of columns, but a head has {hidden // heads}: expected an even model.hidden / "
            f"model.heads, got {hidden} / {heads}"
        )

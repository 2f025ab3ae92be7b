"""A typo-proof encoder for vectors that exist: python -m charlm.main --config=configs/align.py:minilm \\
    --config.init_from=runs/c2s --config.data.train='text/*.txt.gz' --workdir=runs/align

The model of `init_from`, a Char2Subword after its approximation stage, learns to give noisy text the vectors that its
transformer gives the clean text. The transformer stays as it is, and it is the teacher, so vectors that it made before
stay comparable. Words that its tokenizer splits keep their pieces; a gate moves these towards the characters.

Variants: "" for a module of the base size; "minilm" for one of 2.8 M parameters, as in configs/char2subword_base.py;
"tiny" takes minutes with any small BERT. "hybrid" reads words as the paper does, without a gate. Join variants that
concern different things with a plus sign: minilm+hybrid.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant, or one of them would undo another.
    """
    config = defaults("char2subword")
    config.stage = "alignment"
    config.model.mode = "gated"
    config.data.max_length = 48
    return apply_variants(config, variant, VARIANTS, "configs/align.py", one_of=(SIZES,))


def minilm(config: ml_collections.ConfigDict) -> None:
    """Trains a module of 2.8 M parameters, for tables of some 30,000 rows."""
    config.model.hidden = 256
    config.model.heads = 4
    config.model.layers = 3
    config.model.dtype = "bfloat16"


def tiny(config: ml_collections.ConfigDict) -> None:
    """Trains a module of 0.5 M parameters in a short run, for a small BERT."""
    config.model.hidden = 128
    config.model.heads = 4
    config.model.layers = 2
    config.model.char_slots = 32
    config.alignment.batch_size = 16
    config.alignment.steps = 300
    config.alignment.warmup_steps = 30
    config.alignment.log_every = 20
    config.alignment.eval_every = 100
    config.alignment.eval_words = 200
    config.alignment.checkpoint_every = 100


def hybrid(config: ml_collections.ConfigDict) -> None:
    """Reads words that are entries as their rows and composes all others from characters alone (section 3.3)."""
    config.model.mode = "hybrid"


SIZES: dict[str, Variant] = {"minilm": minilm, "tiny": tiny}
VARIANTS: dict[str, Variant] = {**SIZES, "hybrid": hybrid}

"""CharacterBERT-Base (El Boukkouri et al., COLING 2020, arXiv 2010.10392).

    python -m charlm.main --config=configs/characterbert_base.py:tiny --workdir=runs/characterbert
    python -m charlm.main --config=configs/characterbert_base.py --config.data.train='wiki/*.txt.gz' \
        --workdir=runs/characterbert_base
    python -m charlm.main --config=configs/characterbert_base.py:long --config.data.train='wiki/*.txt.gz' \
        --config.init_from=runs/characterbert_base --workdir=runs/characterbert_long

Variants: "" is the first phase of the released pre-training, with 128 words; "long" is its second phase, with 512
words, which starts from the first; "tiny" learns on two CPU cores in a minute or two.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant, or one of them would undo another.
    """
    return apply_variants(
        defaults("characterbert"), variant, VARIANTS, "configs/characterbert_base.py", one_of=(("long", "tiny"),)
    )


def long(config: ml_collections.ConfigDict) -> None:
    """Sets the second phase: fewer and longer sequences."""
    config.data.max_length = 512
    config.data.batch_size = 4096
    config.data.accumulation = 128
    config.optim.learning_rate = 7e-5  # two thirds of the first phase's rate, as released
    config.optim.warmup_steps = 200
    config.train.steps = 1563


def tiny(config: ml_collections.ConfigDict) -> None:
    """A model of a million parameters for the built-in corpus: narrow and shallow, so that it learns in minutes."""
    config.text.splitter = "rules"
    config.text.mlm_words = 2000
    config.data.max_length = 32  # few positions, because their table begins as noise that is added to the words
    config.data.batch_size = 32
    config.data.accumulation = 1
    config.data.bucket_slots = (12, 24)
    config.model.hidden = 128
    config.model.heads = 4
    config.model.layers = 2
    config.model.ffn = 512
    config.model.max_positions = 32
    config.model.char_slots = 24
    config.model.windows = (1, 2, 3, 4, 5)
    config.model.filters = (16, 16, 32, 64, 64)
    config.model.highways = 1
    config.model.dropout = 0.0  # a few passes over the text leave no time to overfit
    config.model.attention_dropout = 0.0
    config.model.initializer = "lecun"
    config.optim.learning_rate = 2e-3
    config.optim.warmup_steps = 100
    config.optim.b2 = 0.98
    config.train.steps = 1000
    config.train.log_every = 100
    config.train.eval_every = 250
    config.train.checkpoint_every = 250


VARIANTS: dict[str, Variant] = {"long": long, "tiny": tiny}

"""An HLM that writes: each word, letter by letter, from the words before it. It needs no vocabulary of words.

    python -m charlm.main --config=configs/hlm_writer.py:tiny --workdir=runs/writer
    python -m charlm.predict generate --checkpoint=runs/writer --temperature=0.8 'The first of '
    python -m charlm.predict score --checkpoint=runs/writer --total-only 'Teh first of teh lines.'

Variants: "" has HLM-Base's sizes and the layers of configs/hlm_modern.py; "tiny" learns on two CPU cores in minutes.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant; ValueError when there is no such variant."""
    config = defaults()
    config.objective = "next_word"
    config.text.splitter = "rules"
    config.model.position = "rotary"
    config.model.norm_position = "pre"
    config.model.norm = "rms"
    config.model.feed_forward = "geglu"
    config.model.bias = False
    config.model.head_layers = 2
    return apply_variants(config, variant, VARIANTS, "configs/hlm_writer.py")


def tiny(config: ml_collections.ConfigDict) -> None:
    """The sizes and the learning of configs/hlm_base.py:tiny."""
    config.data.max_words = 64
    config.data.batch_size = 16
    config.data.bucket_slots = (4, 6, 9, 13, 20)  # the decoder computes every slot
    config.model.vocab_size = 256
    config.model.hidden = 128
    config.model.heads = 4
    config.model.intra_layers = 1
    config.model.inter_layers = 2
    config.model.intra_ffn = 256
    config.model.inter_ffn = 512
    config.model.position_buckets = 64
    config.model.max_relative_words = 64
    config.model.dropout = 0.0  # two passes over the text leave no time to overfit
    config.model.attention_dropout = 0.0
    config.model.initializer = "lecun"
    config.optim.learning_rate = 1e-3
    config.optim.warmup_steps = 100
    config.optim.b2 = 0.98
    config.train.steps = 1000
    config.train.log_every = 100
    config.train.eval_every = 250
    config.train.checkpoint_every = 250


VARIANTS: dict[str, Variant] = {"tiny": tiny}

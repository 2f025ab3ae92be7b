"""GPT-2 (Radford et al., 2019) from nothing: what an HLM that writes (configs/hlm_writer.py) is compared with.

    python -m charlm.main --config=configs/gpt2_base.py:tiny --workdir=runs/gpt2
    python -m charlm.predict generate --checkpoint=runs/gpt2 --temperature=0.8 'The first of'

Variants: "" is the smallest released size; "tiny" learns on two CPU cores in minutes, from the text of
configs/hlm_writer.py:tiny.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant; ValueError when there is no such variant."""
    return apply_variants(defaults("gpt2"), variant, VARIANTS, "configs/gpt2_base.py")


def tiny(config: ml_collections.ConfigDict) -> None:
    """About as many parameters as configs/hlm_writer.py:tiny, with half of them in the table of subwords."""
    config.text.pieces = 4000
    config.data.max_length = 96
    config.data.batch_size = 16
    config.model.hidden = 128
    config.model.heads = 4
    config.model.layers = 2
    config.model.ffn = 512
    config.model.max_positions = 96
    config.model.dropout = 0.0  # two passes over the text leave no time to overfit
    config.model.attention_dropout = 0.0
    config.model.embed_dropout = 0.0
    config.optim.learning_rate = 2e-3
    config.optim.warmup_steps = 100
    config.optim.b2 = 0.98
    config.train.steps = 760  # so many characters as configs/hlm_writer.py:tiny reads: 4.1 million
    config.train.log_every = 100
    config.train.eval_every = 250
    config.train.checkpoint_every = 250


VARIANTS: dict[str, Variant] = {"tiny": tiny}

"""A speller: an HLM that finds misspelled words and mends them from context, trained from a pre-trained one.

    python -m charlm.main --config=configs/speller.py --config.data.train='text/*.txt.gz' \\
        --config.spelling.lists=wikipedia.dat,codespell.txt --workdir=runs/speller
    python -m charlm.predict correct --checkpoint=runs/speller 'A tpyo in a sentense.'

It starts from the small English HLM that comes with charlm, whose shape it has; --config.init_from takes any HLM, whose
sizes then have to be set (--config.model.hidden and so on). Without lists of real misspellings it learns from noise.

Variants: "" as above; "tiny" takes minutes on the built-in text, without a pre-trained model.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant.
    """
    config = defaults()
    config.objective = "spelling"
    config.init_from = "hlm-small-en"
    config.text.splitter = "rules"
    config.data.max_words = 128
    config.data.batch_size = 16
    config.data.mask_rate = 0.2
    config.spelling.masked = 0.5
    config.model.vocab_size = 512
    config.model.hidden = 192
    config.model.heads = 3
    config.model.intra_layers = 2
    config.model.inter_layers = 4
    config.model.intra_ffn = 384
    config.model.inter_ffn = 768
    config.model.position_buckets = 64
    config.model.max_relative_words = 128
    config.model.dropout = 0.0  # misspellings are drawn anew every time
    config.model.attention_dropout = 0.0
    config.model.initializer = "lecun"
    config.optim.learning_rate = 6e-4
    config.optim.warmup_steps = 100
    config.optim.b2 = 0.98
    config.train.steps = 4000
    config.train.log_every = 25
    config.train.eval_every = 250
    config.train.eval_words = 20_000
    config.train.checkpoint_every = 100
    return apply_variants(config, variant, VARIANTS, "configs/speller.py")


def tiny(config: ml_collections.ConfigDict) -> None:
    """A small model from scratch, for a laptop."""
    config.init_from = ""
    config.data.max_words = 64
    config.model.hidden = 64
    config.model.heads = 2
    config.model.intra_layers = 1
    config.model.inter_layers = 1
    config.model.intra_ffn = 128
    config.model.inter_ffn = 128
    config.optim.learning_rate = 3e-3
    config.train.steps = 400
    config.train.log_every = 50
    config.train.eval_every = 200
    config.train.checkpoint_every = 200


VARIANTS: dict[str, Variant] = {"tiny": tiny}

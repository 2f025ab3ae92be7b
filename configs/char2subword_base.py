"""Char2Subword on mBERT (Aguilar et al., 2021, arXiv 2010.12730): python -m charlm.main \\
    --config=configs/char2subword_base.py --config.init_from=models/bert-base-multilingual-cased \\
    --config.data.train='wiki/*.txt.gz' --workdir=runs/c2s

One command runs the three stages: approximation, contextual pre-training, approximation again.

Variants: "" as in the paper; "approximation" runs the first stage alone; "no_noise" leaves spellings as they are;
"mean_square" reads L2 as a mean of squares; "minilm" trains a module of 2.8 M parameters for a table of 30,522 x 384 in
some twenty minutes on one CPU core; "tiny" takes minutes with any small BERT. The rows of Table 2 are "ce", "cos",
"l2", "nbr", "ce_cos", "ce_l2", "ce_cos_l2" and "ce_nbr"; its last row has all four losses, as have the other variants.
"speller" goes on with a module that knows its table: with much noise of many kinds, before configs/align.py.
Join variants that concern different things with a plus sign: minilm+no_noise+mean_square.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant, or one of them would undo another.
    """
    own = (*LOSSES, "speller")
    return apply_variants(
        defaults("char2subword"), variant, VARIANTS, "configs/char2subword_base.py", one_of=(SIZES, own)
    )


def minilm(config: ml_collections.ConfigDict) -> None:
    """Trains a module of 2.8 M parameters in the first stage alone, for tables of some 30,000 rows."""
    approximation(config)
    config.model.hidden = 256
    config.model.heads = 4
    config.model.layers = 3
    config.model.dtype = "bfloat16"
    config.data.batch_size = 128
    config.optim.learning_rate = 1e-3
    config.optim.warmup_steps = 550
    config.train.steps = 11_000
    config.train.log_every = 100
    config.train.eval_every = 1000
    config.train.checkpoint_every = 1000


def tiny(config: ml_collections.ConfigDict) -> None:
    """Trains a module of 0.5 M parameters in short stages, for a small BERT."""
    config.model.hidden = 128
    config.model.heads = 4
    config.model.layers = 2
    config.model.char_slots = 32
    config.data.batch_size = 64
    config.data.max_length = 64
    config.optim.learning_rate = 2e-3
    config.optim.warmup_steps = 90
    config.train.steps = 1800
    config.train.log_every = 100
    config.train.eval_every = 600
    config.train.eval_words = 1000
    config.train.checkpoint_every = 600
    config.contextual.steps = 200
    config.contextual.batch_size = 16
    config.contextual.accumulation = 1
    config.contextual.learning_rate = 5e-4
    config.contextual.warmup_steps = 20
    config.contextual.log_every = 20
    config.contextual.eval_every = 100
    config.contextual.checkpoint_every = 100


def approximation(config: ml_collections.ConfigDict) -> None:
    """Runs the first stage alone, in the workdir itself."""
    config.stage = "approximation"


def no_noise(config: ml_collections.ConfigDict) -> None:
    """Leaves spellings as they are."""
    config.data.noise_rate = 0.0


def mean_square(config: ml_collections.ConfigDict) -> None:
    """Reads L2 as a mean of squares."""
    config.loss.distance_of = "mean_square"


def speller(config: ml_collections.ConfigDict) -> None:
    """Learns which entry a misspelled word means; the first stage alone, from a module that has learned the table."""
    approximation(config)
    config.data.noise_rate = 0.85
    config.data.spelling_noise = (
        "charbert:1", "keyboard:0.3", "swap:0.3", "drop:0.3", "insert:0.3", "char2subword:1", "leet:0.4",
        "homoglyph:0.4", "keyboard:0.15", "drop:0.2", "charbert:1",
    )  # fmt: skip
    config.loss.cosine = 0.3
    config.loss.distance = 0.0
    config.loss.neighbours = 0.0
    config.optim.warmup_steps = 200


def _losses(*names: str) -> Variant:
    def only(config: ml_collections.ConfigDict) -> None:
        for name in ("cross_entropy", "cosine", "distance", "neighbours"):
            config.loss[name] = float(name in names)

    return only


SIZES: dict[str, Variant] = {"minilm": minilm, "tiny": tiny}
LOSSES: dict[str, Variant] = {  # Table 2, row by row
    "ce": _losses("cross_entropy"),
    "cos": _losses("cosine"),
    "l2": _losses("distance"),
    "nbr": _losses("neighbours"),
    "ce_cos": _losses("cross_entropy", "cosine"),
    "ce_l2": _losses("cross_entropy", "distance"),
    "ce_cos_l2": _losses("cross_entropy", "cosine", "distance"),
    "ce_nbr": _losses("cross_entropy", "neighbours"),
}
VARIANTS: dict[str, Variant] = {
    **SIZES,
    "approximation": approximation,
    "no_noise": no_noise,
    "mean_square": mean_square,
    "speller": speller,
    **LOSSES,
}

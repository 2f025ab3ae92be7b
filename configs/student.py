"""A typo-proof query side for vectors that exist, of any family: python -m charlm.align student \\
    --set init_from=runs/hlm teacher=MODEL data.train='text/*.txt.gz' --workdir runs/student

The student learns to give noisy text the vector that the teacher gives the clean text. It may be any model that charlm
reads; where its states have another width than the teacher's, a linear layer is learned behind them. configs/align.py
is the stage of a Char2Subword in front of the teacher itself, which starts as the teacher to the bit.

Variants: "" trains all of the student; "frozen" leaves its transformer as it is and trains what reads characters (of a
CharBERT, a Char2Subword or an XRayEmb); "tiny" takes minutes. Join variants with a plus sign: frozen+tiny.
"""

import ml_collections

from charlm.align.config import get_config as defaults
from charlm.config import Variant, apply_variants

COMMAND = "align"  # the command that reads this file


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant.
    """
    return apply_variants(defaults(), variant, VARIANTS, "configs/student.py")


def frozen(config: ml_collections.ConfigDict) -> None:
    """Leaves the subwords' table and the transformer as they are."""
    config.optim.freeze = (r"^(bert|gpt2)/|^charbert/(embed/|encoder/layer_)",)


def tiny(config: ml_collections.ConfigDict) -> None:
    """A short run."""
    config.data.batch_size = 16
    config.data.max_length = 48
    config.train.steps = 300
    config.train.log_every = 20
    config.train.eval_every = 100
    config.train.eval_words = 200
    config.train.checkpoint_every = 100
    config.optim.warmup_steps = 30


VARIANTS: dict[str, Variant] = {"frozen": frozen, "tiny": tiny}

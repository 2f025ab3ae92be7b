"""The word recogniser of Pruthi, Dhingra and Lipton (ACL 2019), a defence: python -m charlm.wordrec train \\
    wordrec --set data.train='wiki/*.txt.gz' --workdir runs/wordrec

Variants: "" as released (50 units, 9,999 words, a misspelling in every word of four characters or more); "mixed"
misspells half of these words, so that the recogniser has seen words as they should be, too; "tiny" learns on the
built-in text in a minute or two. Join variants with a plus sign: mixed+tiny.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.wordrec.config import get_config as defaults

COMMAND = "wordrec"  # the command that reads this file


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant.
    """
    return apply_variants(defaults(), variant, VARIANTS, "configs/wordrec.py")


def mixed(config: ml_collections.ConfigDict) -> None:
    """Misspells half of the words of four characters or more."""
    config.data.noise = ("charbert:0.5",)


def tiny(config: ml_collections.ConfigDict) -> None:
    """For the built-in text: fewer words, and a minute or two."""
    config.text.words = 2000
    config.optim.learning_rate = 5e-3
    config.train.steps = 1000
    config.train.log_every = 100
    config.train.eval_every = 500
    config.train.checkpoint_every = 500


VARIANTS: dict[str, Variant] = {"mixed": mixed, "tiny": tiny}

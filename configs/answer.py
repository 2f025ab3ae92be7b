"""Fine-tunes a model to answer questions by a span of their context (SQuAD 1.1 and 2.0).

    python -m charlm.main --config=configs/answer.py --workdir=runs/squad --config.init_from=runs/hlm \
        --config.data.train=train-v2.0.json --config.data.dev=dev-v2.0.json

Variants: "" as HLM was fine-tuned (section 4.1); "charbert" as in CharBERT's script; "tiny" for models of a million
parameters; and the setups of `charlm.families.xrayemb.setups`: "scaffolding", "stochastic", "no_suffix" and "frozen".
Join variants with a plus sign: tiny+stochastic.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config.finetuning import get_config as defaults
from charlm.families.xrayemb.setups import POLICY_SETUPS, SETUPS


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant, or one of them would undo another.
    """
    config = defaults("question_answering")
    config.optim.learning_rate = 3e-5
    config.train.epochs = 2
    return apply_variants(config, variant, VARIANTS, "configs/answer.py", one_of=(POLICY_SETUPS,))


def charbert(config: ml_collections.ConfigDict) -> None:
    """Sets the values of CharBERT's script."""
    config.optim.warmup_share = 0.0
    config.data.max_length = 384


def tiny(config: ml_collections.ConfigDict) -> None:
    """For a model of a million parameters."""
    config.optim.learning_rate = 1e-3


VARIANTS: dict[str, Variant] = {"charbert": charbert, "tiny": tiny, **SETUPS}

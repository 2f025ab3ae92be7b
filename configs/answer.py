"""Questions answered by a span of their context (SQuAD 1.1 and 2.0).

    python -m charlm.main --config=configs/answer.py --workdir=runs/squad --config.init_from=runs/hlm \
        --config.data.train=train-v2.0.json --config.data.dev=dev-v2.0.json

Variants: "" as HLM was fine-tuned (section 4.1); "charbert" as in CharBERT's script; "tiny" for models of a million
parameters.
"""

import ml_collections

from charlm.finetune.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant.

    Raises:
      ValueError: when there is no such variant.
    """
    config = defaults("question_answering")
    config.optim.learning_rate = 3e-5
    config.train.epochs = 2
    if variant == "charbert":
        config.optim.warmup_share = 0.0
        config.data.max_length = 384
    elif variant == "tiny":
        config.optim.learning_rate = 1e-3
    elif variant:
        raise ValueError(f"configs/answer.py has no variant {variant!r}; choose charbert or tiny")
    return config

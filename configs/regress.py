"""A number for every text or pair of texts, such as how alike two sentences are.

    python -m charlm.main --config=configs/regress.py --workdir=runs/sts --config.init_from=runs/hlm \
        --config.data.train=train.tsv --config.data.dev=dev.tsv --config.data.text=sentence1 \
        --config.data.pair=sentence2 --config.data.label=score

Variants: "" with the rates of HLM on GLUE (section 4.1); "tiny" for models of a million parameters.
"""

import ml_collections

from charlm.finetune.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant.

    Raises:
      ValueError: when there is no such variant.
    """
    config = defaults("regression")
    config.optim.learning_rate = 2e-5
    config.train.epochs = 5
    if variant == "tiny":
        config.optim.learning_rate = 1e-3
    elif variant:
        raise ValueError(f"configs/regress.py has no variant {variant!r}; choose tiny")
    return config

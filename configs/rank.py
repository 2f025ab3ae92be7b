"""Passages ranked by how well they answer a query (MS MARCO's layout).

    python -m charlm.main --config=configs/rank.py --workdir=runs/rank --config.init_from=runs/hlm \
        --config.data.train=train.jsonl.gz --config.data.dev=dev.jsonl.gz

Variants: "" as XRayEmb was fine-tuned (section 5); "tiny" for models of a million parameters.
"""

import ml_collections

from charlm.finetune.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant.

    Raises:
      ValueError: when there is no such variant.
    """
    config = defaults("ranking")
    config.data.group = "query_id"
    config.data.text = "query"
    config.data.pair = "passage_text"
    config.data.label = "is_selected"
    config.optim.learning_rate = 2e-5
    config.optim.head_learning_rate = 1e-3
    config.train.epochs = 3
    if variant == "tiny":
        config.optim.learning_rate = 1e-3
    elif variant:
        raise ValueError(f"configs/rank.py has no variant {variant!r}; choose tiny")
    return config

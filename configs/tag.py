"""A tag for every word: entities, parts of speech, languages.

    python -m charlm.main --config=configs/tag.py --workdir=runs/ner \
        --config.init_from=runs/hlm --config.data.train=train.conll --config.data.dev=dev.conll

Files: CoNLL columns, CoNLL-U (`--config.data.tag=upos`, `misc:CSID`), UNER's .iob2; .gz too. Variants: "" as HLM was
fine-tuned on NCBI-disease (section 4.3); "reference" as in HLM's released script; "charbert" (section 4.2) and
"xrayemb" as in those papers; "tiny" for models of a million parameters.
"""

import ml_collections

from charlm.finetune.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant.

    Raises:
      ValueError: when there is no such variant.
    """
    config = defaults("tagging")
    config.optim.learning_rate = 2e-5
    config.train.epochs = 20
    if variant == "reference":
        config.data.batch_size = 32
        config.optim.learning_rate = 1e-4
        config.train.epochs = 10
        config.model.label_head = "reference"
    elif variant == "charbert":
        config.optim.learning_rate = 3e-5
        config.optim.warmup_share = 0.0
        config.train.epochs = 3
    elif variant == "xrayemb":
        config.optim.head_learning_rate = 1e-3
        config.train.patience = 4
    elif variant == "tiny":
        config.optim.learning_rate = 1e-3
        config.train.epochs = 8
        config.train.patience = 2
    elif variant:
        raise ValueError(f"configs/tag.py has no variant {variant!r}; choose reference, charbert, xrayemb or tiny")
    return config

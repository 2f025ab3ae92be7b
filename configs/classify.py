"""A class for every text or pair of texts.

    python -m charlm.main --config=configs/classify.py --workdir=runs/mnli --config.init_from=runs/hlm \
        --config.data.train=train.tsv --config.data.dev=dev.tsv \
        --config.data.text=sentence1 --config.data.pair=sentence2

Files: tables (.tsv as GLUE has them, .csv, .jsonl, .parquet), .gz too, or tfds:NAME:SPLIT. Variants: "" as HLM was
fine-tuned on GLUE (section 4.1); "reference" as in HLM's released script; "charbert" and "xrayemb" as in those papers;
"novel_words" tells kinds of new words apart by cross-validation (NYTWIT); "tiny" for models of a million parameters.
"""

import ml_collections

from charlm.finetune.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant.

    Raises:
      ValueError: when there is no such variant.
    """
    config = defaults("classification")
    config.optim.learning_rate = 2e-5
    config.train.epochs = 5
    if variant == "reference":
        config.optim.learning_rate = 2.5e-5
        config.optim.warmup_share = 0.0
        config.model.label_head = "reference"
    elif variant == "charbert":
        config.optim.learning_rate = 3e-5
        config.optim.warmup_share = 0.0
        config.train.epochs = 8
    elif variant == "xrayemb":
        config.optim.head_learning_rate = 1e-3
        config.train.epochs = 3
        config.data.metric = "macro_f1"
    elif variant == "novel_words":
        config.optim.head_learning_rate = 1e-3
        config.data.text = "Word"
        config.data.label = "Category"
        config.data.skip_labels = ("filtered",)  # words that are none of the task's
        config.data.fold_column = "Fold"
    elif variant == "tiny":
        config.optim.learning_rate = 1e-3
        config.train.patience = 2
    elif variant:
        raise ValueError(
            f"configs/classify.py has no variant {variant!r}; choose reference, charbert, xrayemb, novel_words or tiny"
        )
    return config

"""Fine-tunes a model to predict a class for every text or pair of texts.

    python -m charlm.main --config=configs/classify.py --workdir=runs/mnli --config.init_from=runs/hlm \
        --config.data.train=train.tsv --config.data.dev=dev.tsv \
        --config.data.text=sentence1 --config.data.pair=sentence2

Files: tables (.tsv as GLUE has them, .csv, .jsonl, .parquet) and LinCE's sentiment data, also with .gz, or
tfds:NAME:SPLIT.

Variants: "" as HLM was fine-tuned on GLUE (section 4.1); "reference" as in HLM's released script; "charbert" and
"xrayemb" as in those papers; "lince_sa" for LinCE's sentiment (Char2Subword, section 4); "novel_words" classifies new
words by cross-validation (NYTWIT; novel_words+frozen as in XRayEmb's paper); "tiny" for models of a million parameters;
and the setups of `charlm.families.xrayemb.setups`: "scaffolding", "stochastic", "no_suffix" and "frozen". Join variants
with a plus sign: xrayemb+stochastic.
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
    config = defaults("classification")
    config.optim.learning_rate = 2e-5
    config.train.epochs = 5
    return apply_variants(config, variant, VARIANTS, "configs/classify.py", one_of=(RECIPES, POLICY_SETUPS))


def reference(config: ml_collections.ConfigDict) -> None:
    """Sets the values of the script released with HLM."""
    config.optim.learning_rate = 2.5e-5
    config.optim.warmup_share = 0.0
    config.model.label_head = "reference"


def charbert(config: ml_collections.ConfigDict) -> None:
    """Sets the values of CharBERT, section 4.1 (2 to 6 epochs); the warm-up is that of the released script."""
    config.optim.learning_rate = 3e-5
    config.optim.warmup_share = 0.0
    config.train.epochs = 6


def xrayemb(config: ml_collections.ConfigDict) -> None:
    """Sets the values of XRayEmb on emoji (section 4.2).

    The epoch is chosen by the score of XRayEmb's Table 5, micro F1: the accuracy. The released code took macro F1. The
    perceptron is for all families but HLM: `--config.model.label_head=` gives HLM its own head.
    """
    config.model.label_head = "perceptron"
    config.optim.head_learning_rate = 1e-3
    config.train.epochs = 3
    config.train.patience = 4
    config.data.metric = "accuracy"


def novel_words(config: ml_collections.ConfigDict) -> None:
    """Sets NYTWIT's columns and folds."""
    config.optim.head_learning_rate = 1e-3
    config.data.text = "Word"
    config.data.label = "Category"
    config.data.skip_labels = ("filtered",)  # words that do not belong to the task
    config.data.fold_column = "Fold"


def lince_sa(config: ml_collections.ConfigDict) -> None:
    """Reads LinCE's sentences with their class, and sets rates for small sets, which are ours.

    Char2Subword's weighted accuracy (Table 4) is taken to be the recall of the classes, weighted by their sizes. This
    is the accuracy.
    """
    config.data.text = "sentence"
    config.data.label = "label"
    config.data.id = "id"
    config.data.metric = "accuracy"
    config.optim.learning_rate = 5e-5
    config.train.epochs = 10
    config.train.patience = 3


def tiny(config: ml_collections.ConfigDict) -> None:
    """For a model of a million parameters."""
    config.optim.learning_rate = 1e-3
    config.train.patience = 2


RECIPES: dict[str, Variant] = {
    "reference": reference,
    "charbert": charbert,
    "xrayemb": xrayemb,
    "lince_sa": lince_sa,
}
VARIANTS = {**RECIPES, "novel_words": novel_words, "tiny": tiny, **SETUPS}

"""Fine-tunes a model to predict a tag for every word: entities, parts of speech, languages.

    python -m charlm.main --config=configs/tag.py --workdir=runs/ner \
        --config.init_from=runs/hlm --config.data.train=train.conll --config.data.dev=dev.conll

Files: CoNLL columns, CoNLL-U (`--config.data.tag=upos`, `misc:CSID`), UNER's .iob2; also with .gz.

Variants: "" as HLM was fine-tuned on NCBI-disease (section 4.3); "reference" as in HLM's released script; "charbert"
(section 4.1) and "xrayemb" as in those papers; "tiny" for models of a million parameters; and the setups of
`charlm.families.xrayemb.setups`: "scaffolding", "stochastic", "no_suffix" and "frozen". Join variants with a plus sign:
xrayemb+stochastic.
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
    config = defaults("tagging")
    config.optim.learning_rate = 2e-5
    config.train.epochs = 20
    return apply_variants(config, variant, VARIANTS, "configs/tag.py", one_of=(RECIPES, POLICY_SETUPS))


def reference(config: ml_collections.ConfigDict) -> None:
    """Sets the values of the script released with HLM."""
    config.data.batch_size = 32
    config.optim.learning_rate = 1e-4
    config.train.epochs = 10
    config.model.label_head = "reference"


def charbert(config: ml_collections.ConfigDict) -> None:
    """Sets the values of CharBERT, section 4.1."""
    config.optim.learning_rate = 3e-5
    config.optim.warmup_share = 0.0
    config.train.epochs = 3


def xrayemb(config: ml_collections.ConfigDict) -> None:
    """Sets the values of XRayEmb, section 4.2."""
    config.optim.head_learning_rate = 1e-3
    config.train.patience = 4


def tiny(config: ml_collections.ConfigDict) -> None:
    """For a model of a million parameters."""
    config.optim.learning_rate = 1e-3
    config.train.epochs = 8
    config.train.patience = 2


RECIPES: dict[str, Variant] = {"reference": reference, "charbert": charbert, "xrayemb": xrayemb}
VARIANTS = {**RECIPES, "tiny": tiny, **SETUPS}

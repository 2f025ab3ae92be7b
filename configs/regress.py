"""Fine-tunes a model to predict a number for every text or pair of texts, such as how alike two sentences are.

    python -m charlm.main --config=configs/regress.py --workdir=runs/sts --config.init_from=runs/hlm \
        --config.data.train=train.tsv --config.data.dev=dev.tsv --config.data.text=sentence1 \
        --config.data.pair=sentence2 --config.data.label=score

Variants: "" with the rates of HLM on GLUE (section 4.1); "tiny" for models of a million parameters; and the setups of
`charlm.families.xrayemb.setups`: "scaffolding", "stochastic", "no_suffix" and "frozen". Join variants with a plus sign:
tiny+stochastic.
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
    config = defaults("regression")
    config.optim.learning_rate = 2e-5
    config.train.epochs = 5
    return apply_variants(config, variant, VARIANTS, "configs/regress.py", one_of=(POLICY_SETUPS,))


def tiny(config: ml_collections.ConfigDict) -> None:
    """For a model of a million parameters."""
    config.optim.learning_rate = 1e-3


VARIANTS: dict[str, Variant] = {"tiny": tiny, **SETUPS}

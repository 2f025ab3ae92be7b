"""Fine-tunes a model to rank passages by how well they answer a query (MS MARCO's layout).

    python -m charlm.main --config=configs/rank.py --workdir=runs/rank --config.init_from=runs/hlm \
        --config.data.train=train.jsonl.gz --config.data.dev=dev.jsonl.gz

Variants: "" with the rates and epochs of XRayEmb (section 4.2) and any model's own head; "xrayemb" with its head, too,
for all families but HLM; "tiny" for models of a million parameters; and the setups of
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
    config = defaults("ranking")
    config.data.group = "query_id"
    config.data.text = "query"
    config.data.pair = "passage_text"
    config.data.label = "is_selected"
    config.optim.learning_rate = 2e-5
    config.optim.head_learning_rate = 1e-3
    config.train.epochs = 3
    return apply_variants(config, variant, VARIANTS, "configs/rank.py", one_of=(POLICY_SETUPS,))


def xrayemb(config: ml_collections.ConfigDict) -> None:
    """Sets the head and the patience of XRayEmb, section 4.2."""
    config.model.label_head = "perceptron"
    config.train.patience = 4


def tiny(config: ml_collections.ConfigDict) -> None:
    """For a model of a million parameters."""
    config.optim.learning_rate = 1e-3


VARIANTS: dict[str, Variant] = {"xrayemb": xrayemb, "tiny": tiny, **SETUPS}

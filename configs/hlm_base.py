"""HLM-Base (Sun et al., ACL 2023, section 3.5).

    python -m charlm.main --config=configs/hlm_base.py:tiny --workdir=runs/hlm
    python -m charlm.main --config=configs/hlm_base.py --config.data.train='corpus/*.txt.gz' --workdir=runs/hlm_base

Variants: "" as in the paper; "reference" as the released code; "tiny" learns on two CPU cores in minutes.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant, or one of them would undo another.
    """
    return apply_variants(defaults(), variant, VARIANTS, "configs/hlm_base.py")


def reference(config: ml_collections.ConfigDict) -> None:
    """Follows the released code where it differs from the paper."""
    config.text.splitter = "reference"
    config.text.char_vocab = "released"
    config.data.masking = "reference"
    config.data.max_words = 1024
    config.data.batch_size = 32
    config.model.wiring = "reference"
    config.model.max_relative_words = 1024
    config.model.initializer = "torch"
    config.train.steps = 4_000_000


def tiny(config: ml_collections.ConfigDict) -> None:
    """A model of a million parameters for the built-in corpus: narrow and shallow, so that it learns in minutes."""
    config.text.splitter = "rules"
    config.data.max_words = 64
    config.data.batch_size = 16
    config.data.bucket_slots = (7, 20)  # measuring would choose four: no faster, and twice as long to compile
    config.model.vocab_size = 256
    config.model.hidden = 128
    config.model.heads = 4
    config.model.intra_layers = 1
    config.model.inter_layers = 2
    config.model.intra_ffn = 256
    config.model.inter_ffn = 512
    config.model.position_buckets = 64
    config.model.max_relative_words = 64
    config.model.dropout = 0.0  # two passes over the text leave no time to overfit
    config.model.attention_dropout = 0.0
    config.model.initializer = "lecun"
    config.optim.learning_rate = 1e-3
    config.optim.warmup_steps = 100
    config.optim.b2 = 0.98
    config.train.steps = 1000
    config.train.log_every = 100
    config.train.eval_every = 250
    config.train.checkpoint_every = 250


VARIANTS: dict[str, Variant] = {"reference": reference, "tiny": tiny}

"""XRayEmb on BERT-base (Pinter et al., 2021, arXiv 2108.00391): python -m charlm.main \\
    --config=configs/xrayemb_base.py --config.init_from=models/bert-base-cased \\
    --config.data.train='tweets/*.txt.gz' --workdir=runs/xray

The paper's other base models, GPT-2 and RoBERTa, need no further setting: `init_from` decides what the backbone is.

Variants: "" as in the paper; "reference" as the released code where it differs; "no_loops" without cycles;
"language_only" without the losses of encoder and generator, and with words not joined (Table 6, and None+2pt of Table
5); "tiny" learns on a CPU core in minutes, from random parameters: a BERT, or with --config.model.backbone=roberta or
gpt2 one of those. Join variants with a plus sign: tiny+no_loops.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant, or one of them would undo another.
    """
    return apply_variants(defaults("xrayemb"), variant, VARIANTS, "configs/xrayemb_base.py")


def tiny(config: ml_collections.ConfigDict) -> None:
    """A backbone of a million parameters for the built-in corpus: narrow and shallow, so that it learns in minutes."""
    config.text.pieces = 4000
    config.text.chars = 120
    config.data.max_length = 64
    config.data.batch_size = 16
    config.data.generate_share = 0.5
    config.cycle.every = 1
    config.cycle.batches = "joined"
    config.cycle.words = 128
    config.cycle.vocabulary = 4000
    config.cycle.sampling = "sqrt"
    config.model.hidden = 128
    config.model.heads = 4
    config.model.layers = 2
    config.model.ffn = 512
    config.model.max_positions = 66  # RoBERTa leaves the first two unused
    config.model.char_embedding = 64
    config.model.char_hidden = 128
    config.model.generator_hidden = 128
    config.model.dropout = 0.0  # a few passes over the text leave no time to overfit
    config.model.attention_dropout = 0.0
    config.loss.reduction = "mean"  # the weights below go with means
    config.loss.difference = "mean_square"
    config.loss.generation = 1.0
    config.loss.cycle_words = 1.0
    config.optim.learning_rate = 2e-3
    config.optim.warmup_steps = 100
    config.optim.b2 = 0.98
    config.train.steps = 1500
    config.train.log_every = 50
    config.train.eval_every = 500
    config.train.eval_words = 10_000
    config.train.checkpoint_every = 500


def reference(config: ml_collections.ConfigDict) -> None:
    """Follows the released code where the paper chooses otherwise."""
    config.policy.learn = "stochastic:0.5"
    config.policy.generate = "masked"
    config.loss.detach = False
    config.loss.reduction = "mean"
    config.loss.difference = "mean_square"
    config.data.batch_size = 8
    config.model.char_embedding = 50
    config.model.char_hidden = 128
    config.model.generator_hidden = 128
    config.cycle.every = 3000
    config.cycle.vocabulary = 100_000


def no_loops(config: ml_collections.ConfigDict) -> None:
    """Leaves out the cycles (Table 6)."""
    config.loss.cycle_words = 0.0
    config.loss.cycle_sphere = 0.0


def language_only(config: ml_collections.ConfigDict) -> None:
    """Continues to train the base model with its own loss alone (None+2pt, section 4.2)."""
    no_loops(config)
    config.loss.embedding = 0.0
    config.loss.generation = 0.0
    config.policy.infer = "none"


VARIANTS: dict[str, Variant] = {
    "tiny": tiny,
    "reference": reference,
    "no_loops": no_loops,
    "language_only": language_only,
}

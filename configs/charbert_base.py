"""CharBERT on BERT-base (Ma et al., COLING 2020, arXiv 2011.01513): python -m charlm.main \\
    --config=configs/charbert_base.py --config.init_from=models/bert-base-cased \\
    --config.data.train='wiki/*.txt.gz' --workdir=runs/charbert

Variants: "" as in the paper; "roberta" on RoBERTa-base; "roformer" on a BERT with rotary positions (Su et al., 2021);
"reference" as the released code; "no_gru", "no_interaction" and "no_nlm" are the ablations of Table 4, and "advbert" is
its control; "tiny" learns on two CPU cores in minutes, from random parameters, and so do "tiny+no_gru",
"tiny+no_interaction", "tiny+no_nlm", "tiny+advbert" and "tiny+roformer".
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config import get_config as defaults


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant, or one of them would undo another.
    """
    backbones = (("roberta", "roformer"),)
    return apply_variants(defaults("charbert"), variant, VARIANTS, "configs/charbert_base.py", one_of=backbones)


def tiny(config: ml_collections.ConfigDict) -> None:
    """A model of two million parameters for the built-in corpus: narrow and shallow, so that it learns in minutes."""
    config.text.pieces = 4000
    config.text.terms = 4000
    config.text.chars = 200
    config.data.max_length = 64
    config.data.batch_size = 16
    config.model.hidden = 128
    config.model.heads = 4
    config.model.layers = 2
    config.model.ffn = 512
    config.model.max_positions = 64
    config.model.char_hidden = 64
    config.model.dropout = 0.0  # a few passes over the text leave no time to overfit
    config.model.attention_dropout = 0.0
    config.optim.learning_rate = 2e-3
    config.optim.warmup_steps = 100
    config.optim.b2 = 0.98
    config.train.steps = 800
    config.train.log_every = 100
    config.train.eval_every = 200
    config.train.checkpoint_every = 200


def roberta(config: ml_collections.ConfigDict) -> None:
    """Uses RoBERTa (section 4.1), whose released head has one LayerNorm for both predictions."""
    config.model.backbone = "roberta"
    if config.model.max_positions:
        config.model.max_positions += 2  # RoBERTa's first position has row 2
    config.model.shared_head_norm = True


def roformer(config: ml_collections.ConfigDict) -> None:
    """Uses RoFormer, a BERT whose attention knows distances in place of a table of positions."""
    config.model.backbone = "roformer"


def reference(config: ml_collections.ConfigDict) -> None:
    """Follows the released code where it differs from the paper."""
    config.data.masking = "reference"
    config.data.noise = "reference"
    config.data.noise_rate = 0.10
    config.data.batch_size = 8  # 4 on each of two GPUs
    config.model.fusion = "reference"
    config.model.compat_reference = True
    config.model.initializer = "bert"
    config.optim.learning_rate = 3e-5
    config.optim.warmup_steps = 0
    config.optim.weight_decay = 0.0


def no_gru(config: ml_collections.ConfigDict) -> None:
    """Replaces the GRU's states by the characters' embeddings (Table 4, w/o GRU)."""
    config.model.char_encoder = "embedding"
    config.model.char_hidden = config.model.hidden // 2


def no_interaction(config: ml_collections.ConfigDict) -> None:
    """Keeps the two channels apart (Table 4, w/o HI)."""
    config.model.fusion = "none"


def no_nlm(config: ml_collections.ConfigDict) -> None:
    """Predicts masked subwords from both channels and misspells nothing (Table 4, w/o NLM; section 4.6)."""
    config.model.nlm = False
    config.data.noise_rate = 0.0


def advbert(config: ml_collections.ConfigDict) -> None:
    """Trains a BERT on the same misspelled text (section 4.5)."""
    config.model.char_channel = False


VARIANTS: dict[str, Variant] = {
    "tiny": tiny,
    "roberta": roberta,
    "roformer": roformer,
    "reference": reference,
    "no_gru": no_gru,
    "no_interaction": no_interaction,
    "no_nlm": no_nlm,
    "advbert": advbert,
}

"""Configuration keys of CharacterBERT alone; those of every family: `charlm.config.pretraining`.

Sections are those of El Boukkouri et al., COLING 2020, arXiv 2010.10392; "released" is the authors' pre-training code.
"""

from __future__ import annotations

import ml_collections

CHOICES = {
    "data.masking": ("paper",),
    "model.activation": ("gelu", "gelu_new", "relu"),
}
POSITIVE = (
    "text.mlm_words",
    "data.max_length",
    "model.layers",
    "model.ffn",
    "model.max_positions",
    "model.char_hidden",
)
NOT_NEGATIVE = ("model.highways", "model.epsilon")
SHARES: tuple[str, ...] = ()
MEASURED = ("data.bucket_slots", "data.bucket_rows")
# A run knows its words by their content.
RESUMABLE = ("text.mlm_vocab",)
SET_BY: dict[str, dict[str, str]] = {}


def family_keys(config: ml_collections.ConfigDict) -> None:
    """Sets the keys of CharacterBERT, and of the shared ones those that its authors give another value."""
    text, data, model = config.text, config.data, config.model
    text.lowercase = True  # words are read lower-cased and without accents, as bert-base-uncased's
    text.mlm_vocab = ""  # file of the words to predict, one a line; empty: the most frequent ones of the corpora
    text.mlm_words = 100_000  # words to predict, where they are taken from the corpora (section 3)

    data.max_length = 128  # words of a sequence, special ones included (released, first phase)
    data.mask_rate = 0.15  # share of the words to predict (section 3)
    data.bucket_slots = ()  # character slots of the length buckets, ascending; empty: measured
    data.bucket_rows = ()  # distinct words per bucket, of a part of a micro-batch; empty: measured

    model.char_slots = 50  # bytes of the longest word, two marks included; longer ones are cut (ELMo's)
    model.char_hidden = 16  # width of a character's embedding
    model.windows = (1, 2, 3, 4, 5, 6, 7)  # characters under each kind of filters
    model.filters = (32, 32, 64, 128, 256, 512, 1024)  # filters of each kind
    model.highways = 2  # highway layers behind the filters
    model.layers = 12  # transformer layers
    model.ffn = 3072  # feed-forward width
    model.max_positions = 512  # rows of the position table
    model.activation = "gelu"  # "gelu" (exact), "gelu_new" (by tanh) or "relu"
    model.epsilon = 1e-12  # of every LayerNorm

    config.text.splitter = "reference"  # spaces and punctuation, near to BERT's basic tokenizer
    config.data.batch_size = 8192  # released, first phase
    config.data.accumulation = 64
    config.optim.learning_rate = 1e-4  # BERT's with Adam; the released 6e-3 are for LAMB
    config.optim.warmup_steps = 2001  # released, first phase: 0.2843 of all steps
    config.train.steps = 7038  # released, first phase
    config.train.eval_every = config.train.checkpoint_every = 500


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks values of CharacterBERT's keys; ValueError naming key, value and what is expected."""
    data, model = config.data, config.model
    if not 8 <= data.max_length <= model.max_positions:
        raise ValueError(
            f"data.max_length={data.max_length} must lie in [8, {model.max_positions}], model.max_positions"
        )
    if not model.windows or len(model.windows) != len(model.filters) or min(*model.windows, *model.filters) < 1:
        raise ValueError(
            f"model.windows={model.windows} and model.filters={model.filters} must name equally many positive numbers"
        )
    if not max(3, *model.windows) <= model.char_slots <= 1024:
        raise ValueError(f"model.char_slots={model.char_slots} must lie in [{max(3, *model.windows)}, 1024]")

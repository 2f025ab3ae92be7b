"""The configuration keys that only CharacterBERT has; the keys of all families are in `charlm.config.pretraining`.

Open it to add a key or to see which values are allowed. Sections refer to El Boukkouri et al., COLING 2020, arXiv
2010.10392; "released" is the authors' pre-training code.
"""

from __future__ import annotations

import ml_collections

from charlm.core.keys import Key, count, natural
from charlm.core.types import JsonObject
from charlm.families.shared_keys import (
    ACTIVATION,
    BUCKET_ROWS,
    BUCKET_SLOTS,
    CHAR_HIDDEN,
    CHAR_SLOTS,
    EPSILON,
    FFN,
    LAYERS,
    MASK_RATE,
    MAX_LENGTH,
    MAX_POSITIONS,
    POSITION,
    WINDOWS,
    check_even_heads,
)
from charlm.nn.choices import ACTIVATIONS

MEASURED = ("data.bucket_slots", "data.bucket_rows")
# A resumed run may change this path, since it compares the contents of the word lists.
RESUMABLE = ("text.mlm_vocab",)

KEYS: dict[str, Key] = {
    "text.lowercase": Key(True, "words are read lower-cased and without accents, as bert-base-uncased's"),
    "text.mlm_vocab": Key("", "file of the words to predict, one a line; empty: the most frequent ones of the corpora"),
    "text.mlm_words": count(100_000, "words to predict, where they are taken from the corpora (section 3)"),
    "data.max_length": MAX_LENGTH.but(128,
        "words of a sequence, special ones included (released, first phase)", least=1),
    "data.mask_rate": MASK_RATE.but(meaning="{} (section 3)"),
    "data.bucket_slots": BUCKET_SLOTS,
    "data.bucket_rows": BUCKET_ROWS,
    "model.char_slots": CHAR_SLOTS.but(50,
        "bytes of the longest word, two marks included; longer ones are cut (ELMo's)"),
    "model.char_hidden": CHAR_HIDDEN.but(16),
    "model.windows": WINDOWS.but((1, 2, 3, 4, 5, 6, 7), "characters under each kind of filters"),
    "model.filters": Key((32, 32, 64, 128, 256, 512, 1024), "filters of each kind"),
    "model.highways": natural(2, "highway layers behind the filters"),
    "model.layers": LAYERS,
    "model.ffn": FFN,
    "model.max_positions": MAX_POSITIONS.but(512, least=1),
    "model.position": POSITION.but(meaning='"absolute" as released; {}'),
    "model.activation": ACTIVATION.but("gelu", choices=ACTIVATIONS),
    "model.epsilon": EPSILON.but(1e-12),
}  # fmt: skip
VALUES: JsonObject = {  # CharacterBERT's defaults of shared keys
    "text.splitter": "reference",  # spaces and punctuation, close to BERT's basic tokenizer
    "data.batch_size": 8192,  # released, first phase
    "data.accumulation": 64,
    "optim.learning_rate": 1e-4,  # BERT's with Adam; the released 6e-3 is for LAMB
    "optim.warmup_steps": 2001,  # released, first phase: 0.2843 of all steps
    "train.steps": 7038,  # released, first phase
    "train.eval_every": 500,
    "train.checkpoint_every": 500,
}
CHOICES = {"data.masking": ("paper",)}  # of a shared key


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the values of CharacterBERT's keys; raises ValueError naming the key, its value and what is expected."""
    data, model = config.data, config.model
    if not 8 <= data.max_length <= model.max_positions:
        raise ValueError(
            f"data.max_length={data.max_length} must lie in [8, {model.max_positions}], model.max_positions"
        )
    if model.position == "rotary":
        check_even_heads("model.position=rotary", model.hidden, model.heads)
    if not model.windows or len(model.windows) != len(model.filters) or min(*model.windows, *model.filters) < 1:
        raise ValueError(
            f"model.windows={model.windows} and model.filters={model.filters} must name equally many positive numbers"
        )
    if not max(3, *model.windows) <= model.char_slots <= 1024:
        raise ValueError(f"model.char_slots={model.char_slots} must lie in [{max(3, *model.windows)}, 1024]")

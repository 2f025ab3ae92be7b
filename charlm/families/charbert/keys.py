"""The configuration keys that only CharBERT has; the keys of all families are in `charlm.config.pretraining`.

Open it to add a key or to see which values are allowed. Sections and equations refer to Ma et al., COLING 2020, arXiv
2011.01513.
"""

from __future__ import annotations

import ml_collections

from charlm.core.keys import Key, count, natural
from charlm.core.types import JsonObject
from charlm.families.fusions import FUSIONS
from charlm.families.shared_keys import (
    ACTIVATION,
    BACKBONE,
    CHAR_HIDDEN,
    CHAR_VOCAB,
    CHARS,
    EPSILON,
    FFN,
    LAYERS,
    MASK_RATE,
    MAX_LENGTH,
    MAX_POSITIONS,
    NOISE_RATE,
    PIECES,
    TOKENIZER,
    VOCAB_SIZE,
    WINDOWS,
    check_even_heads,
)

MEASURED = (
    "data.noised_budget", "model.backbone", "model.vocab_size", "model.max_positions", "model.activation",
    "model.epsilon",
)  # fmt: skip
# A resumed run may change these paths, since it compares the contents of vocabularies. Keys such as optim.freeze may
# not change, since they decide what is computed.
RESUMABLE = ("text.tokenizer", "text.char_vocab", "text.term_vocab")

KEYS: dict[str, Key] = {
    "text.tokenizer": TOKENIZER,
    "text.pieces": PIECES.but(
        meaning="subwords of a vocabulary that is built, cased WordPiece; BERT has as many", least=1),
    "text.char_vocab": CHAR_VOCAB.but(meaning="{}, one a line; empty: those of init_from, else built"),
    "text.chars": CHARS.but(meaning="{} (section 4.1)"),
    "text.term_vocab": Key("", "file of the words to predict, one a line; empty: those of init_from, else built"),
    "text.terms": count(30_001, "entries of a vocabulary of words that is built: 30K words (section 4.1) and <unk>"),
    "data.max_length": MAX_LENGTH.but(384, "{} (released code)"),
    "data.chars_per_piece": count(6, "character slots of a sequence for each of its subwords (released code)"),
    "data.mask_rate": MASK_RATE.but(0.10, "share of the subwords to predict, whole words without noise (section 4.1)"),
    "data.noise": Key("paper",
        '"paper": drop, add, swap inside (section 3.5); "reference": the released code\'s changes',
        ("paper", "reference")),
    "data.noise_rate": NOISE_RATE.but(0.15, "share of words misspelled (section 4.1; code: 0.10)", below=1),
    "data.noise_of": Key("all",
        '"paper": the share is one of "all" words (section 4.1), or of the "eligible", of two letters or more',
        ("all", "eligible")),
    "data.noised_budget": natural(0,
        "most subwords of misspelled words in a part of a micro-batch; 0: measured on the corpus"),
    "model.backbone": BACKBONE.but(
        meaning='"bert", "roberta" or "roformer": its positions and segments; empty: init_from\'s, else bert'),
    "model.activation": ACTIVATION.but(meaning="{}; empty: init_from's, else gelu"),
    "model.epsilon": EPSILON.but(meaning="{}; 0: init_from's, else 1e-12 (bert, roformer) or 1e-5 (roberta)"),
    "model.vocab_size": VOCAB_SIZE,
    "model.max_positions": MAX_POSITIONS.but(
        meaning="{}; 0: those of init_from, else as many as the backbone has"),
    "model.layers": LAYERS.but(meaning="{}, each over both channels"),
    "model.ffn": FFN,
    "model.char_channel": Key(True, "False: AdvBERT, a BERT that learns from the same noised text (section 4.5)"),
    "model.char_hidden": CHAR_HIDDEN.but(meaning="{} (released code)"),
    "model.char_encoder": Key("gru",
        '"gru" (section 3.3) or "embedding" (Table 4, w/o GRU; char_hidden half of hidden)', ("gru", "embedding")),
    "model.fusion": Key("paper",
        'where the channels meet: "paper", "reference", "none", or one of the fusions below', FUSIONS),
    "model.shared_fusion": Key(True, "all layers share one fusion, as the 5 M parameters of section 4.1 imply"),
    "model.windows": WINDOWS.but((3,), "{} of the fusion (released code; the paper gives none)"),
    "model.nlm": Key(True, "predict misspelled words (section 3.5); False: MLM reads both channels (Table 4, w/o NLM)"),
    "model.shared_head_norm": Key(False, "both prediction heads have one LayerNorm (released code on RoBERTa)"),
    "model.compat_reference": Key(False, 'padding and "#" as in the released code, for its weights and numbers'),
}  # fmt: skip
VALUES: JsonObject = {  # CharBERT's defaults of shared keys
    "text.splitter": "rules",  # close to the NLTK words of the released code
    "data.batch_size": 32,
    "optim.warmup_steps": 10_000,  # BERT's, as its weight decay: section 4.1 takes the backbone's settings; code: 0
    "train.steps": 320_000,
}
# What runs did that do not state a key, because they were saved before it existed, or with another default.
UNSTATED: JsonObject = {"model.shared_fusion": False, "data.noise_of": "eligible"}


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the values of CharBERT's keys; raises ValueError naming the key, its value and what is expected."""
    text, data, model = config.text, config.data, config.model
    if text.pieces < 10 or text.chars < 3 or text.terms < 2:
        raise ValueError(
            f"text.pieces={text.pieces}, text.chars={text.chars}, text.terms={text.terms} must be at least 10, 3 and 2"
        )
    if model.backbone == "roformer":
        check_even_heads("model.backbone=roformer", model.hidden, model.heads)
    if data.chars_per_piece < 2:
        raise ValueError(f"data.chars_per_piece={data.chars_per_piece} must be at least 2: a character and a gap")
    if not model.char_channel and not model.nlm:
        raise ValueError("model.nlm=False is of the character channel, but model.char_channel=False has none")
    if model.char_channel and model.nlm and not data.noise_rate:
        raise ValueError("data.noise_rate=0 leaves nothing for model.nlm=True to predict; set model.nlm=False")
    if not all(isinstance(size, int) and size > 0 for size in model.windows) or not model.windows:
        raise ValueError(f"model.windows={model.windows} must name positive numbers of tokens")
    if FUSIONS[model.fusion].one_window and len(model.windows) > 1:
        raise ValueError(f"model.windows={model.windows}, but model.fusion={model.fusion} has one window, such as (3,)")
    if model.char_encoder == "embedding" and model.char_channel and 2 * model.char_hidden != model.hidden:
        raise ValueError(
            f"model.char_hidden={model.char_hidden}, but model.char_encoder=embedding needs half of "
            f"model.hidden={model.hidden}"
        )

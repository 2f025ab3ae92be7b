"""Configuration keys that only XRayEmb has; `charlm.config.pretraining` has the keys of every family.

Open it to add a key or to see which values are allowed. Sections, tables and footnotes refer to Pinter et al., Findings
of EMNLP 2021, arXiv 2108.00391. Values that the paper does not give are those of the released code if it has them, else
ours.

One optimizer serves the whole run, also the steps of the cycles, which count among `train.steps`. The released code has
two mistakes that are not reproduced: it uses a second optimizer for the cycles, whose learning rate falls to 0 half-way
through the run, and it never updates biases and LayerNorms.
"""

from __future__ import annotations

import ml_collections

from charlm.core.keys import Key, amount, count, natural, share
from charlm.core.types import JsonObject
from charlm.families.shared_keys import (
    ACTIVATION,
    BACKBONE,
    BUCKET_ROWS,
    BUCKET_SLOTS,
    CHAR_HIDDEN,
    CHAR_SLOTS,
    CHARS,
    EPSILON,
    FFN,
    LAYERS,
    MASK_RATE,
    MAX_LENGTH,
    MAX_POSITIONS,
    PIECES,
    TOKENIZER,
    VOCAB_SIZE,
    check_even_heads,
)
from charlm.families.subword.kinds import SUBWORDS
from charlm.families.xrayemb.policies import get_policy
from charlm.nn.choices import INITIALIZERS

ALL, MASKED = "all", "masked"  # the values of `policy.generate`
MEASURED = (
    "cycle.slots", "cycle.rows",
    "data.bucket_slots", "data.bucket_rows", "data.learned_words", "data.written_slots", "data.written_rows",
    "model.activation", "model.backbone", "model.epsilon", "model.max_positions", "model.vocab_size",
)  # fmt: skip
RESUMABLE = ("text.tokenizer",)  # may change on resuming: a run compares its subwords by content
LOSSES = ("language", "embedding", "generation", "cycle_words", "cycle_sphere")  # each has a weight, `loss.NAME`

KEYS: dict[str, Key] = {
    "text.tokenizer": TOKENIZER,
    "text.pieces": PIECES,
    "text.chars": CHARS.but(0,
        "most characters of the encoder and generator, the most frequent ones; 0: all of the corpora", least=0),
    "data.max_length": MAX_LENGTH.but(
        meaning="subwords of a sequence before words are joined, special ones included (released code)"),
    "data.mask_rate": MASK_RATE.but(
        meaning="BERT, RoBERTa: share of the subwords to predict; words that are spelled are never among them"),
    "data.generate_share": Key(1.0, "share of the positions of `policy.generate` that a step generates"),
    "data.bucket_slots": BUCKET_SLOTS.but(
        meaning="character slots of the length buckets of spelled words, ascending; empty: measured"),
    "data.bucket_rows": BUCKET_ROWS.but(
        meaning="distinct spelled words per bucket of a part of a micro-batch; empty: measured"),
    "data.learned_words": natural(0, "most words of a part of a micro-batch whose vectors are learned; 0: measured"),
    "data.written_slots": BUCKET_SLOTS.but(
        meaning="character slots of the length buckets of generated words, ascending; empty: measured"),
    "data.written_rows": BUCKET_ROWS.but(
        meaning="generated words per bucket of a part of a micro-batch; empty: measured"),
    "model.backbone": BACKBONE.but(
        meaning='"bert", "roberta", "roformer" or "gpt2"; empty: that of init_from, else of text.tokenizer, else bert',
        choices=("", *SUBWORDS)),
    "model.activation": ACTIVATION.but(meaning="{}; empty: the backbone's"),
    "model.epsilon": EPSILON.but(meaning="{}; 0: the backbone's"),
    "model.vocab_size": VOCAB_SIZE,
    "model.max_positions": MAX_POSITIONS.but(meaning="{}; 0: the backbone's"),
    "model.layers": LAYERS.but(meaning="of the backbone"),
    "model.ffn": FFN.but(meaning="{} of the backbone"),
    "model.encoder": Key("conv",
        'XR-Enc: "conv" (section 4), "lstm" or "transformer"', ("conv", "lstm", "transformer")),
    "model.char_slots": CHAR_SLOTS.but(22,
        "characters of the longest word, both <e> included; longer ones are cut (released code)"),
    "model.char_embedding": count(200, "width of the tables of characters (section 4.2)"),
    "model.char_dropout": share(0.0,
        "of XR-Enc: of its Transformer's states, else of what its projections read; -1: the authors'").but(
        -1.0, minus_one="the authors'"),
    "model.char_initializer": Key("", "of XR-Enc's tables and projections; empty: the authors'", ("", *INITIALIZERS)),
    "model.char_hidden": CHAR_HIDDEN.but(0,
        "filters of each width (256, section 4.2), units of an LSTM, width; 0: the authors'", least=0),
    "model.encoder_layers": natural(0, "of an LSTM or transformer; 0: the authors'"),
    "model.projections": natural(0, "layers that make the vector; 0: the authors'"),
    "model.generator_hidden": count(256, "units of XR-Dec (not given; the encoder's)"),
    "model.generator_layers": count(2, "LSTM layers of XR-Dec (released code)"),
    "train.sample_words": natural(8,
        "words generated from points of the sphere, shown at evaluations (Table 4); 0: none"),
    "policy.learn": Key("stochastic:0.15",
        "words whose vectors are learned: charlm.families.xrayemb.policies (section 4; code: 0.5)"),
    "policy.infer": Key("all_multi", "words that the model reads spelled, one position each (section 4)"),
    "policy.generate": Key(ALL,
        '"all": every position (section 4); "masked": masked subwords alone (code\'s default)', (ALL, MASKED)),
    "loss.language": amount(1.0,
        "weight (0: left out, of all five): masked subwords, GPT-2: the next subword (section 2.1)"),
    "loss.embedding": amount(0.25, "distance of encoder from table (section 2.1; weights: released code)"),
    "loss.generation": amount(0.25, "cross entropy of the characters of every word, from its state (section 2.1)"),
    "loss.cycle_words": amount(0.1, "frequent words through encoder and generator (section 2.1)"),
    "loss.cycle_sphere": amount(0.1, "points of the unit sphere through generator and encoder (section 2.1)"),
    "loss.pooling": Key("max",
        'how the rows of a word\'s subwords become one (footnote 10): "max", "mean" or "first"',
        ("max", "mean", "first")),
    "loss.detach": Key(True, "the table does not move towards the encoder; released code: False"),
    "loss.reduction": Key("sum_per_word",
        'of characters: "sum_per_word", its mean over words (section 4), or "mean" (released code)',
        ("mean", "sum_per_word")),
    "loss.difference": Key("euclidean",
        'of the embedding and the sphere: "euclidean" (sections 2.1 and 4), or "mean_square" (released code)',
        ("euclidean", "mean_square")),
    "cycle.every": count(5000, "steps on text from one with cycles to the next (section 4)"),
    "cycle.batches": Key("own",
        'cycles have steps of their "own" between those of text (section 2.1), or are "joined" to the text of a step',
        ("own", "joined")),
    "cycle.words": count(1000, "words, and as many points of the sphere, of such a step (section 4)"),
    "cycle.vocabulary": count(25_000, "most frequent words of the corpora, from which they are drawn (section 4)"),
    "cycle.sampling": Key("uniform",
        'chances: "uniform", or by "frequency", or by its root ("sqrt")', ("uniform", "sqrt", "frequency")),
    "cycle.slots": BUCKET_SLOTS.but(
        meaning="character slots of the length buckets of these words, ascending; empty: measured"),
    "cycle.rows": BUCKET_ROWS.but(meaning="words per bucket of a part of a micro-batch; empty: measured"),
}  # fmt: skip
VALUES: JsonObject = {  # default values of keys that all families share
    "text.splitter": "spaces",  # gives the subwords of whole texts; other splitters cut what a tokenizer joins
    "data.batch_size": 576,  # sequences over steps of Table 4, Wikipedia
    "optim.learning_rate": 2e-5,  # released code
    "optim.warmup_steps": 1350,  # a tenth (released code)
    "optim.weight_decay": 0.0,  # released code
    # Table 4's last step of BERT on Wikipedia, where 7.8 M sequences are the lines of some 725 MB, read once (section
    # 4). Here sequences are filled up to data.max_length, so that as many steps pass over such a corpus some 24 times;
    # one pass takes some 560 steps: the subwords of the corpus, divided by 576 sequences of 512.
    "train.steps": 13_500,
    "train.log_every": 50,
    "train.eval_every": 500,
    "train.checkpoint_every": 500,
}
# What runs did that do not state a key, because they were saved before it existed.
UNSTATED: JsonObject = {"loss.difference": "mean_square", "cycle.batches": "joined"}
CHOICES = {"data.masking": ("paper",)}  # the choices of a shared key that this family allows


def check_generate(config: ml_collections.ConfigDict, backbone: str) -> None:
    """Checks that policy.generate=masked is not used on a GPT-2, which masks nothing; ValueError with a solution."""
    if backbone == "gpt2" and config.policy.generate == MASKED and config.loss.generation:
        raise ValueError(
            "policy.generate=masked, but nothing is masked for model.backbone=gpt2: set --config.policy.generate=all"
        )


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the values of XRayEmb's keys; ValueError naming the key, its value and the values expected."""
    data, model = config.data, config.model
    weights = {f"loss.{name}": config.loss[name] for name in LOSSES}
    if not any(weights.values()):
        raise ValueError(f"{', '.join(weights)} are all 0; expected one of them to be more")
    check_generate(config, model.backbone)
    if model.backbone == "roformer":
        check_even_heads("model.backbone=roformer", model.hidden, model.heads)
    for name in ("learn", "infer"):
        try:
            get_policy(config.policy[name])
        except ValueError as error:
            raise ValueError(f"policy.{name}: {error}") from None
    if not 0 < data.generate_share <= 1:
        raise ValueError(
            f"data.generate_share={data.generate_share} must lie in (0, 1]; loss.generation=0 leaves it out"
        )
    if config.text.pieces < 300:
        raise ValueError(f"text.pieces={config.text.pieces} must be at least 300: bytes and special ones have 261")
    if not 4 <= model.char_slots <= 32:
        raise ValueError(f"model.char_slots={model.char_slots} must lie in [4, 32]")

"""Configuration keys of XRayEmb alone; those of every family: `charlm.config.pretraining`.

Sections, tables and footnotes are those of Pinter et al., Findings of EMNLP 2021, arXiv 2108.00391; values that it
does not give are those of the released code, where that has them, else ours.

One optimizer serves the whole run: words of the cycles are part of the same update as the text. The released code
has a second one for them, whose learning rate falls to 0 half-way, by mistake; and it never updates biases and
LayerNorms, by another. Neither is reproduced.
"""

from __future__ import annotations

import math

import ml_collections

from charlm.families.xrayemb.policies import get_policy

ALL, MASKED = "all", "masked"  # what `policy.generate` may be
CHOICES = {
    "cycle.sampling": ("uniform", "sqrt", "frequency"),
    "data.masking": ("paper",),
    "loss.pooling": ("max", "mean", "first"),
    "loss.reduction": ("mean", "sum_per_word"),
    "model.activation": ("", "gelu", "gelu_new", "relu"),
    "model.backbone": ("", "bert", "roberta", "gpt2"),
    "model.encoder": ("conv", "lstm", "transformer"),
    "policy.generate": (ALL, MASKED),
}
POSITIVE = (
    "cycle.every", "cycle.words", "cycle.vocabulary", "model.layers", "model.ffn", "model.char_embedding",
    "model.generator_hidden", "model.generator_layers",
)  # fmt: skip
NOT_NEGATIVE = (
    "data.learned_words", "loss.language", "loss.embedding", "loss.generation", "loss.cycle_words", "loss.cycle_sphere",
    "model.char_hidden", "model.encoder_layers", "model.epsilon", "model.max_positions", "model.projections",
    "model.vocab_size", "text.chars", "train.sample_words",
)  # fmt: skip
SHARES = ()
MEASURED = (
    "cycle.slots", "cycle.rows",
    "data.bucket_slots", "data.bucket_rows", "data.learned_words", "data.written_slots", "data.written_rows",
    "model.activation", "model.backbone", "model.epsilon", "model.max_positions", "model.vocab_size",
)  # fmt: skip
RESUMABLE = ("text.tokenizer",)  # a run knows its subwords by their content
SET_BY: dict[str, dict[str, str]] = {}
LOSSES = ("language", "embedding", "generation", "cycle_words", "cycle_sphere")


def family_keys(config: ml_collections.ConfigDict) -> None:
    """Sets the keys of XRayEmb, and of the shared ones those that it gives another value."""
    text, data, model, train = config.text, config.data, config.model, config.train
    text.tokenizer = ""  # folder or file of the subwords; empty: those of init_from, else built from the corpora
    text.pieces = 28_996  # subwords of a vocabulary that is built; so many has BERT's
    text.chars = 0  # most characters of the encoder and generator, the most frequent ones; 0: all of the corpora

    data.max_length = 512  # subwords of a sequence before words are joined, special ones included (released code)
    data.mask_rate = 0.15  # BERT, RoBERTa: share of the subwords to predict; words that are spelled are none (4.1)
    data.generate_share = 1.0  # share of the positions of `policy.generate` that a step generates
    data.bucket_slots = ()  # character slots of the length buckets of spelled words, ascending; empty: measured
    data.bucket_rows = ()  # distinct spelled words per bucket of a part of a micro-batch; empty: measured
    data.learned_words = 0  # most words of a part of a micro-batch whose vectors are learned; 0: measured
    data.written_slots = ()  # character slots of the length buckets of generated words, ascending; empty: measured
    data.written_rows = ()  # generated words per bucket of a part of a micro-batch; empty: measured
    _loss_keys(config)

    model.backbone = ""  # "bert", "roberta" or "gpt2"; empty: that of init_from, else of text.tokenizer, else bert
    model.activation = ""  # "gelu" (exact), "gelu_new" (by tanh) or "relu"; empty: the backbone's
    model.epsilon = 0.0  # of every LayerNorm; 0: the backbone's
    model.vocab_size = 0  # rows of the table of subwords; 0: those of init_from, else as many as there are subwords
    model.max_positions = 0  # rows of the position table; 0: the backbone's
    model.layers = 12  # of the backbone
    model.ffn = 3072  # feed-forward width of the backbone
    model.encoder = "conv"  # XR-Enc: "conv" (section 3), "lstm" or "transformer"
    model.char_slots = 22  # characters of the longest word, both <e> included; longer ones are cut (released code)
    model.char_embedding = 200  # width of the tables of characters (section 4.2)
    model.char_hidden = 0  # filters of each width (256, section 4.2), units of an LSTM, width; 0: the authors'
    model.encoder_layers = 0  # of an LSTM or transformer; 0: the authors'
    model.projections = 0  # layers that make the vector; 0: the authors'
    model.generator_hidden = 256  # units of XR-Dec (not given; the encoder's)
    model.generator_layers = 2  # LSTM layers of XR-Dec (released code)

    train.sample_words = 8  # words generated from points of the sphere, shown at evaluations (Table 4); 0: none

    config.text.splitter = "spaces"  # so that subwords are those of whole texts: others part what a tokenizer joins
    config.data.batch_size = 576  # sequences over steps of Table 4, Wikipedia
    config.optim.learning_rate = 2e-5  # released code
    config.optim.warmup_steps = 1350  # a tenth (released code)
    config.optim.weight_decay = 0.0  # released code
    config.train.steps = 13_500  # one epoch of some 725 MB (section 4); the last column of Table 4, Wikipedia
    config.train.log_every = 50
    config.train.eval_every = 500
    config.train.checkpoint_every = 500


def _loss_keys(config: ml_collections.ConfigDict) -> None:
    config.policy = policy = ml_collections.ConfigDict()
    policy.learn = (
        "stochastic:0.15"  # words whose vectors are learned: charlm.families.xrayemb.policies (4.1; code: 0.5)
    )
    policy.infer = "all_multi"  # words that the model reads spelled, one position each (section 4.1)
    policy.generate = ALL  # "all": every position (section 4.1); "masked": masked subwords alone (code's default)

    config.loss = loss = ml_collections.ConfigDict()
    loss.language = 1.0  # weight (0: left out, of all five): masked subwords, GPT-2: the next subword (section 2.1)
    loss.embedding = 0.25  # mean square of encoder against table (section 2.1; weights: released code)
    loss.generation = 0.25  # cross entropy of the characters of every word, from its state (section 2.1)
    loss.cycle_words = 0.1  # frequent words through encoder and generator (section 2.2)
    loss.cycle_sphere = 0.1  # points of the unit sphere through generator and encoder (section 2.2)
    loss.pooling = "max"  # how the rows of a word's subwords become one (footnote 10): "max", "mean" or "first"
    loss.detach = True  # the table does not move towards the encoder; released code: False
    loss.reduction = "mean"  # of characters: "mean" (released code), or "sum_per_word", mean of words (section 4.1)

    config.cycle = cycle = ml_collections.ConfigDict()
    cycle.every = 5000  # optimizer steps from one with cycles to the next (section 4.1)
    cycle.words = 1000  # words, and as many points of the sphere, of such a step (section 4.1)
    cycle.vocabulary = 25_000  # most frequent words of the corpora, from which they are drawn (section 4.1)
    cycle.sampling = "uniform"  # chances: "uniform", or by "frequency", or by its root ("sqrt")
    cycle.slots = ()  # character slots of the length buckets of these words, ascending; empty: measured
    cycle.rows = ()  # words per bucket of a part of a micro-batch; empty: measured


def check_generate(config: ml_collections.ConfigDict, backbone: str) -> None:
    """Checks that a backbone masks something where masked subwords are generated; ValueError with the way out."""
    if backbone == "gpt2" and config.policy.generate == MASKED and config.loss.generation:
        raise ValueError(
            "policy.generate=masked, but nothing is masked for model.backbone=gpt2: set --config.policy.generate=all"
        )


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks values of XRayEmb's keys; ValueError naming key, value and what is expected."""
    data, model = config.data, config.model
    weights = {f"loss.{name}": config.loss[name] for name in LOSSES}
    if not all(math.isfinite(weight) for weight in weights.values()) or not any(weights.values()):
        raise ValueError(f"{', '.join(weights)} must be finite, and one of them more than 0; got {weights.values()}")
    check_generate(config, model.backbone)
    if data.max_length < 8:
        raise ValueError(f"data.max_length={data.max_length} must be at least 8")
    for name in ("learn", "infer"):
        try:
            get_policy(config.policy[name])
        except ValueError as error:
            raise ValueError(f"policy.{name}: {error}") from None
    if not 0 < data.generate_share <= 1:
        raise ValueError(f"data.generate_share={data.generate_share} must lie in (0, 1]; loss.generation=0 is none")
    if config.text.pieces < 300:
        raise ValueError(f"text.pieces={config.text.pieces} must be at least 300: bytes and special ones have 261")
    if not 4 <= model.char_slots <= 32:
        raise ValueError(f"model.char_slots={model.char_slots} must lie in [4, 32]")

"""The changes of a newer HLM at equal cost: python -m charlm.league hlm_ablation:tiny --workdir runs/ablation

Each change alone, and all of configs/hlm_modern.py together, are compared with the paper's model by the loss on
held-out text, at equal useful operations, text and seeds; nothing is fine-tuned. The report has the table, as HTML,
Markdown and JSON. Known pieces need a tokenizer, so configs/hlm_modern.py is without them.

Variants: "base", the same as "", has HLM-Base's sizes, for accelerators; "tiny" has those of hlm_base:tiny and the
built-in text, for two CPU cores; "evening" has the sizes of "tiny" and seven times its operations, on a folder of text
(--set data.folder=data), for an evening of two CPU cores.
"""

import ml_collections

from charlm.league.config import add_system
from charlm.league.config import get_config as defaults

COMMAND = "league"  # the command that reads this file

# The changes: name, title, and settings of a model whose tables and windows are those of the variant.
_CHANGES = (
    ("rotary", "rotary positions", ("model.position=rotary",)),
    ("pre", "pre-norm", ("model.norm_position=pre",)),
    ("rms", "RMSNorm", ("model.norm=rms",)),
    ("geglu", "GeGLU", ("model.feed_forward=geglu",)),
    ("no-bias", "no biases", ("model.bias=False",)),
    ("ngrams", "character n-grams", ("model.ngrams={ngrams}",)),
    ("local", "local layers", ("model.local_words={window}",)),
)


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant; ValueError when there is no such variant."""
    if variant and variant not in VARIANTS:
        raise ValueError(f"configs/hlm_ablation.py has no variant {variant!r}; choose {', '.join(VARIANTS)}")
    config = defaults()
    config.pretraining.runs = 3
    config.pretraining.baseline = "paper"
    VARIANTS[variant or "base"](config)
    return config


def tiny(config: ml_collections.ConfigDict) -> None:
    """Models of a million parameters: some minutes each."""
    config.title = "Changes of a tiny HLM"
    config.budget.flops = 1.16e12  # some 300 steps of the paper's model
    config.budget.batches = 10
    config.budget.evaluations = 1
    config.budget.checkpoints = 2
    config.budget.reports = 10
    _systems(config, "hlm_base:tiny", "hlm_modern:tiny", ("train.examples=0",), ngrams=4096, window=16)


def evening(config: ml_collections.ConfigDict) -> None:
    """Models of a million parameters on English text of many kinds: some ten minutes each."""
    tiny(config)
    config.title = "Changes of a small HLM"
    config.corpora.train = (
        "{folder}/text/en_gutenberg.txt.gz", "{folder}/text/en_reddit_goemotions.txt.gz",
        "{folder}/text/en_wikipedia_squad_contexts.txt.gz", "{folder}/text/en_wikitext2_valid.txt.gz",
    )  # fmt: skip
    config.budget.flops = 7.8e12  # some 2,000 steps of the paper's model


def base(config: ml_collections.ConfigDict) -> None:
    """HLM-Base's sizes."""
    config.title = "Changes of HLM-Base"
    config.corpora.train = ("{folder}/text/*.txt.gz",)
    config.budget.flops = 1e19
    learning = ("text.splitter=rules", "data.batch_size=512", "data.accumulation=1", "optim.learning_rate=3e-4",
                "optim.b2=0.98", "model.dtype=bfloat16")  # fmt: skip
    _systems(config, "hlm_base", "hlm_modern", learning, ngrams=32_768, window=64)


def _systems(
    config: ml_collections.ConfigDict, paper: str, modern: str, learning: tuple[str, ...], ngrams: int, window: int
) -> None:
    """Adds the paper's model, each change alone, and those of configs/hlm_modern.py together."""
    add_system(config, "paper", title="the paper's model", config=paper, set=learning)
    for name, title, changes in _CHANGES:
        own = tuple(change.format(ngrams=ngrams, window=window) for change in changes)
        add_system(config, name, title=title, config=paper, set=(*learning, *own))
    # As many pieces as there are rows of n-grams; a tokenizer is trained from the corpora first.
    known = {"subwords": "wordpiece", "pieces": ngrams}
    add_system(config, "pieces", title="known pieces", config=paper, set=learning, **known)
    add_system(config, "together", title="all of hlm_modern", config=modern, set=learning)


VARIANTS = {"tiny": tiny, "evening": evening, "base": base}

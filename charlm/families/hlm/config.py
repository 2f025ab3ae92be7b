"""The model configuration of an HLM: layer counts, widths and variants.

The flax modules get this dataclass and never see a run's config; `model_config` makes it from one. Open it to add a
variant of the model; `keys` declares the key for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import jax.numpy as jnp
import ml_collections
from jax.typing import DTypeLike

from charlm.families.hlm.pieces import piece_table
from charlm.families.shared_keys import check_even_heads
from charlm.nn.choices import InitializerName, Kernel
from charlm.nn.pieces import NO_PIECES, PieceTable
from charlm.nn.transformer import EncoderConfig
from charlm.text.chars import CharVocab

BETWEEN_WORDS = ("position", "rotary_base", "local_words", "global_every", "causal")  # not inside words
_LAYERS = ("intra_layers", "inter_layers", "head_layers")
# What a checkpoint may ask for: each layer is traced on its own, and tables of distances are as long as twice these.
_MOST = {**dict.fromkeys(_LAYERS, 1000), "char_slots": 1 << 16, "max_relative_words": 1 << 20}
WRITES = "next_word"  # the value of the config key `objective` of an HLM that writes


@dataclasses.dataclass(frozen=True)
class HLMConfig:
    """Shape of an HLM; `charlm.families.hlm.keys` explains each field. Defaults: HLM-Base."""

    wiring: Literal["paper", "reference"] = "paper"
    vocab_size: int = 1024
    hidden: int = 768
    heads: int = 12
    intra_layers: int = 4
    inter_layers: int = 12
    head_layers: int = 1
    intra_ffn: int = 1536
    inter_ffn: int = 3072
    char_slots: int = 20
    position_buckets: int = 256
    max_relative_words: int = 512
    aggregation: Literal["word_cls", "mean", "max"] = "word_cls"
    word_residual: bool = False
    head_transform: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer: InitializerName = "bert"
    dtype: DTypeLike = jnp.float32
    remat: bool = False
    epsilon: float = 1e-7  # of the LayerNorms of embeddings and encoders (the released code)
    attention_kernel: Kernel = "auto"
    scan_layers: bool = False
    position: Literal["disentangled", "rotary"] = "disentangled"
    rotary_base: float = 10_000.0
    norm_position: Literal["post", "pre"] = "post"
    norm: Literal["layer", "rms"] = "layer"
    feed_forward: Literal["gelu", "geglu"] = "gelu"
    bias: bool = True
    ngrams: int = 0
    ngram_sizes: tuple[int, ...] = (3, 4, 5)
    # Of the tokenizer that `text.tokenizer` names. Search indexes know a model by the repr of this, and by its pieces.
    pieces: PieceTable = dataclasses.field(default=NO_PIECES, repr=False)
    local_words: int = 0
    global_every: int = 3
    causal: bool = False  # whether context is that of the words before: of an HLM that writes

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            if getattr(self, name) > most:
                raise ValueError(f"model.{name}={getattr(self, name)}: expected at most {most}")
        if self.hidden % self.heads:
            raise ValueError(f"model.hidden={self.hidden} is not a multiple of model.heads={self.heads}")
        if self.position == "rotary":
            check_even_heads("model.position=rotary", self.hidden, self.heads)

    def encoder(self, layers: int, ffn: int, max_distance: int) -> EncoderConfig:
        """Returns the configuration of one of the three encoders, as inside words: disentangled, without a window."""
        shared = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(EncoderConfig)
            if hasattr(self, field.name) and field.name not in BETWEEN_WORDS
        }
        return EncoderConfig(layers=layers, ffn=ffn, max_distance=max_distance, **shared)

    @property
    def intra(self) -> EncoderConfig:
        """The intra-word encoder (section 3.1)."""
        return self.encoder(self.intra_layers, self.intra_ffn, self.char_slots)

    @property
    def inter(self) -> EncoderConfig:
        """The inter-word encoder (section 3.2)."""
        own = {name: getattr(self, name) for name in BETWEEN_WORDS}
        return dataclasses.replace(self.encoder(self.inter_layers, self.inter_ffn, self.max_relative_words), **own)

    @property
    def head(self) -> EncoderConfig:
        """The intra-word layers of the prediction head (section 3.3)."""
        return self.encoder(self.head_layers, self.intra_ffn, self.char_slots)

    @property
    def writer(self) -> EncoderConfig:
        """The layers that write a word letter by letter, of an HLM that writes."""
        return dataclasses.replace(self.head, position="rotary", causal=True)


def model_config(
    config: ml_collections.ConfigDict, vocab: CharVocab | None = None, pieces: Sequence[str] = ()
) -> HLMConfig:
    """Returns the model's dataclass from `config.model`.

    Args:
      vocab: the characters of the model; read only if there are pieces.
      pieces: the known pieces; see `charlm.families.hlm.pieces`.

    Raises:
      ValueError: the config names a tokenizer, but no pieces of it are given.
    """
    if config.text.tokenizer and not pieces:
        raise ValueError(f"text.tokenizer={config.text.tokenizer!r}: its pieces are needed here, and there are none")
    fields = {**config.model.to_dict(), "dtype": jnp.dtype(config.model.dtype)}
    known = NO_PIECES
    if pieces and vocab is not None:
        known = piece_table(tuple(pieces), vocab, config.text.normalize)
    return HLMConfig(**fields, pieces=known, causal=config.get("objective", "") == WRITES)

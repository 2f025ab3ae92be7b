"""XR-Enc, the encoder of XRayEmb: turns the characters of a word into a vector that replaces those of its subwords.

Open it to change the encoder or to add a kind. It follows Pinter et al. (2021), arXiv 2108.00391, section 4, and the
released code. There are three kinds: convolutions (the paper's choice), a bidirectional LSTM and a small Transformer,
which its preliminary runs compared. A word is `<e>`, its characters, `<e>`, as `charlm.families.xrayemb.chars` writes
it.

A vector depends only on its word, so the vector of a distinct word serves all its occurrences and can be kept between
calls. The released code instead reads padding as a character, so that the longest word of a batch changes the vectors
of all others; `compat_padding` does the same.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.core.types import ModelConfig, Option
from charlm.families.subword.bert import Bert, BertConfig
from charlm.nn.choices import InitializerName
from charlm.nn.embed import table_init
from charlm.nn.lstm import LSTM
from charlm.nn.mixed import MixedDense
from charlm.nn.products import matmul
from charlm.nn.sizes import is_symbolic

ENCODER_KINDS = ("conv", "lstm", "transformer")
WIDTHS = (2, 3, 4)  # widths of the convolutions, in characters (section 4)


@dataclasses.dataclass(frozen=True)
class XREncoderConfig:
    """Shape of XR-Enc. Defaults: the paper's convolutions, 1.05 M parameters beside the table of characters.

    Attributes:
      kind: "conv", "lstm" or "transformer"; `encoder_config` has the authors' sizes of each.
      char_vocab_size: rows of the character table; id 0 pads, the last is `<e>`.
      char_embedding: width of the character table; with a Transformer it is `hidden` instead.
      hidden: filters of each width, units of each LSTM direction, or width of the Transformer.
      output: width D of the vectors.
      projections: layers Linear(ReLU(x)) that make the vectors; all but the last are D wide, or with an LSTM as wide as
        its two directions together.
      layers: layers of the LSTM or Transformer.
      heads, ffn, max_positions: sizes of the Transformer.
      char_slots: characters of the longest word, both `<e>` included.
      compat_padding: padding is read as a character, as in the released code.
      dropout: dropout of the Transformer's states and probabilities, and for the other kinds, to which the authors gave
        none, of what the projections read.
      dtype: dtype of the inputs of products; vectors are float32.
      scan_layers: whether the layers of the Transformer run as one loop, see `charlm.nn.scan`.
    """

    kind: Literal["conv", "lstm", "transformer"] = "conv"
    char_vocab_size: int = 200
    char_embedding: int = 200
    hidden: int = 256
    output: int = 768
    projections: int = 1
    layers: int = 2
    heads: int = 8
    ffn: int = 3072
    max_positions: int = 32
    char_slots: int = 22
    compat_padding: bool = False
    dropout: float = 0.0
    initializer: InitializerName = "torch"
    dtype: DTypeLike = jnp.float32
    scan_layers: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ENCODER_KINDS:
            raise ValueError(f"xrayemb: encoder kind={self.kind!r} is not one of {', '.join(ENCODER_KINDS)}")
        for name in ("char_embedding", "hidden", "output", "projections", "layers", "heads", "ffn", "max_positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"xrayemb: encoder {name}={getattr(self, name)}, expected a positive number")
        check_characters("encoder", self)
        if self.kind == "transformer" and self.hidden % self.heads:
            raise ValueError(f"xrayemb: encoder hidden={self.hidden} is not a multiple of heads={self.heads}")
        if self.kind == "transformer" and self.max_positions < self.char_slots:
            raise ValueError(
                f"xrayemb: encoder max_positions={self.max_positions}, expected at least {self.char_slots=}"
            )

    @property
    def bert(self) -> BertConfig:
        """The config of the Transformer."""
        return BertConfig(
            vocab_size=self.char_vocab_size, hidden=self.hidden, layers=self.layers, heads=self.heads, ffn=self.ffn,
            max_positions=self.max_positions, type_vocab=1, pooler=False, dropout=self.dropout,
            attention_dropout=self.dropout, initializer=self.initializer, dtype=self.dtype,
            scan_layers=self.scan_layers,
        )  # fmt: skip


def check_characters(part: str, config: ModelConfig) -> None:
    """Checks the fields that encoder and generator share; ValueError naming part, field and value."""
    if config.char_vocab_size < 3:
        raise ValueError(
            f"xrayemb: {part} char_vocab_size={config.char_vocab_size}, expected 3 (padding, <unk>, <e>) or more"
        )
    if config.char_slots < 3:
        raise ValueError(f"xrayemb: {part} char_slots={config.char_slots}, expected 3 (<e>, a character, <e>) or more")


def encoder_config(kind: str, **changes: Option) -> XREncoderConfig:
    """Returns the config of a kind with the authors' sizes, and `changes` applied; see `XREncoderConfig`."""
    own: dict[str, dict[str, Option]] = {
        "lstm": {"hidden": 128, "layers": 2, "projections": 2},
        "transformer": {"hidden": 256, "layers": 6, "heads": 8, "ffn": 3072, "dropout": 0.1, "initializer": "bert"},
    }
    return XREncoderConfig(**{"kind": kind, **own.get(kind, {}), **changes})


class XREncoder(nn.Module):
    """Characters of words [U, C] -> vectors [U, D]."""

    config: XREncoderConfig

    def setup(self) -> None:
        cfg = self.config
        self.body = {"conv": Convolutions, "lstm": BiLSTM, "transformer": CharTransformer}[cfg.kind](cfg)
        inner = 2 * cfg.hidden if cfg.kind == "lstm" else cfg.output
        widths = [inner] * (cfg.projections - 1) + [cfg.output]
        self.projection = [MixedDense(width, cfg.initializer, cfg.dtype) for width in widths]
        self.dropout = nn.Dropout(0.0 if cfg.kind == "transformer" else cfg.dropout)

    def __call__(self, chars_UC: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """Returns float32 [U, D]; a row of padding, which stands for no word, gives arbitrary but finite numbers.

        Args:
          chars_UC: int, ids of the characters of words, 0 pads on the right.
        """
        x_UK = self.body(chars_UC.astype(jnp.int32), deterministic)
        for projection in self.projection:
            x_UK = projection(self.dropout(jax.nn.relu(x_UK), deterministic=deterministic))
        return x_UK


def lengths(chars_UC: jax.Array) -> jax.Array:
    """Returns the number of characters of each word, int32 [U]."""
    return (chars_UC != 0).sum(axis=1, dtype=jnp.int32)


class Convolutions(nn.Module):
    """max_t Conv_k(x)_t for k = 2, 3, 4, concatenated (section 4).

    A word of n characters is padded with zeros on both sides, so that each filter sees all n + k - 1 windows that
    contain at least one character.

    A convolution is a sum of k products, one per place of its window, and each product depends only on the character at
    that place. So if the table has fewer rows than the words have characters, the rows are multiplied once and the
    products looked up: five to ten times less work than multiplying every character.
    """

    config: XREncoderConfig

    @nn.compact
    def __call__(self, chars_UC: jax.Array, deterministic: bool) -> jax.Array:
        """Returns float32 [U, 3 H]; there is no dropout inside, so `deterministic` has no effect."""
        cfg = self.config
        C = chars_UC.shape[1]
        table_VE = nn.Embed(
            cfg.char_vocab_size, cfg.char_embedding, embedding_init=table_init(cfg.initializer), name="chars"
        ).embedding
        if is_symbolic(chars_UC.size) or len(table_VE) <= chars_UC.size:
            rows_RE, rows_UC = table_VE, chars_UC
        else:
            rows_RE = jnp.take(table_VE, chars_UC.reshape(-1), axis=0)
            rows_UC = jnp.arange(chars_UC.size).reshape(chars_UC.shape)
        zeros = len(rows_RE)  # index of a row of zeros, for padding around and after words
        rows_RE = jnp.concatenate([rows_RE, jnp.zeros_like(rows_RE[:1])])
        length_U = lengths(chars_UC)
        if cfg.compat_padding:
            length_U = jnp.full_like(length_U, C)
        else:
            rows_UC = jnp.where(jnp.arange(C)[None] < length_U[:, None], rows_UC, zeros)
        found = []
        for k in WIDTHS:
            filters = Filters(k, cfg, name=f"convolution_{k}")
            windows_UWH = filters(rows_RE, jnp.pad(rows_UC, ((0, 0), (k - 1, k - 1)), constant_values=zeros))
            real_UW1 = (jnp.arange(C + k - 1)[None] < length_U[:, None] + k - 1)[..., None]
            found.append(jnp.where(real_UW1, windows_UWH, -jnp.inf).max(axis=1))
        return jnp.concatenate(found, axis=-1)


class Filters(nn.Module):
    """H filters of one width; parameters `kernel` [k, E, H] and `bias` [H] start uniform, as in PyTorch."""

    width: int
    config: XREncoderConfig

    @nn.compact
    def __call__(self, rows_RE: jax.Array, rows_UC: jax.Array) -> jax.Array:
        """Returns the outputs of the filters in each window of rows, float32 [U, C - k + 1, H]."""
        k, H, E = self.width, self.config.hidden, rows_RE.shape[-1]
        bound = 1 / math.sqrt(k * E)
        init = lambda key, shape: jax.random.uniform(key, shape, jnp.float32, -bound, bound)
        kernel_KEH, bias_H = self.param("kernel", init, (k, E, H)), self.param("bias", init, (H,))
        windows = rows_UC.shape[1] - k + 1
        found = bias_H[None, None]
        for place in range(k):
            products_RH = matmul(rows_RE, kernel_KEH[place], self.config.dtype)
            found = found + jnp.take(products_RH, rows_UC[:, place : place + windows], axis=0)
        return found


class BiLSTM(nn.Module):
    """The last states of both directions of the last layer, concatenated.

    Every layer begins with states of its own, `start_state` [2 * layers, H], forward before backward; memories begin
    as zeros. The released code draws these states at random whenever a model is made and neither trains nor saves
    them; here they are parameters that start as zeros.
    """

    config: XREncoderConfig

    @nn.compact
    def __call__(self, chars_UC: jax.Array, deterministic: bool) -> jax.Array:
        """Returns float32 [U, 2 H]; there is no dropout inside, so `deterministic` has no effect."""
        cfg = self.config
        U, C = chars_UC.shape
        E = cfg.char_embedding
        table = nn.Embed(cfg.char_vocab_size, E, embedding_init=table_init(cfg.initializer), name="chars")
        start_LH = self.param("start_state", nn.initializers.zeros, (2 * cfg.layers, cfg.hidden), jnp.float32)
        last_U = jnp.maximum(lengths(chars_UC), 1) - 1
        back_CU = _backwards(jnp.full_like(last_U, C - 1) if cfg.compat_padding else last_U, C)
        turn = lambda x_CUE: jnp.take_along_axis(x_CUE, back_CU[:, :, None], axis=0)
        x_CUE = table(chars_UC.T)
        for layer in range(cfg.layers):
            forward, backward = (
                LSTM(E, cfg.hidden, cfg.dtype, name=f"{side}_{layer}") for side in ("forward", "backward")
            )
            first = lambda side, layer=layer: jnp.broadcast_to(start_LH[2 * layer + side], (U, cfg.hidden))
            x_CUE = jnp.concatenate([forward(x_CUE, first(0)), turn(backward(turn(x_CUE), first(1)))], axis=-1)
            E = 2 * cfg.hidden
        ends_UE = jnp.take_along_axis(x_CUE, last_U[None, :, None], axis=0)[0]
        return jnp.concatenate([ends_UE[:, : cfg.hidden], x_CUE[0, :, cfg.hidden :]], axis=-1)


def _backwards(last_U: jax.Array, C: int) -> jax.Array:
    """Returns indices that reverse the characters of each word, [C, U]; padding after the word stays in place."""
    place_C1 = jnp.arange(C)[:, None]
    return jnp.where(place_C1 <= last_U[None], last_U[None] - place_C1, place_C1)


class CharTransformer(nn.Module):
    """The mean of the states of a small BERT over the characters of a word."""

    config: XREncoderConfig

    def setup(self) -> None:
        self.bert = Bert(self.config.bert)

    def __call__(self, chars_UC: jax.Array, deterministic: bool) -> jax.Array:
        """Returns float32 [U, hidden]."""
        real_UC = jnp.ones(chars_UC.shape, bool) if self.config.compat_padding else chars_UC != 0
        states_UCD = self.bert(chars_UC, real_UC, deterministic=deterministic).states_BLD.astype(jnp.float32)
        total_UD = jnp.where(real_UC[..., None], states_UCD, 0).sum(axis=1)
        return total_UD / jnp.maximum(real_UC.sum(axis=1, keepdims=True), 1)

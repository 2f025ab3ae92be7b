"""The CharBERT model: BERT, RoBERTa or RoFormer with a second channel that reads characters (Ma et al., COLING 2020).

Open it to see where the two channels meet, or to change how characters are read:

    token channel  x = embeddings of BERT                       char channel  h_i = [g at i's first; at i's last char]
    every layer:   t, u = Layer(x), Layer(h)                    the same layer for both
                   x, h = LN(t + m_t), LN(u + m_u)              m: both mixed by convolutions over neighbouring tokens

g is a bidirectional GRU over the characters of the whole input. Where the paper (arXiv 2011.01513) and the released
code differ, the config chooses; the authors' weights need `fusion="reference"` and `compat_reference=True`. Fusions are
layers of their own, in `charlm.nn.fusions`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.core.types import Option
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.fusions import FUSIONS, layer_of
from charlm.families.subword.bert import BertConfig, BertEmbed, position_ids
from charlm.nn.blocks import block_class, check_inputs
from charlm.nn.embed import Embed, table_init
from charlm.nn.heads import Pooler
from charlm.nn.masks import numbers_texts
from charlm.nn.recurrent import BiGRU
from charlm.nn.scan import Layer, in_turn

CHANNELS = ("both", "tokens", "characters", "sum")
BothStates = tuple[jax.Array, jax.Array]  # states [B, L, D] of tokens and of their characters


@dataclasses.dataclass(frozen=True)
class CharBertConfig(BertConfig):
    """Shape of a CharBERT: the shape of its BERT, and of the character channel. Defaults: on BERT-base, cased.

    Attributes:
      char_vocab_size: rows of the character table (released: 1001 on BERT, 1050 on RoBERTa).
      char_hidden: width of a character's embedding (released code).
      word_vocab_size: size of the word vocabulary that noisy language modelling predicts.
      char_encoder: "gru"; "embedding": rows of the table instead of states of a GRU (Table 4, w/o GRU). A token is then
        the rows of its first and last character, so `char_hidden` must be half of `hidden`.
      fusion: how the channels are mixed, a name of `charlm.families.fusions.FUSIONS`. "paper": tanh and a GELU layer
        for each channel (section 3.4); "reference": a linear convolution that is added to both channels (released
        code), always shared; "none": no mixing (Table 4, w/o HI).
      shared_fusion: whether all layers share one fusion. The 5 M parameters of section 4.1 are explained only by this:
        on BERT-base "paper" has 6.7 M of them with windows=(3,), 7.9 M with (3, 4, 5), and 71.6 M and 85.8 M if each
        layer has a fusion of its own; "reference" has 5.5 M. Models from before this field had no sharing.
      windows: widths in tokens of the fusion's convolutions, which share its `hidden` filters. The paper gives no
        widths; the released code has (3,), and Kim (2014), whom the paper follows, (3, 4, 5).
      nlm: whether the character channel is trained by noisy language modelling. If not, masked tokens are predicted
        from both channels (Table 4, w/o NLM; section 4.6).
      shared_head_norm: whether both prediction heads share one LayerNorm (released code on RoBERTa).
      channels: what heads for labels read: "both" channels concatenated (section 3.6), the states of "tokens" or of
        "characters" alone, or their "sum" (section 5.3, figure 6).
      compat_reference: only attention masks padding, as in the released code: GRU, convolution and mean run over it, so
        outputs depend on the amount of padding and on the slots it points to. Needed for the authors' numbers.
    """

    vocab_size: int = 28996
    char_vocab_size: int = 1001
    char_hidden: int = 256
    word_vocab_size: int = 30001
    char_encoder: Literal["gru", "embedding"] = "gru"
    fusion: str = "paper"
    shared_fusion: bool = False
    windows: tuple[int, ...] = (3, 4, 5)
    nlm: bool = True
    shared_head_norm: bool = False
    channels: Literal["both", "tokens", "characters", "sum"] = "both"
    compat_reference: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("char_vocab_size", "char_hidden", "word_vocab_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"charbert: {name}={getattr(self, name)}, expected a positive number")
        if self.char_encoder not in ("gru", "embedding"):
            raise ValueError(f"charbert: char_encoder={self.char_encoder!r} is not one of gru, embedding")
        check_channels(self.channels)
        if self.fusion not in FUSIONS:
            raise ValueError(f"charbert: fusion={FUSIONS.unknown(self.fusion)}")
        object.__setattr__(self, "windows", tuple(self.windows))  # a config read from a file has a list
        if not self.windows or min(self.windows) < 1 or len(self.windows) > self.hidden:
            raise ValueError(f"charbert: windows={self.windows}, expected positive numbers of tokens")
        if FUSIONS[self.fusion].one_window and len(self.windows) > 1:
            raise ValueError(f"charbert: windows={self.windows}, but fusion={self.fusion!r} has one, (3,) as released")
        if self.char_encoder == "gru" and self.hidden % 4:
            raise ValueError(f"charbert: hidden={self.hidden}, expected a multiple of 4: two ends of two directions")
        if self.char_encoder == "embedding" and 2 * self.char_hidden != self.hidden:
            raise ValueError(
                f"charbert: char_hidden={self.char_hidden}, but char_encoder='embedding' needs half of "
                f"hidden={self.hidden}"
            )

    @property
    def read_width(self) -> int:
        """Width of what heads for labels read of a position."""
        return 2 * self.hidden if self.channels == "both" else self.hidden

    @property
    def one_fusion(self) -> bool:
        """Whether one fusion serves all layers."""
        return self.shared_fusion or FUSIONS[self.fusion].shared


def check_channels(value: object) -> None:
    """Raises ValueError unless heads for labels can read these channels; see `CharBertConfig`."""
    if value not in CHANNELS:
        raise ValueError(f"charbert: channels={value!r} is not one of {', '.join(CHANNELS)}")


class CharBertOutput(NamedTuple):
    """States of a CharBERT's two channels; states at padding are meaningless.

    Attributes:
      tokens_BLD, chars_BLD: the last states of each channel, in the model's dtype.
      pooled_BD, char_pooled_BD: tanh(Linear(first state)) of each channel, with one shared layer; None without a
        pooler.
      layers: on request, both channels [B, L, D] before, between and after the layers.
    """

    tokens_BLD: jax.Array
    chars_BLD: jax.Array
    pooled_BD: jax.Array | None = None
    char_pooled_BD: jax.Array | None = None
    layers: tuple[tuple[jax.Array, jax.Array], ...] = ()

    @property
    def both_BLE(self) -> jax.Array:
        """Both channels concatenated [B, L, 2D], the input of the heads of tasks (CharBERT, section 3.6)."""
        return jnp.concatenate([self.tokens_BLD, self.chars_BLD], axis=-1)

    def read(self, channels: str) -> jax.Array:
        """Returns what heads for labels read, [B, L, 2D] or [B, L, D]; see `CharBertConfig.channels`."""
        if channels == "both":
            return self.both_BLE
        if channels == "sum":
            return self.tokens_BLD + self.chars_BLD
        return self.tokens_BLD if channels == "tokens" else self.chars_BLD


class CharEncoder(nn.Module):
    """Characters -> a vector for each token: the states at its first and last character (section 3.3, Eq. 1 and 2)."""

    config: CharBertConfig

    @nn.compact
    def __call__(self, inputs: CharBertBatch) -> jax.Array:
        """Returns the vectors of tokens [B, L, D]; vectors of padding are meaningless."""
        cfg = self.config
        embed = Embed(cfg.char_vocab_size, cfg.char_hidden, embedding_init=table_init(cfg.initializer), name="table")
        # Row 0 gets no gradient, so it keeps its initial or loaded value, which is not zero (released code).
        is_zero_V1 = (jnp.arange(cfg.char_vocab_size) == 0)[:, None]
        table_VE = jnp.where(is_zero_V1, jax.lax.stop_gradient(embed.embedding), embed.embedding)
        chars_BN = inputs.chars_BN.astype(jnp.int32)
        if cfg.char_encoder == "gru":
            mask_BN = None if cfg.compat_reference else self._real_slots(inputs)
            states_BNE = BiGRU(cfg.hidden // 4, cfg.dtype, name="gru")(table_VE, chars_BN, mask_BN)
            self.sow("intermediates", "states", states_BNE)
            read = lambda slots_BL: jnp.take_along_axis(states_BNE, slots_BL[:, :, None], axis=1)
        else:
            read = lambda slots_BL: jnp.take(table_VE, jnp.take_along_axis(chars_BN, slots_BL, axis=1), axis=0)
        return jnp.concatenate([read(inputs.starts_BL), read(inputs.ends_BL)], axis=-1).astype(cfg.dtype)

    def _real_slots(self, inputs: CharBertBatch) -> jax.Array:
        """Returns bool [B, N], True up to the last character of the last real token."""
        ends_BL = inputs.ends_BL if inputs.mask_BL is None else jnp.where(inputs.mask_BL, inputs.ends_BL, -1)
        return jnp.arange(inputs.chars_BN.shape[1])[None] <= ends_BL.max(axis=1, keepdims=True)


class CharBertEncoder(nn.Module):
    """A stack of layers applied to both channels, with a fusion of the channels after every layer."""

    config: CharBertConfig

    def setup(self) -> None:
        cfg = self.config
        self.layer = [block_class(cfg.remat)(cfg.block) for _ in range(cfg.layers)]
        if layer := layer_of(cfg.fusion):
            fusion = nn.remat(layer) if cfg.remat else layer
            self.fusion = fusion(cfg) if cfg.one_fusion else [fusion(cfg) for _ in range(cfg.layers)]

    def __call__(
        self,
        tokens_BLD: jax.Array,
        chars_BLD: jax.Array,
        mask_BL: jax.Array | None,
        deterministic: bool = True,
        between: bool = True,
    ) -> list[tuple[jax.Array, jax.Array]]:
        """Returns the states of both channels before, between and after the layers, or only those after the last.

        Args:
          between: whether to return all of them.
        """
        cfg = self.config
        B, L, D = tokens_BLD.shape
        visible = jnp.ones((1, 1, 1, L), bool)
        if mask_BL is not None:
            visible = jnp.broadcast_to(mask_BL[:, None], (B, 2, L)).reshape(2 * B, 1, 1, L)
        mask_BL1 = None if mask_BL is None or cfg.compat_reference else mask_BL[:, :, None]
        states = [(tokens_BLD, chars_BLD)]

        def step(channels: BothStates, layer: Layer, *fusions: Layer) -> BothStates:
            # One call for both channels. They are interleaved by row, since the batch may be sharded over devices.
            both = jnp.stack(channels, axis=1).reshape(2 * B, L, D)
            both = layer(both, visible, None, None, deterministic, False)[0].reshape(B, 2, L, D)
            self.sow("intermediates", "transformer", both)
            channels = both[:, 0], both[:, 1]
            for fusion in fusions:
                channels = fusion(*channels, mask_BL1)
            if between:
                states.append(channels)
            return channels

        fusions = [self.fusion] if FUSIONS[cfg.fusion].layer else []
        scan = cfg.scan_layers and not between
        last = in_turn(self, step, states[0], self.layer, *fusions, scan=scan, remat=cfg.remat)
        return states if between else [last]


class CharBert(nn.Module):
    """The encoder: subwords and their characters -> contextual states of both channels."""

    scope_name: ClassVar[str] = "charbert"
    config: CharBertConfig

    def setup(self) -> None:
        cfg = self.config
        self.embed = BertEmbed(cfg)
        self.char = CharEncoder(cfg)
        self.encoder = CharBertEncoder(cfg)
        if cfg.pooler:
            self.pooler = Pooler(cfg.hidden, cfg.initializer, cfg.dtype)

    def __call__(
        self, inputs: CharBertBatch, *, return_layers: bool = False, deterministic: bool = True
    ) -> CharBertOutput:
        """Returns the states of a batch.

        Args:
          inputs: see `CharBertBatch`; an id or a slot that is out of range gives NaN.

        Raises:
          ValueError: arrays have wrong shapes or types, or there are more positions than the model has.
        """
        cfg = self.config
        ids_BL, mask_BL = inputs.ids_BL, inputs.mask_BL
        B, L = check_inputs(
            ids_BL, None, cfg.hidden, mask_BL=mask_BL, types_BL=inputs.types_BL, starts_BL=inputs.starts_BL,
            ends_BL=inputs.ends_BL,
        )  # fmt: skip
        if mask_BL is not None and numbers_texts(mask_BL):
            raise ValueError(f"mask_BL is {mask_BL.dtype} {mask_BL.shape}, expected bool (True = real): one text a row")
        chars_BN = inputs.chars_BN
        if chars_BN.ndim != 2 or chars_BN.shape[0] != B or not jnp.issubdtype(chars_BN.dtype, jnp.integer):
            raise ValueError(f"chars_BN is {chars_BN.dtype} {chars_BN.shape}, expected integers [{B}, slots]")
        if cfg.longest < L:
            raise ValueError(f"{L} positions, but the model has {cfg.longest}; cut the text or pass windows of it")
        places_BL = position_ids(cfg, ids_BL, mask_BL)
        tokens_BLD = self.embed(self.embed.token(ids_BL), inputs.types_BL, places_BL, deterministic)
        states = self.encoder(tokens_BLD, self.char(inputs), mask_BL, deterministic, return_layers)
        tokens_BLD, chars_BLD = states[-1]
        return CharBertOutput(
            tokens_BLD,
            chars_BLD,
            *((self.pooler(x_BLD[:, 0]) if cfg.pooler else None) for x_BLD in (tokens_BLD, chars_BLD)),
            layers=tuple(states) if return_layers else (),
        )

    def mask_of(self, inputs: CharBertBatch, **_: Option) -> jax.Array | None:
        """Returns the mask, bool [B, L], given the arguments of `__call__`; None: all positions are real."""
        return inputs.mask_BL

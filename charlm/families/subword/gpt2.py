"""The GPT-2 model (Radford et al., 2019, "Language Models are Unsupervised Multitask Learners", section 2.3).

It is a causal, pre-norm Transformer with learned positions. It computes the same as Hugging Face's model of this name,
whose weights `charlm.convert` reads. Token embeddings may be passed in place of ids (XRayEmb). Open it to change the
model itself; its layers are in `charlm.nn.blocks`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.core.types import Option
from charlm.nn.blocks import BlockConfig, KeyValue, at_positions, block_class, check_block, check_inputs
from charlm.nn.choices import ActivationName, InitializerName, Kernel
from charlm.nn.embed import Embed, layer_norm, table_init
from charlm.nn.kernels import product
from charlm.nn.masks import counted, numbers_texts, real_positions, visible_keys
from charlm.nn.outputs import LanguageModelOutput, TransformerOutput
from charlm.nn.scan import in_turn


def check_labelled(value: object) -> None:
    """Raises ValueError unless the value is "first" or "last", a piece of a word."""
    if value not in ("first", "last"):
        raise ValueError(f"labelled={value!r} is not one of first, last")


@dataclasses.dataclass(frozen=True)
class GPT2Config:
    """Shape of a GPT-2. Defaults: the smallest released one.

    Attributes:
      max_positions: rows of the position table.
      embed_dropout: dropout rate on the embeddings; `dropout` is the rate on outputs of attention and feed-forward.
      dtype: the type of matmul inputs and states.
      labelled: which piece of a word carries its label in tagging: the "last", which alone has read the whole word, or
        the "first", as in XRayEmb's paper (section 4.2).
    """

    vocab_size: int = 50257
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    ffn: int = 3072
    max_positions: int = 1024
    activation: ActivationName = "gelu_new"
    epsilon: float = 1e-5
    dropout: float = 0.1
    embed_dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer: InitializerName = "bert"
    dtype: DTypeLike = jnp.float32
    remat: bool = False
    attention_kernel: Kernel = "auto"
    scan_layers: bool = False
    labelled: Literal["first", "last"] = "last"

    def __post_init__(self) -> None:
        check_block("gpt2", self)
        check_labelled(self.labelled)

    @property
    def block(self) -> BlockConfig:
        """The configuration of a layer."""
        own = {field.name for field in dataclasses.fields(self)}  # its positions are of one kind
        names = own & {field.name for field in dataclasses.fields(BlockConfig)}
        return BlockConfig(pre_norm=True, **{name: getattr(self, name) for name in names})


class Cache(NamedTuple):
    """Keys and values of the positions that generation has read so far: a pytree, passed in and returned.

    Attributes:
      layers: keys and values of each layer, N places each.
      mask_BN: bool, True at places that hold a real position.
      length: int32 scalar, the number of places in use, including padding; the next call writes from there on.
    """

    layers: tuple[KeyValue, ...]
    mask_BN: jax.Array
    length: jax.Array


def empty_cache(config: GPT2Config, batch: int, places: int) -> Cache:
    """Returns an empty cache with room for `places` positions, including padding."""
    shape = (batch, places, config.heads, config.hidden // config.heads)
    layers = tuple(KeyValue(*(jnp.zeros(shape, config.dtype) for _ in range(2))) for _ in range(config.layers))
    return Cache(layers, jnp.zeros((batch, places), bool), jnp.zeros((), jnp.int32))


class GPT2Embed(nn.Module):
    """token + position, in float32, because a frequent token's gradient is a sum of thousands of rows."""

    config: GPT2Config

    def setup(self) -> None:
        cfg = self.config
        table = lambda rows: Embed(rows, cfg.hidden, embedding_init=table_init(cfg.initializer, cfg.hidden))
        self.token, self.position = table(cfg.vocab_size), table(cfg.max_positions)
        self.dropout = nn.Dropout(cfg.embed_dropout)

    def __call__(
        self,
        tokens_BLD: jax.Array,
        types_BLD: jax.Array | None,
        position_ids_BL: jax.Array | None,
        deterministic: bool,
    ) -> jax.Array:
        """Returns [B, L, D]; without position ids, position i uses row i of the position table."""
        if position_ids_BL is None:
            positions = self.position.embedding[None, : tokens_BLD.shape[1]]
        else:
            positions = self.position(position_ids_BL)
        x_BLD = tokens_BLD.astype(jnp.float32) + positions
        if types_BLD is not None:
            x_BLD = x_BLD + types_BLD
        return self.dropout(x_BLD, deterministic=deterministic).astype(self.config.dtype)


class GPT2Decoder(nn.Module):
    """A stack of pre-norm layers over [B, L, D]."""

    config: GPT2Config

    def setup(self) -> None:
        self.layer = [block_class(self.config.remat)(self.config.block) for _ in range(self.config.layers)]

    def __call__(
        self,
        x_BLD: jax.Array,
        visible_B1QN: jax.Array,
        cache: Cache | None,
        deterministic: bool,
        probabilities: bool = True,
        between: bool = True,
    ) -> tuple[list[jax.Array], list[jax.Array | None], tuple[KeyValue, ...]]:
        """Returns the states of the layers, attention probabilities if asked, and keys and values if there is a cache.

        Args:
          between: whether to return the states before, between and after the layers; False: only those after the last,
            if there is no cache and the probabilities are not asked for either.
        """
        if cache is None and not (between or probabilities):
            cfg = self.config
            step = lambda x_BLD, layer: layer(x_BLD, visible_B1QN, None, None, deterministic, False)[0]
            return [in_turn(self, step, x_BLD, self.layer, scan=cfg.scan_layers, remat=cfg.remat)], [], ()
        layers, attention, kept = [x_BLD], [], []
        start = None if cache is None else cache.length
        for layer, past in zip(self.layer, cache.layers if cache else [None] * len(self.layer), strict=True):
            x_BLD, probs, past = layer(x_BLD, visible_B1QN, past, start, deterministic, probabilities)
            layers.append(x_BLD)
            attention.append(probs)
            kept.append(past)
        return layers, attention, tuple(kept)


class GPT2(nn.Module):
    """The decoder: token ids or token embeddings -> states, each of which depends only on positions up to its own."""

    scope_name: ClassVar[str] = "gpt2"
    config: GPT2Config

    def setup(self) -> None:
        self.embed = GPT2Embed(self.config)
        self.decoder = GPT2Decoder(self.config)
        self.final_norm = layer_norm(self.config.epsilon, self.config.dtype)

    def __call__(
        self,
        ids_BL: jax.Array | None = None,
        mask_BL: jax.Array | None = None,
        *,
        embeddings_BLD: jax.Array | None = None,
        types_BL: jax.Array | None = None,
        position_ids_BL: jax.Array | None = None,
        cache: Cache | None = None,
        return_layers: bool = False,
        return_attention: bool = False,
        deterministic: bool = True,
    ) -> TransformerOutput:
        """Returns the states of a batch.

        Args:
          ids_BL: token ids, or None. An id outside of the table gives NaN.
          mask_BL: bool, True at real positions, or, without a cache, the numbers of texts that share a row
            (`charlm.nn.masks`); other positions influence none but themselves. None: all are real.
          embeddings_BLD: embeddings in place of the token table's rows, before positions; see `embed_tokens`.
          types_BL: token ids whose rows are added, as in GPT-2's dialogue models; None: nothing is added.
          position_ids_BL: rows of the position table. None: the real positions of a row are counted from 0, so that
            padding on either side changes nothing. (Hugging Face does the same in `generate`, but its bare model also
            counts padding, which differs if there is padding on the left.)
          cache: the previous positions, from `empty_cache` or the output of the last call. If it has no room for L
            more, or the row exceeds `max_positions`, the output is NaN, since this is known only when the program runs.

        Raises:
          ValueError: both or neither of ids and embeddings are given, arrays have wrong shapes, or there are more
            positions than the model has.
        """
        cfg = self.config
        B, L = check_inputs(
            ids_BL, embeddings_BLD, cfg.hidden, mask_BL=mask_BL, types_BL=types_BL, position_ids_BL=position_ids_BL
        )
        self._check_room(B, L, position_ids_BL, cache)
        if mask_BL is not None and numbers_texts(mask_BL) and cache is not None:
            raise ValueError("mask_BL numbers the texts of rows, but a cache holds one text a row; expected bool")
        shown_BL = jnp.ones((B, L), bool) if mask_BL is None else mask_BL
        if position_ids_BL is None and not (mask_BL is None and cache is None):
            position_ids_BL = _positions(shown_BL, cache)
        if embeddings_BLD is None:
            assert ids_BL is not None  # or check_inputs refuses
            embeddings_BLD = self.embed_tokens(ids_BL)
        types_BLD = None if types_BL is None else self.embed_tokens(types_BL)
        x_BLD = self.embed(embeddings_BLD, types_BLD, position_ids_BL, deterministic)
        if cache is not None:
            x_BLD = jnp.where(cache.length + L <= cache.mask_BN.shape[1], x_BLD, jnp.nan)
        keys_BN, visible_B1QN = _visibility(shown_BL, cache)
        layers, attention, kept = self.decoder(
            x_BLD, visible_B1QN, cache, deterministic, return_attention, return_layers
        )
        layers[-1] = self.final_norm(layers[-1])
        return TransformerOutput(
            states_BLD=layers[-1],
            layers=tuple(layers) if return_layers else (),
            attention=tuple(probs for probs in attention if probs is not None) if return_attention else (),
            cache=None if cache is None else Cache(kept, keys_BN, cache.length + L),
        )

    def embed_tokens(self, ids_BL: jax.Array) -> jax.Array:
        """Returns the token table's rows, float32 [..., D], in the form that `embeddings_BLD` takes."""
        return self.embed.token(ids_BL)

    def mask_of(
        self, ids_BL: jax.Array | None = None, mask_BL: jax.Array | None = None, **_: Option
    ) -> jax.Array | None:
        """Returns the mask, given the arguments of `__call__`."""
        return mask_BL

    def _check_room(self, B: int, L: int, position_ids_BL: jax.Array | None, cache: Cache | None) -> None:
        limit = self.config.max_positions
        if position_ids_BL is None and limit < L:
            raise ValueError(f"{L} positions, but the model has {limit}; cut the text or pass windows of it")
        if cache is not None and (len(cache.mask_BN) != B or cache.mask_BN.shape[1] < L):
            rows, places = cache.mask_BN.shape
            raise ValueError(f"a cache for {rows} rows of {places} positions cannot take {B} rows of {L}")


def _positions(mask_BL: jax.Array, cache: Cache | None) -> jax.Array:
    """Returns the rows of the position table, int32 [B, L]: the real positions of a text, counted on from the cache."""
    count_BL = counted(real_positions(mask_BL), mask_BL)
    if cache is not None:
        count_BL += cache.mask_BN.sum(axis=1, keepdims=True, dtype=jnp.int32)
    return jnp.maximum(count_BL - 1, 0)


def _visibility(mask_BL: jax.Array, cache: Cache | None) -> tuple[jax.Array, jax.Array]:
    """Returns the mask of the keys [B, N], and which of them each query sees, bool [B, 1, L, N].

    The keys are those of the cache's places, with the new ones in theirs; without a cache, N = L.
    """
    query_L, keys_BN = jnp.arange(mask_BL.shape[1]), mask_BL
    if cache is not None:
        query_L = query_L + cache.length
        keys_BN = jax.lax.dynamic_update_slice_in_dim(cache.mask_BN, mask_BL, cache.length, axis=1)
    causal_LN = jnp.arange(keys_BN.shape[1])[None, :] <= query_L[:, None]
    return keys_BN, causal_LN[None, None] & visible_keys(keys_BN)[:, None]


class GPT2LMHeadModel(nn.Module):
    """GPT-2 with its output layer, which is tied to the token table."""

    config: GPT2Config

    def setup(self) -> None:
        self.gpt2 = GPT2(self.config)

    def __call__(
        self,
        ids_BL: jax.Array | None = None,
        mask_BL: jax.Array | None = None,
        *,
        positions_BM: jax.Array | None = None,
        **inputs: Option,
    ) -> LanguageModelOutput:
        """Returns the logits of the next token at all positions, or only at `positions_BM` (int [B, M]).

        The other arguments are those of `GPT2.__call__`.
        """
        output = self.gpt2(ids_BL, mask_BL, **inputs)
        x_BMD = at_positions(output.states_BLD, positions_BM)
        table_VD = self.gpt2.embed.token.embedding.astype(self.config.dtype)
        logits = product("bmd,vd->bmv", x_BMD, table_VD)
        return LanguageModelOutput(logits, output)

    def embed_tokens(self, ids_BL: jax.Array) -> jax.Array:
        """Returns the token table's rows, float32 [..., D]."""
        return self.gpt2.embed_tokens(ids_BL)

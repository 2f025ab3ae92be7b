"""The models BERT (Devlin et al., NAACL 2019, arXiv 1810.04805), multilingual BERT, RoBERTa (arXiv 1907.11692) and
RoFormer (arXiv 2104.09864).

One module serves all four, which differ in `BertConfig`. It computes the same as Hugging Face's models of these names,
whose weights `charlm.convert` reads. Token embeddings may be passed in place of ids, so that a character model can
replace rows of the table (Char2Subword, XRayEmb). RoBERTa is by Liu et al., 2019, RoFormer by Su et al., 2021. Open it
to change the model itself; its layers are in `charlm.nn.blocks`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.core.types import Option
from charlm.nn.blocks import ACTIVATION_FUNCTIONS, BlockConfig, at_positions, block_class, check_block, check_inputs
from charlm.nn.choices import POSITIONS, ActivationName, InitializerName, Kernel, PositionName
from charlm.nn.embed import Embed, dense, layer_norm, table_init
from charlm.nn.heads import Pooler
from charlm.nn.kernels import product
from charlm.nn.masks import counted, numbers_texts, real_positions, starts, visible_keys
from charlm.nn.mixed import MixedDense
from charlm.nn.outputs import LanguageModelOutput, TransformerOutput
from charlm.nn.scan import in_turn


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Shape of a BERT. Defaults: BERT-base, uncased.

    Attributes:
      max_positions: rows of the position table (RoBERTa: 514, of which 512 are for real positions); with rotary
        positions, the most positions of an input.
      type_vocab: rows of the segment table (RoBERTa: 1).
      position_offset: the row of the first position. 0: position i uses row i, and padding is counted (BERT).
        Otherwise only real positions are counted, from that row on, and padding uses the row `pad_id` (RoBERTa: the
        offset is pad_id + 1 = 2).
      pad_id: the id of padding; used only with a position offset.
      position: "absolute": a table of positions is added to the tokens; "rotary": there is none, and the layers turn
        queries and keys by their positions (Su et al., 2021, section 3.2).
      pooler: whether there is a tanh layer over the first position.
      dtype: the type of matmul inputs and states.
    """

    vocab_size: int = 30522
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    ffn: int = 3072
    max_positions: int = 512
    type_vocab: int = 2
    position_offset: int = 0
    pad_id: int = 0
    position: PositionName = "absolute"
    pooler: bool = True
    activation: ActivationName = "gelu"
    epsilon: float = 1e-12  # RoBERTa: 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer: InitializerName = "bert"
    dtype: DTypeLike = jnp.float32
    remat: bool = False
    attention_kernel: Kernel = "auto"
    scan_layers: bool = False

    def __post_init__(self) -> None:
        check_block("bert", self)
        if self.type_vocab < 1:
            raise ValueError(f"bert: type_vocab={self.type_vocab}, expected a positive number")
        if not 0 <= self.position_offset < self.max_positions:
            raise ValueError(
                f"bert: position_offset={self.position_offset}, expected from 0 to below {self.max_positions=}"
            )
        if self.position not in POSITIONS:
            raise ValueError(f"bert: position={self.position!r}, expected {' or '.join(POSITIONS)}")
        if self.position == "rotary" and (self.position_offset or self.hidden // self.heads % 2):
            raise ValueError(
                f"bert: position='rotary' turns pairs of columns and has no table: expected an even width of heads and "
                f"no position_offset, got {self.hidden=} / {self.heads=} and {self.position_offset}"
            )
        if self.position_offset and not 0 <= self.pad_id < self.max_positions:
            raise ValueError(f"bert: pad_id={self.pad_id} has no row in a table of {self.max_positions} positions")

    @property
    def longest(self) -> int:
        """The largest number of positions that an input may have."""
        return self.max_positions - self.position_offset

    @property
    def block(self) -> BlockConfig:
        """The configuration of a layer."""
        names = (field.name for field in dataclasses.fields(BlockConfig) if field.name != "pre_norm")
        return BlockConfig(pre_norm=False, **{name: getattr(self, name) for name in names})


class BertEmbed(nn.Module):
    """LayerNorm(token + position + type), in float32, because a frequent token's gradient sums thousands of rows.

    With rotary positions, no position is added.
    """

    config: BertConfig

    def setup(self) -> None:
        cfg = self.config
        table = lambda rows: Embed(rows, cfg.hidden, embedding_init=table_init(cfg.initializer, cfg.hidden))
        self.token, self.type = table(cfg.vocab_size), table(cfg.type_vocab)
        if cfg.position == "absolute":
            self.position = table(cfg.max_positions)
        self.norm = layer_norm(cfg.epsilon, jnp.float32)
        self.dropout = nn.Dropout(cfg.dropout)

    def __call__(
        self,
        tokens_BLD: jax.Array,
        types_BL: jax.Array | None,
        position_ids_BL: jax.Array | None,
        deterministic: bool,
    ) -> jax.Array:
        """Returns [B, L, D]; without types all have type 0, without position ids position i uses row i + offset."""
        cfg, L = self.config, tokens_BLD.shape[1]
        # Rows that are the same for the whole batch need no gather.
        types = self.type.embedding[None, :1] if types_BL is None else self.type(types_BL)
        x_BLD = tokens_BLD.astype(jnp.float32) + types
        if cfg.position == "absolute":
            rows = slice(cfg.position_offset, cfg.position_offset + L)
            x_BLD += self.position.embedding[None, rows] if position_ids_BL is None else self.position(position_ids_BL)
        x_BLD = self.norm(x_BLD)
        return self.dropout(x_BLD, deterministic=deterministic).astype(cfg.dtype)


class BertEncoder(nn.Module):
    """A stack of post-norm layers over [B, L, D]."""

    config: BertConfig

    def setup(self) -> None:
        self.layer = [block_class(self.config.remat)(self.config.block) for _ in range(self.config.layers)]

    def __call__(
        self,
        x_BLD: jax.Array,
        mask_BL: jax.Array,
        deterministic: bool = True,
        probabilities: bool = True,
        between: bool = True,
    ) -> tuple[list[jax.Array], list[jax.Array | None]]:
        """Returns the states of the layers, and the attention probabilities if asked.

        Args:
          between: whether to return the states before, between and after the layers; False: only those after the last,
            if the probabilities are not asked for either.
        """
        visible_B1QN = visible_keys(mask_BL)[:, None]
        if not (between or probabilities):
            cfg = self.config
            step = lambda x_BLD, layer: layer(x_BLD, visible_B1QN, None, None, deterministic, False)[0]
            return [in_turn(self, step, x_BLD, self.layer, scan=cfg.scan_layers, remat=cfg.remat)], []
        layers, attention = [x_BLD], []
        for layer in self.layer:
            x_BLD, probs, _ = layer(x_BLD, visible_B1QN, None, None, deterministic, probabilities)
            layers.append(x_BLD)
            attention.append(probs)
        return layers, attention


class Bert(nn.Module):
    """The encoder: token ids or token embeddings -> contextual states."""

    scope_name: ClassVar[str] = "bert"
    config: BertConfig

    def setup(self) -> None:
        cfg = self.config
        self.embed = BertEmbed(cfg)
        self.encoder = BertEncoder(cfg)
        if cfg.pooler:
            self.pooler = Pooler(cfg.hidden, cfg.initializer, cfg.dtype)

    def __call__(
        self,
        ids_BL: jax.Array | None = None,
        mask_BL: jax.Array | None = None,
        *,
        embeddings_BLD: jax.Array | None = None,
        types_BL: jax.Array | None = None,
        position_ids_BL: jax.Array | None = None,
        return_layers: bool = False,
        return_attention: bool = False,
        deterministic: bool = True,
    ) -> TransformerOutput:
        """Returns the states of a batch.

        Args:
          ids_BL: token ids, or None. An id outside of the table gives NaN.
          mask_BL: bool, True at real positions, or the numbers of texts that share a row (`charlm.nn.masks`); other
            positions influence none but themselves. None: all are real.
          embeddings_BLD: embeddings in place of the token table's rows, before positions and LayerNorm; see
            `embed_tokens`.
          types_BL: segment ids; None: all 0.
          position_ids_BL: rows of the position table; None: see `position_ids`. A model with rotary positions has no
            table: only the order of a row counts.

        Raises:
          ValueError: both or neither of ids and embeddings are given, arrays have wrong shapes, there are more
            positions than the model has, or rows are given of a table that it has not.
        """
        cfg = self.config
        _, L = check_inputs(
            ids_BL, embeddings_BLD, cfg.hidden, mask_BL=mask_BL, types_BL=types_BL, position_ids_BL=position_ids_BL
        )
        if position_ids_BL is not None and cfg.position == "rotary":
            raise ValueError("position_ids_BL: a model with rotary positions has no table of them")
        if position_ids_BL is None:
            if cfg.longest < L:  # also with several texts in a row, since what is longest is known only in the program
                raise ValueError(f"{L} positions, but the model has {cfg.longest}; cut the text or pass windows of it")
            position_ids_BL = self.position_ids(ids_BL, mask_BL)
        if embeddings_BLD is None:
            assert ids_BL is not None  # or check_inputs refuses
            embeddings_BLD = self.embed_tokens(ids_BL)
        x_BLD = self.embed(embeddings_BLD, types_BL, position_ids_BL, deterministic)
        visible_BL = jnp.ones((1, L), bool) if mask_BL is None else mask_BL
        layers, attention = self.encoder(x_BLD, visible_BL, deterministic, return_attention, return_layers)
        return TransformerOutput(
            states_BLD=layers[-1],
            pooled_BD=self.pooler(starts(layers[-1], mask_BL)) if cfg.pooler else None,
            layers=tuple(layers) if return_layers else (),
            attention=tuple(probs for probs in attention if probs is not None) if return_attention else (),
        )

    def embed_tokens(self, ids_BL: jax.Array) -> jax.Array:
        """Returns the token table's rows, float32 [..., D], in the form that `embeddings_BLD` takes."""
        return self.embed.token(ids_BL)

    def mask_of(
        self, ids_BL: jax.Array | None = None, mask_BL: jax.Array | None = None, **_: Option
    ) -> jax.Array | None:
        """Returns the mask, given the arguments of `__call__`."""
        return mask_BL

    def position_ids(self, ids_BL: jax.Array | None, mask_BL: jax.Array | None) -> jax.Array | None:
        """Returns the rows of the position table [B, L]; None: consecutive rows from `position_offset` on.

        Where texts share a row, positions are counted from the start of each. Without a table there are no rows.

        With an offset (RoBERTa) a position counts if mask_BL is True and its id is not padding, as far as either is
        given; all other positions use the row `pad_id`. Hugging Face looks only at the ids, and counts every position
        when embeddings are given. The result is the same if the mask agrees with the padding ids and embeddings are not
        padded on the left.
        """
        return position_ids(self.config, ids_BL, mask_BL)


def position_ids(cfg: BertConfig, ids_BL: jax.Array | None, mask_BL: jax.Array | None) -> jax.Array | None:
    """Returns rows of the position table; see `Bert.position_ids`."""
    if cfg.position == "rotary":
        return None
    if not cfg.position_offset:
        if mask_BL is None or not numbers_texts(mask_BL):
            return None
        return counted(jnp.ones_like(mask_BL, bool), mask_BL) - 1
    if ids_BL is None and mask_BL is None:
        return None
    real_BL = jnp.asarray(True) if mask_BL is None else real_positions(mask_BL)
    if ids_BL is not None:
        is_token_BL = ids_BL != cfg.pad_id
        real_BL = is_token_BL if mask_BL is None else is_token_BL & real_BL
    count_BL = counted(real_BL, real_BL if mask_BL is None else mask_BL)
    return jnp.where(real_BL, count_BL + (cfg.position_offset - 1), cfg.pad_id)


class MaskedLMHead(nn.Module):
    """logits = LN(activation(Linear(x))) E' + bias, where E is the token table (BERT, section 3.1, as released)."""

    config: BertConfig

    def setup(self) -> None:
        cfg = self.config
        self.transform = dense(cfg.hidden, cfg.hidden, cfg.initializer, cfg.dtype)
        self.transform_norm = layer_norm(cfg.epsilon, cfg.dtype)
        self.output_bias = self.param("output_bias", nn.initializers.zeros, (cfg.vocab_size,), jnp.float32)

    def __call__(self, x_BMD: jax.Array, table_VD: jax.Array) -> jax.Array:
        """Returns float32 logits [B, M, V]."""
        cfg = self.config
        x_BMD = self.transform_norm(ACTIVATION_FUNCTIONS[cfg.activation](self.transform(x_BMD)))
        logits = product("bmd,vd->bmv", x_BMD, table_VD.astype(cfg.dtype))
        return logits + self.output_bias[None, None]


class BertForMaskedLM(nn.Module):
    """BERT with its prediction head for masked tokens.

    Attributes:
      next_sentence: whether it also predicts if the second segment follows the first (BERT, section 3.1); this needs
        the pooler.
    """

    config: BertConfig
    next_sentence: bool = False

    def setup(self) -> None:
        cfg = self.config
        if self.next_sentence and not cfg.pooler:
            raise ValueError("bert: next_sentence=True needs pooler=True")
        self.bert = Bert(cfg)
        self.head = MaskedLMHead(cfg)
        if self.next_sentence:
            self.label = MixedDense(2, cfg.initializer, cfg.dtype)

    def __call__(
        self,
        ids_BL: jax.Array | None = None,
        mask_BL: jax.Array | None = None,
        *,
        positions_BM: jax.Array | None = None,
        **inputs: Option,
    ) -> LanguageModelOutput:
        """Returns logits at all positions, or only at `positions_BM` (int [B, M]): the head is a fifth of the work.

        The other arguments are those of `Bert.__call__`.
        """
        output = self.bert(ids_BL, mask_BL, **inputs)
        x_BMD = at_positions(output.states_BLD, positions_BM)
        logits = self.head(x_BMD, self.bert.embed.token.embedding)
        next_sentence = None
        if self.next_sentence:
            assert output.pooled_BD is not None  # setup refuses a model without a pooler
            next_sentence = self.label(output.pooled_BD)
        return LanguageModelOutput(logits, output, next_sentence)

    def embed_tokens(self, ids_BL: jax.Array) -> jax.Array:
        """Returns the token table's rows, float32 [..., D]."""
        return self.bert.embed_tokens(ids_BL)

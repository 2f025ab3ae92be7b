"""BERT, RoBERTa and GPT-2 with XRayEmb (Pinter et al., 2021, section 2).

The model behind is the one that was there before, and so are its parameters' names: `bert` and `head`, `gpt2`, or
`label`; beside them are the encoder `xr_enc` and, where there is one, the generator `xr_dec`. A word that a policy
selects is one position, whose input vector the encoder makes; a batch (`SpelledBatch`) says where.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.model import Spelled, SpelledEncoder, SpelledLM, SpelledMaskedLM
from charlm.families.subword.bert import BertConfig
from charlm.families.subword.gpt2 import GPT2, GPT2Config
from charlm.families.xrayemb.decoder import Generated, Predicted, XRDecoder, XRDecoderConfig
from charlm.families.xrayemb.encoder import XREncoder, XREncoderConfig
from charlm.nn.kernels import product
from charlm.nn.outputs import TransformerOutput


@dataclasses.dataclass(frozen=True)
class XRayEmbBertConfig(BertConfig):
    """Shape of a BERT or RoBERTa and of what XRayEmb puts beside it.

    Attributes:
      encoder: shape of XR-Enc; its vectors are as wide as the table of subwords.
      generator: shape of XR-Dec; None: there is none, and nothing is generated.
      policy: which words the encoder reads, by a name of `charlm.families.xrayemb.policies`.
      eval_policy: that of all but training; "": `policy`, or "none" where that one draws words.
    """

    encoder: XREncoderConfig = dataclasses.field(default_factory=XREncoderConfig)
    generator: XRDecoderConfig | None = dataclasses.field(default_factory=XRDecoderConfig)
    policy: str = "all_multi"  # section 4: of pre-training
    eval_policy: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_parts(self)


@dataclasses.dataclass(frozen=True)
class XRayEmbGPT2Config(GPT2Config):
    """Shape of a GPT-2 and of what XRayEmb puts beside it; see `XRayEmbBertConfig`."""

    encoder: XREncoderConfig = dataclasses.field(default_factory=XREncoderConfig)
    generator: XRDecoderConfig | None = dataclasses.field(default_factory=XRDecoderConfig)
    policy: str = "all_multi"  # section 4: of pre-training
    eval_policy: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_parts(self)


XRayEmbConfig = XRayEmbBertConfig | XRayEmbGPT2Config


def _check_parts(config: XRayEmbConfig) -> None:
    """Checks that encoder and generator fit the model and one another; ValueError naming what does not."""
    encoder, generator = config.encoder, config.generator
    if encoder.output != config.hidden:
        raise ValueError(f"xrayemb: the encoder's vectors are {encoder.output} wide, the table's rows {config.hidden}")
    if generator is None:
        return
    if generator.vector != config.hidden:
        raise ValueError(f"xrayemb: the generator reads {generator.vector} numbers, states have {config.hidden}")
    for name in ("char_vocab_size", "char_slots"):
        ours, theirs = getattr(encoder, name), getattr(generator, name)
        if ours != theirs:
            raise ValueError(f"xrayemb: {name} is {ours} in the encoder, {theirs} in the generator; expected the same")


class _XRay(Spelled):
    """What every model of the family has: encoder and generator."""

    config: Any  # an `XRayEmbConfig`; a type would contradict that of the model behind, which is of a part of it

    def setup(self) -> None:
        super().setup()  # of the model that reads the vectors: it makes `bert` or `gpt2`, and the head
        self.xr_enc = XREncoder(self.config.encoder)
        if self.config.generator is not None:
            self.xr_dec = XRDecoder(self.config.generator)

    def vectors(self, chars_UC: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the vectors [U, D] of words, float32."""
        if self.is_initializing() and self.config.generator is not None:
            self.xr_dec(jnp.zeros((1, self.config.hidden)), jnp.ones((1, 2), jnp.int32))  # no input calls for it
        return self.xr_enc(chars_UC, deterministic=deterministic)

    def write(self, vectors: Sequence[jax.Array], chars: Sequence[jax.Array]) -> list[Predicted]:
        """Returns what the generator predicts of words that are given; see `XRDecoder.tables`."""
        return self.xr_dec.tables(vectors, chars)

    def generate(self, vectors_UD: jax.Array, **options: Any) -> Generated:
        """Returns the words that the generator makes of vectors; see `XRDecoder.generate`."""
        return self.xr_dec.generate(vectors_UD, **options)


class XRayEmbBert(_XRay, SpelledEncoder):
    """The encoder of BERT or RoBERTa: words and subwords -> contextual states."""


class XRayEmbForMaskedLM(_XRay, SpelledMaskedLM):
    """With BERT's prediction head over the table of subwords."""


class _OnGPT2(_XRay):
    """What differs on GPT-2: the name of the model behind, and there are no segments."""

    def read(
        self, ids_BL: None, mask_BL: jax.Array | None, *, types_BL: jax.Array | None, **inputs: Any
    ) -> TransformerOutput:
        """Returns what GPT-2 makes of input vectors; `types_BL` is not read."""
        return self.gpt2(ids_BL, mask_BL, **inputs)

    def embed_tokens(self, ids_NL: jax.Array) -> jax.Array:
        """Returns rows of the table of subwords, float32 [N, L, D]."""
        return self.gpt2.embed_tokens(ids_NL)

    def _inner(self, inputs: SpelledBatch, deterministic: bool, vectors_SUD: jax.Array | None = None) -> dict[str, Any]:
        return super()._inner(inputs, deterministic, vectors_SUD) | {"types_BL": None}


class _Decoder(Spelled):
    def setup(self) -> None:
        self.gpt2 = GPT2(self.config)


class XRayEmbGPT2(_OnGPT2, _Decoder, SpelledEncoder):
    """GPT-2: words and subwords -> states that see what is to their left."""


class XRayEmbForCausalLM(_OnGPT2, _Decoder, SpelledLM):
    """With GPT-2's output layer, which is the table of subwords: what follows each position."""

    def predict(self, states_NMD: jax.Array) -> jax.Array:
        """Returns float32 logits [N, M, V] of the next subword."""
        table_VD = self.gpt2.embed.token.embedding.astype(self.config.dtype)
        return product("bmd,vd->bmv", states_NMD, table_VD)

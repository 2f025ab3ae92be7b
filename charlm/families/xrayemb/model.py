"""The models of XRayEmb: a BERT or GPT-2 with a character encoder and generator (Pinter et al., 2021, section 2).

Open it to see how backbone, encoder and generator are put together. The backbone is unchanged and keeps its parameter
names `bert`, `gpt2`, `head` and `label`; beside them are the encoder `xr_enc` and, if there is one, the generator
`xr_dec`. A word that a policy selects is one position, whose input vector the encoder makes; the batch (`SpelledBatch`)
says which positions these are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from charlm.core.types import ModelConfig, Option
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
    """Shape of a BERT, RoBERTa or RoFormer and of XRayEmb's encoder and generator.

    Attributes:
      encoder: shape of XR-Enc; its vectors are as wide as the table of subwords.
      generator: shape of XR-Dec; None: the model has no generator.
      policy: which words the encoder reads, by a name of `charlm.families.xrayemb.policies`.
      eval_policy: the policy outside of training; "": `policy`, or "none" if `policy` draws words.
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
    """Shape of a GPT-2 and of XRayEmb's encoder and generator; see `XRayEmbBertConfig`."""

    encoder: XREncoderConfig = dataclasses.field(default_factory=XREncoderConfig)
    generator: XRDecoderConfig | None = dataclasses.field(default_factory=XRDecoderConfig)
    policy: str = "all_multi"  # section 4: of pre-training
    eval_policy: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_parts(self)


XRayEmbConfig = XRayEmbBertConfig | XRayEmbGPT2Config


def _check_parts(config: XRayEmbConfig) -> None:
    """Checks that encoder and generator fit the model and each other; ValueError naming the sizes that differ."""
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
    """Adds encoder and generator to a model; every model of the family inherits from it."""

    config: ModelConfig  # an `XRayEmbConfig`; naming the type would contradict the type in the other base class

    def setup(self) -> None:
        super().setup()  # the other base class makes `bert` or `gpt2`, and the head
        self.xr_enc = XREncoder(self.config.encoder)
        if self.config.generator is not None:
            self.xr_dec = XRDecoder(self.config.generator)

    def vectors(self, chars_UC: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the vectors [U, D] of words, float32."""
        if self.is_initializing() and self.config.generator is not None:
            self.xr_dec(jnp.zeros((1, self.config.hidden)), jnp.ones((1, 2), jnp.int32))  # makes its parameters
        return self.xr_enc(chars_UC, deterministic=deterministic)

    def write(self, vectors: Sequence[jax.Array], chars: Sequence[jax.Array]) -> list[Predicted]:
        """Returns the generator's predictions for given words; see `XRDecoder.tables`."""
        return self.xr_dec.tables(vectors, chars)

    def generate(self, vectors_UD: jax.Array, **options: Option) -> Generated:
        """Returns the words that the generator writes from vectors; see `XRDecoder.generate`."""
        return self.xr_dec.generate(vectors_UD, **options)


class XRayEmbBert(_XRay, SpelledEncoder):
    """The encoder of BERT, RoBERTa or RoFormer: words and subwords -> contextual states."""


class XRayEmbForMaskedLM(_XRay, SpelledMaskedLM):
    """A BERT, RoBERTa or RoFormer with its prediction head over the table of subwords."""


class _OnGPT2(_XRay):
    """The differences on GPT-2: the backbone's name, and there are no segments."""

    def read(
        self, ids_BL: None, mask_BL: jax.Array | None, *, types_BL: jax.Array | None, **inputs: Option
    ) -> TransformerOutput:
        """Returns GPT-2's output for input vectors; `types_BL` is not read."""
        return self.gpt2(ids_BL, mask_BL, **inputs)

    def embed_tokens(self, ids_NL: jax.Array) -> jax.Array:
        """Returns rows of the table of subwords, float32 [N, L, D]."""
        return self.gpt2.embed_tokens(ids_NL)

    def _inner(
        self, inputs: SpelledBatch, deterministic: bool, vectors_SUD: jax.Array | None = None
    ) -> dict[str, Option]:
        return super()._inner(inputs, deterministic, vectors_SUD) | {"types_BL": None}


class _Decoder(Spelled):
    def setup(self) -> None:
        self.gpt2 = GPT2(self.config)


class XRayEmbGPT2(_OnGPT2, _Decoder, SpelledEncoder):
    """GPT-2 without a head: words and subwords -> states that depend on the positions to their left."""


class XRayEmbForCausalLM(_OnGPT2, _Decoder, SpelledLM):
    """GPT-2 with its output layer, the table of subwords: predicts the next subword at each position."""

    def predict(self, states_NMD: jax.Array) -> jax.Array:
        """Returns float32 logits [N, M, V] of the next subword."""
        table_VD = self.gpt2.embed.token.embedding.astype(self.config.dtype)
        return product("bmd,vd->bmv", states_NMD, table_VD)

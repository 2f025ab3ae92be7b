"""ELMo's character CNN, which makes CharacterBERT's word vectors (El Boukkouri et al., COLING 2020, section 3).

Open it to change how characters become a vector; `model` puts BERT on top of these vectors.

    e_i = E[c_i]                                              characters, i = 1 .. 50 with padding
    f_w = relu(max_t (b_w + sum_k e_(t+k) K_w,k))             filters of each width w, all windows inside the 50 slots
    x   = [f_1 ; ... ; f_7]
    x   = g x + (1 - g) relu(n),  [n ; g'] = W x + b,  g = sigmoid(g')       highways
    v   = P x + p

In ELMo padding is a character with an embedding, and the maximum also runs over windows that reach into padding or hold
nothing else. All windows that begin after the n characters of a word are equal, so it suffices to compute the first of
them: n + 1 windows of each width, or as many as fit into the 50 slots, give the same maximum. So a table of words of
up to C characters is computed exactly from `C + w` slots.

Initialisation: filters, highways and projection preserve the scale of their input. The biases of the filters start
below zero (`CLOSED`), because the maximum over windows is well above zero for every word: without that, word vectors
would differ little compared with what they have in common. The projection then scales the differences (`GAIN`) to
about the size of the rows of an embedding table. With BERT's standard deviation of 0.02 for all weights, word vectors
would be a hundredth of the size of position embeddings.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.families.characterbert.characters import CHARACTER_ROWS, ELMO_SLOTS, PAD
from charlm.families.subword.bert import BertConfig
from charlm.nn.embed import Dense, Embed
from charlm.nn.kernels import product

CLOSED = 1.5  # initial bias of a filter, negated, in standard deviations of its products
GAIN = 4.0  # factor by which the initial projection enlarges the differences between words
BERT_STD = 0.02  # standard deviation of the rows of BERT's tables; with other initialisers it is 1


@dataclasses.dataclass(frozen=True)
class CharacterBertConfig(BertConfig):
    """Shape of a BERT and of the CNN that makes its word vectors. Defaults: the released models, 104.6 M parameters
    with a pooler.

    Attributes:
      vocab_size: words that the prediction head knows; the model has no other table of words.
      char_hidden: width of a character's embedding.
      windows, filters: width and number of each kind of filters.
      highways: highway layers after the filters.
      char_slots: character slots of a word, marks included; longer words are cut.
      splitter, language: how text is cut into words; see `charlm.text.words.get_splitter`.
      lowercase: whether words are read lower-cased and without accents.
    """

    vocab_size: int = 100_000
    char_hidden: int = 16
    windows: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)
    highways: int = 2
    char_slots: int = ELMO_SLOTS
    splitter: str = "reference"
    language: str = "en"
    lowercase: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("windows", "filters"):  # a config read from JSON has lists
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.windows or len(self.windows) != len(self.filters) or min(self.windows + self.filters) < 1:
            raise ValueError(
                f"characterbert: windows={self.windows} and filters={self.filters}: expected as many of both, all "
                "positive"
            )
        if self.char_slots < max(3, *self.windows):
            raise ValueError(
                f"characterbert: char_slots={self.char_slots}, expected at least 3 and max(windows)={max(self.windows)}"
            )
        if self.char_hidden < 1 or self.highways < 0:
            raise ValueError(
                f"characterbert: char_hidden={self.char_hidden}, highways={self.highways}: expected at least 1 and 0"
            )


class CharacterCNN(nn.Module):
    """Characters of words [U, C] -> vectors [U, D]."""

    config: CharacterBertConfig

    @nn.compact
    def __call__(self, chars_UC: jax.Array) -> jax.Array:
        """Returns float32 [U, D]; a row without characters (padding of the table) gives some finite vector.

        Args:
          chars_UC: int, ids of the characters of words, padded with 0 on the right; C is at most `char_slots`.

        Raises:
          ValueError: when C is above the model's `char_slots`.
        """
        cfg, C = self.config, chars_UC.shape[1]
        if cfg.char_slots < C:
            raise ValueError(f"words of {C} character slots, but the model has {cfg.char_slots}")
        ids_UC = jnp.where(chars_UC == 0, PAD, chars_UC.astype(jnp.int32))
        ids_UT = jnp.pad(ids_UC, ((0, 0), (0, max(cfg.windows))), constant_values=PAD)
        table = Embed(CHARACTER_ROWS, cfg.char_hidden, embedding_init=nn.initializers.normal(1.0), name="chars")
        x_UTE = table(ids_UT).astype(cfg.dtype)
        found = []
        for n, (width, filters) in enumerate(zip(cfg.windows, cfg.filters, strict=True)):
            convolution = Convolution(width, filters, cfg.dtype, name=f"convolution_{n}")
            windows_UTF = convolution(x_UTE[:, : min(C + width, cfg.char_slots)])
            found.append(jax.nn.relu(windows_UTF.max(axis=1)))
        x_UF = jnp.concatenate(found, axis=-1)
        for n in range(cfg.highways):
            x_UF = Highway(cfg.dtype, name=f"highway_{n}")(x_UF)
        size = GAIN * (BERT_STD if cfg.initializer == "bert" else 1.0)
        kernel = nn.initializers.variance_scaling(size**2, "fan_in", "normal")
        return Dense(cfg.hidden, cfg.dtype, kernel, name="projection")(x_UF).astype(jnp.float32)


class Convolution(nn.Module):
    """Filters of one width; parameters `kernel` [w, E, F] and `bias` [F].

    Every window is laid out as a row of w E numbers, so that the convolution and its gradient are matrix products.
    """

    width: int
    filters: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x_UTE: jax.Array) -> jax.Array:
        """Returns float32 [U, T - w + 1, F]."""
        w, E = self.width, x_UTE.shape[-1]
        kernel_WEF = self.param("kernel", nn.initializers.lecun_normal(), (w, E, self.filters), jnp.float32)
        bias_F = self.param("bias", nn.initializers.constant(-CLOSED), (self.filters,), jnp.float32)
        windows = x_UTE.shape[1] - w + 1
        rows_UTK = jnp.concatenate([x_UTE[:, k : k + windows] for k in range(w)], axis=-1)
        kernel_KF = kernel_WEF.reshape(w * E, self.filters).astype(self.dtype)
        return product("utk,kf->utf", rows_UTK, kernel_KF) + bias_F[None, None]


class Highway(nn.Module):
    """x g + relu(n) (1 - g), of [n ; g'] = W x + b (Srivastava et al., 2015); gates begin open, b = 1, as in ELMo."""

    dtype: DTypeLike

    @nn.compact
    def __call__(self, x_UF: jax.Array) -> jax.Array:
        """Returns float32 [U, F]."""
        F = x_UF.shape[-1]
        carries = lambda key, shape, dtype: jnp.concatenate([jnp.zeros(F, dtype), jnp.ones(F, dtype)])
        layer = Dense(2 * F, self.dtype, nn.initializers.lecun_normal(), carries, name="projection")
        change_UF, gate_UF = jnp.split(layer(x_UF).astype(jnp.float32), 2, axis=-1)
        gate_UF = jax.nn.sigmoid(gate_UF)
        return gate_UF * x_UF + (1 - gate_UF) * jax.nn.relu(change_UF)

"""XR-Dec, the generator of XRayEmb: writes a word from a vector, character by character.

Open it to change the generator. It follows Pinter et al. (2021), arXiv 2108.00391, section 4, and the released code:
LSTM layers whose first states are made from the vector, and which read the previous character at each step. The output
has a class for every character but padding, so class c is id c + 1.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.families.xrayemb.encoder import check_characters
from charlm.nn.choices import InitializerName
from charlm.nn.embed import table_init
from charlm.nn.lstm import LSTM, LSTMState
from charlm.nn.mixed import MixedDense

MAX_STEPS = 20  # as in the released code; counts the symbol that ends a word


@dataclasses.dataclass(frozen=True)
class XRDecoderConfig:
    """Shape of XR-Dec. The paper does not give the width of its states; 256 is the width of its encoder.

    Attributes:
      char_vocab_size: V, rows of the generator's own character table; id 0 pads, the last is `<e>`.
      char_embedding: width of the character table.
      hidden: units of a layer.
      layers: LSTM layers.
      vector: width of the vectors that words are written from.
      char_slots: characters of the longest word, both `<e>` included.
      compat_scramble: for comparison with the released code: layers begin with states of other words of the batch,
        because that code reads [U, layers * hidden] as [layers, U, hidden].
      dtype: dtype of the inputs of products; states and logits are float32.
    """

    char_vocab_size: int = 200
    char_embedding: int = 200
    hidden: int = 256
    layers: int = 2
    vector: int = 768
    char_slots: int = 22
    compat_scramble: bool = False
    initializer: InitializerName = "torch"
    dtype: DTypeLike = jnp.float32

    def __post_init__(self) -> None:
        for name in ("char_embedding", "hidden", "layers", "vector"):
            if getattr(self, name) < 1:
                raise ValueError(f"xrayemb: generator {name}={getattr(self, name)}, expected a positive number")
        check_characters("generator", self)

    @property
    def end(self) -> int:
        """Id of `<e>`, which begins and ends words."""
        return self.char_vocab_size - 1


class Predicted(NamedTuple):
    """Predictions in a stretch of steps, for the words of the tables that are long enough.

    Attributes:
      logits_NBV: float32 [steps, words, V - 1].
      ids_NB: int32, the right characters, 0 after the end of a word.
    """

    logits_NBV: jax.Array
    ids_NB: jax.Array


class Generated(NamedTuple):
    """Generated words.

    Attributes:
      ids_UT: int32, the characters and the symbol that ended the word, if there was one; 0 pads.
      length_U: int32, the number of characters; T if the word did not end.
    """

    ids_UT: jax.Array
    length_U: jax.Array


def spelled_rows(generated: Generated, end: int) -> jax.Array:
    """Returns generated words in the form that encoder and generator read: `<e>`, characters, `<e>`, zeros.

    The result is int32 [U, T + 2].

    Args:
      end: id of `<e>`.
    """
    T = generated.ids_UT.shape[1]
    place_1S = jnp.arange(T + 2)[None]
    length_U1 = generated.length_U[:, None]
    shifted_US = jnp.pad(generated.ids_UT, ((0, 0), (1, 1)))
    inside_US = jnp.where(place_1S <= length_U1, shifted_US, 0)
    return jnp.where((place_1S == 0) | (place_1S == length_U1 + 1), end, inside_US)


def _stretches(chars: Sequence[jax.Array]) -> list[jax.Array]:
    """Returns the characters of tables step by step, int [steps + 1, S * words] for each stretch of steps.

    A stretch spans the steps between two table lengths, and holds the words of all tables that reach its end. Its last
    characters are only predicted; they are read as the first characters of the next stretch.

    Args:
      chars: int [S, U, C], the tables, with the longest C first.
    """
    S = len(chars[0])
    ends = sorted({0, *(x.shape[-1] - 1 for x in chars)})
    found = []
    for begin, end in itertools.pairwise(ends):
        part_SUN = jnp.concatenate([x[..., begin : end + 1] for x in chars if x.shape[-1] > end], axis=1)
        found.append(jnp.moveaxis(part_SUN, 2, 0).reshape(end - begin + 1, S * part_SUN.shape[1]))
    return found


class _Loop(NamedTuple):
    """The state of generation: step, states of the layers, words so far, which words have ended, random key."""

    step: jax.Array
    states: tuple[LSTMState, ...]
    written: Generated
    ended_U: jax.Array
    key: jax.Array


class XRDecoder(nn.Module):
    """Vectors [U, D] -> words."""

    config: XRDecoderConfig

    def setup(self) -> None:
        cfg = self.config
        self.chars = nn.Embed(cfg.char_vocab_size, cfg.char_embedding, embedding_init=table_init(cfg.initializer))
        self.start_projection = MixedDense(cfg.layers * cfg.hidden, cfg.initializer, cfg.dtype)
        widths = [cfg.char_embedding] + [cfg.hidden] * (cfg.layers - 1)
        self.lstm = [LSTM(width, cfg.hidden, cfg.dtype) for width in widths]
        self.projection = MixedDense(cfg.char_vocab_size - 1, cfg.initializer, cfg.dtype)
        self.output_projection = MixedDense(cfg.char_vocab_size - 1, cfg.initializer, cfg.dtype)

    def __call__(self, vectors_UD: jax.Array, chars_UC: jax.Array) -> jax.Array:
        """Returns the logits of the next character after each given character, float32 [U, C - 1, V - 1].

        Args:
          vectors_UD: vectors of words.
          chars_UC: int, the words; logits at t are for character t + 1.
        """
        (predicted,) = self.tables([vectors_UD[None]], [chars_UC[None]])
        return predicted.logits_NBV.swapaxes(0, 1)

    def tables(self, vectors: Sequence[jax.Array], chars: Sequence[jax.Array]) -> list[Predicted]:
        """Returns the predictions of the next characters for given words that are sorted into tables by length.

        All words begin together, and the words of a table drop out after its last slot. So several tables take no more
        steps than the longest table alone.

        Args:
          vectors: vectors of the words of each table, [S, U, D].
          chars: the words of each table, int [S, U, C]; S is the same in all tables.

        Returns:
          The stretches of steps in order; each has the words of the S shards, the longest tables first.

        Raises:
          ValueError: no table has two slots, so there is nothing to predict.
        """
        if max(x.shape[-1] for x in chars) < 2:
            raise ValueError(f"tables of {[x.shape[-1] for x in chars]} slots, expected two in one of them at least")
        longest_first = sorted(range(len(chars)), key=lambda table: -chars[table].shape[-1])
        vectors_SUD = jnp.concatenate([vectors[table] for table in longest_first], axis=1)
        S, U, D = vectors_SUD.shape
        parts = _stretches([chars[table].astype(jnp.int32) for table in longest_first])
        first, *others = zip(self.lstm, self.start_states(vectors_SUD.reshape(S * U, D)), strict=True)
        x = first[0].run(first[0].gates_of_rows(self.chars.embedding, [ids[:-1] for ids in parts]), first[1], S)
        for lstm, start_UK in others:
            x = lstm.run([lstm.gates(x_NBK) for x_NBK in x], start_UK, S)
        return [Predicted(self._logits(x_NBK), ids[1:]) for x_NBK, ids in zip(x, parts, strict=True)]

    def generate(
        self,
        vectors_UD: jax.Array,
        *,
        max_steps: int = MAX_STEPS,
        spaces_V: jax.Array | None = None,
        spaces_end: bool = False,
        temperature: float | jax.Array = 1.0,
        key: jax.Array | None = None,
    ) -> Generated:
        """Writes words character by character, in one loop that ends when all words have ended.

        No word begins with `<e>` or white space. Words that have ended read padding until the loop ends.

        Args:
          max_steps: T, most characters of a word, the symbol that ends it included; a word of T characters has no end.
          spaces_V: bool, True at ids of white space; None: there is none.
          spaces_end: whether white space ends words.
          temperature: divides the logits when characters are drawn; above 0.
          key: key for drawing characters; None: the likeliest character is taken each time.

        Raises:
          ValueError: `max_steps` is below 1, or `spaces_V` has another length than the vocabulary.
        """
        U, end = len(vectors_UD), self.config.end
        if max_steps < 1:
            raise ValueError(f"max_steps={max_steps}, expected at least 1")
        no_start_V = _not_first(self.config, spaces_V)
        ends_V = no_start_V if spaces_end else jnp.arange(len(no_start_V)) == end

        def going(_: XRDecoder, loop: _Loop) -> jax.Array:
            return (loop.step < max_steps) & ~loop.ended_U.all()

        def write(decoder: XRDecoder, loop: _Loop) -> _Loop:
            step, before = loop.step, loop.written.ids_UT[:, loop.step - 1]
            states = decoder.step(jnp.where(step == 0, end, before), loop.states)
            logits_UV = jnp.where((step == 0) & no_start_V[1:][None], -jnp.inf, decoder._logits(states[-1].h_BK))
            if key is None:
                class_U = logits_UV.argmax(axis=-1)
            else:
                class_U = jax.random.categorical(jax.random.fold_in(loop.key, step), logits_UV / temperature)
            id_U = jnp.where(loop.ended_U, 0, class_U.astype(jnp.int32) + 1)
            ends_U = loop.ended_U | ends_V[id_U]
            length_U = loop.written.length_U + ~ends_U
            return _Loop(
                step + 1, states, Generated(loop.written.ids_UT.at[:, step].set(id_U), length_U), ends_U, loop.key
            )

        states = tuple(LSTMState(start_UK, jnp.zeros_like(start_UK)) for start_UK in self.start_states(vectors_UD))
        written = Generated(jnp.zeros((U, max_steps), jnp.int32), jnp.zeros(U, jnp.int32))
        drawn = jax.random.key(0) if key is None else key
        loop = _Loop(jnp.zeros((), jnp.int32), states, written, jnp.zeros(U, bool), drawn)
        done = nn.while_loop(going, write, self, loop)  # pyright: ignore[reportArgumentType]  # an array is its bool
        return done.written

    def step(self, ids_U: jax.Array, states: tuple[LSTMState, ...]) -> tuple[LSTMState, ...]:
        """Returns the layers' states after one character of each word."""
        x_UK, after = self.chars(ids_U), []
        for lstm, state in zip(self.lstm, states, strict=True):
            after.append(lstm.step(x_UK, state))
            x_UK = after[-1].h_BK
        return tuple(after)

    def start_states(self, vectors_UD: jax.Array) -> jax.Array:
        """Returns the first states of the layers, float32 [layers, U, K]."""
        cfg = self.config
        states = self.start_projection(vectors_UD)
        if cfg.compat_scramble:
            return states.reshape(cfg.layers, len(vectors_UD), cfg.hidden)
        return states.reshape(len(vectors_UD), cfg.layers, cfg.hidden).swapaxes(0, 1)

    def _logits(self, x_UK: jax.Array) -> jax.Array:
        return self.output_projection(jnp.tanh(self.projection(x_UK)))


def _not_first(config: XRDecoderConfig, spaces_V: jax.Array | None) -> jax.Array:
    """Returns at which ids no word begins, `<e>` and white space, bool [V]; see `XRDecoder.generate`."""
    V = config.char_vocab_size
    spaces_V = jnp.zeros(V, bool) if spaces_V is None else jnp.asarray(spaces_V)
    if spaces_V.shape != (V,):
        raise ValueError(f"spaces_V is {spaces_V.shape}, expected [{V}], one for each character")
    return spaces_V.at[config.end].set(True)

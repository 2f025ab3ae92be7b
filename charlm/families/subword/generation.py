"""Generates text token by token with a causal model and a cache of keys and values, in one compiled loop.

`SubwordPredictor.generate` uses it; open it to add a way of choosing the next token.
"""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.types import AnyModel, Array, Params
from charlm.families.arguments import check_seeds
from charlm.families.subword.gpt2 import Cache, empty_cache


class GenerationSettings(NamedTuple):
    """How tokens are chosen; the values are arrays, so that changing them needs no compilation.

    Attributes:
      max_new: int32, the most tokens to add.
      temperature: float32.
      top_k: int32.
      top_p: float32.
      eos: int32, the token that ends a text; -1: none.
      allowed_V: bool, True at ids that have a token.
    """

    max_new: Array
    temperature: Array
    top_k: Array
    top_p: Array
    eos: Array
    allowed_V: Array


class Written(NamedTuple):
    """The new tokens [B, T], their log-probabilities, the number of tokens in each row, and whether it has ended."""

    tokens_BT: jax.Array
    log_probs_BT: jax.Array
    count_B: jax.Array
    ended_B: jax.Array


class _State(NamedTuple):
    step: jax.Array
    cache: Cache
    logits_BV: jax.Array
    written: Written


def prompt_keys(prompts: Sequence[str], seed: int | Sequence[int]) -> jax.Array:
    """Returns a random key for each prompt, which depends only on its text and its seed.

    With one seed for all prompts, a repeated prompt gets the next seed, so that its continuations differ.

    Raises:
      ValueError: when the number of seeds is not that of prompts, or a seed is out of range.
    """
    check_seeds(seed)
    one_for_all = isinstance(seed, int | np.integer)
    if one_for_all:
        seen: Counter[str] = Counter()
        seeds = []
        for prompt in prompts:
            seeds.append(int(seed) + seen[prompt])
            seen[prompt] += 1
    else:
        seeds = [int(one) for one in seed]
    if len(seeds) != len(prompts):
        raise ValueError(f"seed: expected one seed or {len(prompts)}, one for each prompt, got {len(seeds)}")
    check_seeds(seeds)
    texts = np.array([zlib.crc32(prompt.encode("utf-8", "surrogatepass")) for prompt in prompts], np.uint32)
    return jax.vmap(lambda one, text: jax.random.fold_in(jax.random.key(one), text))(np.array(seeds, np.uint32), texts)


def cut_tail(logits_BV: jax.Array, top_k: jax.Array, top_p: jax.Array) -> jax.Array:
    """Returns the logits with -inf at tokens that may not be drawn.

    First only the `top_k` likeliest tokens are kept (0: all). Of these, only the fewest likeliest tokens are kept whose
    probabilities add up to `top_p` (nucleus sampling; Holtzman et al., ICLR 2020, section 3.1). Tokens with equal
    logits are kept or removed together.
    """
    V = logits_BV.shape[-1]
    sorted_BV = -jnp.sort(-logits_BV, axis=-1)
    last = jnp.where(top_k > 0, jnp.minimum(top_k, V), V) - 1
    least_B1 = jax.lax.dynamic_slice_in_dim(sorted_BV, last, 1, axis=-1)
    probs_BV = jax.nn.softmax(jnp.where(sorted_BV >= least_B1, sorted_BV, -jnp.inf), axis=-1)
    before_BV = jnp.cumsum(probs_BV, axis=-1) - probs_BV
    kept_BV = (sorted_BV >= least_B1) & ((before_BV < top_p) | (top_p >= 1))
    least_B1 = jnp.where(kept_BV, sorted_BV, jnp.inf).min(axis=-1, keepdims=True)
    return jnp.where(logits_BV >= least_B1, logits_BV, -jnp.inf)


def _choose(
    logits_BV: jax.Array, keys_B: jax.Array, settings: GenerationSettings, greedy: bool, cut: bool
) -> jax.Array:
    logits_BV = jnp.where(settings.allowed_V[None], logits_BV, -jnp.inf)
    if greedy:
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
    logits_BV = logits_BV / settings.temperature
    if cut:
        logits_BV = cut_tail(logits_BV, settings.top_k, settings.top_p)
    return jax.vmap(jax.random.categorical)(keys_B, logits_BV).astype(jnp.int32)


def _write_on(
    model: AnyModel,
    params: Params,
    ids_BP: jax.Array,
    mask_BP: jax.Array,
    keys_B: jax.Array,
    settings: GenerationSettings,
    *,
    places: int,
    greedy: bool,
    cut: bool,
) -> Written:
    """Adds up to `settings.max_new` (at most `places`) tokens to texts padded on the left; rows of padding get none."""
    B, P = ids_BP.shape
    variables = {"params": params}
    last_B1 = jnp.full((B, 1), P - 1, jnp.int32)
    cache = empty_cache(model.config, B, P + places)
    output = model.apply(variables, ids_BP, mask_BP, cache=cache, positions_BM=last_B1)
    nothing = jnp.zeros((B, places), jnp.int32)
    written = Written(nothing, nothing.astype(jnp.float32), nothing[:, 0], ~mask_BP.any(axis=1))

    def going(state: _State) -> jax.Array:
        return (state.step < settings.max_new) & ~state.written.ended_B.all()

    def write(state: _State) -> _State:
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys_B, state.step)
        tokens_B = _choose(state.logits_BV, keys, settings, greedy, cut)
        log_probs_BV = jax.nn.log_softmax(state.logits_BV)
        chosen_B = jnp.take_along_axis(log_probs_BV, tokens_B[:, None], axis=-1)[:, 0]
        old = state.written
        put = lambda all_BT, new_B: all_BT.at[:, state.step].set(jnp.where(old.ended_B, 0, new_B))
        tokens_BT, log_probs_BT = put(old.tokens_BT, tokens_B), put(old.log_probs_BT, chosen_B)
        ended_B = old.ended_B | (tokens_B == settings.eos)
        new = Written(tokens_BT, log_probs_BT, old.count_B + ~old.ended_B, ended_B)
        after = model.apply(variables, tokens_B[:, None], cache=state.cache)
        return _State(state.step + 1, after.transformer.cache, after.logits[:, 0], new)

    start = _State(jnp.zeros((), jnp.int32), output.transformer.cache, output.logits[:, 0], written)
    return jax.lax.while_loop(going, write, start).written


def writer(model: AnyModel) -> Callable[..., Written]:
    """Returns `_write_on` for a model, compiled for each shape and each combination of `greedy` and `cut`."""
    return jax.jit(functools.partial(_write_on, model), static_argnames=("places", "greedy", "cut"))

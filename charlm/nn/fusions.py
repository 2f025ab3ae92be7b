"""Fusions: layers where two channels of the same positions meet. Open it to add one, or to see CharBERT's.

A fusion takes two channels [B, L, D], here of tokens and of their characters, and returns two.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.nn.embed import Dense, gelu, kernel_init, layer_norm
from charlm.nn.kernels import sum_dtype


class Channels(Protocol):
    """What a fusion reads of its model's config."""

    @property
    def hidden(self) -> int:
        """Width D of a channel."""
        ...

    @property
    def windows(self) -> tuple[int, ...]:
        """Positions under each convolution."""
        ...

    @property
    def epsilon(self) -> float:
        """Of a LayerNorm."""
        ...

    @property
    def initializer(self) -> Any:
        """See `charlm.nn.embed.kernel_init`."""
        ...

    @property
    def dtype(self) -> Any:
        """Of the inputs of matrix products, and of both channels."""
        ...


class Fusion(nn.Module):
    """What every fusion is: a subclass has a `__call__` as here, and makes its parameters in it or in `setup`."""

    config: Channels

    def __call__(
        self, tokens_BLD: jax.Array, chars_BLD: jax.Array, mask_BL1: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns both channels after they met, of the same shape and dtype.

        Args:
          mask_BL1: bool, True where a position is real; what is not must reach no other position. None: all are.
        """
        raise NotImplementedError

    @staticmethod
    def products(config: Channels) -> float:
        """Returns the multiplications of one layer for one position, see `charlm.core.flops`; 0: not counted."""
        return 0.0


class Convolved(Fusion):
    """Both channels side by side under convolutions over neighbouring positions, given back to each (CharBERT)."""

    bias = False  # of the linear layers before the convolutions

    def given_back(self, m_BLD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns what is mixed, and what of it each channel gets."""
        raise NotImplementedError

    def linear(self, name: str) -> Dense:
        """Returns a linear layer [.., D] -> [.., D]."""
        cfg = self.config
        return Dense(cfg.hidden, cfg.dtype, kernel_init(cfg.initializer), use_bias=self.bias, name=name)

    @nn.compact
    def __call__(
        self, tokens_BLD: jax.Array, chars_BLD: jax.Array, mask_BL1: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the channels after it; padding, where `mask_BL1` is False, reaches no other position."""
        cfg = self.config
        before = self.linear("word_linear")(tokens_BLD), self.linear("char_linear")(chars_BLD)
        mixed_BLE = jnp.concatenate(before, axis=-1)
        if mask_BL1 is not None:
            mixed_BLE = jnp.where(mask_BL1, mixed_BLE, 0)
        ends = [cfg.hidden * n // len(cfg.windows) for n in range(len(cfg.windows) + 1)]
        sizes = zip(cfg.windows, ends[:-1], ends[1:], strict=True)
        parts = [_convolution(cfg, n, size, end - start)(mixed_BLE) for n, (size, start, end) in enumerate(sizes)]
        m_BLD, to_tokens, to_chars = self.given_back(jnp.concatenate(parts, axis=-1).astype(cfg.dtype))
        self.sow("intermediates", "mixed", m_BLD)
        norm = functools.partial(layer_norm, cfg.epsilon, cfg.dtype)
        return norm(name="word_norm")(tokens_BLD + to_tokens), norm(name="char_norm")(chars_BLD + to_chars)

    @staticmethod
    def products(config: Channels) -> float:
        """Returns the multiplications of the linear layers before the convolutions, and of these."""
        return 2 * config.hidden**2 + _convolved(config)


class PaperInteraction(Convolved):
    """The heterogeneous interaction of CharBERT (section 3.4): tanh, and a GELU layer for each channel."""

    bias = True

    def given_back(self, m_BLD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns what is mixed, and a layer's worth of it for each channel."""
        m_BLD = jnp.tanh(m_BLD)
        return m_BLD, gelu(self.linear("word_split")(m_BLD)), gelu(self.linear("char_split")(m_BLD))

    @staticmethod
    def products(config: Channels) -> float:
        """Returns the multiplications of all its layers."""
        return 4 * config.hidden**2 + _convolved(config)


class ReleasedInteraction(Convolved):
    """The same in the released code of CharBERT: what the convolution gives is added to both channels as it is."""

    def given_back(self, m_BLD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns what is mixed three times."""
        return m_BLD, m_BLD, m_BLD


def _convolved(config: Channels) -> float:
    return sum(config.windows) * 2 * config.hidden * (config.hidden / len(config.windows))


def _convolution(cfg: Channels, n: int, size: int, filters: int) -> nn.Conv:
    """Returns a convolution over positions with as many outputs as inputs; zeros beyond both ends."""
    bound = 1 / math.sqrt(2 * cfg.hidden * size)  # PyTorch's nn.Conv1d, as the released code leaves it
    init = lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -bound, bound)
    padding = ((size - 1) // 2, size // 2)
    return nn.Conv(
        filters, (size,), padding=(padding,), dtype=sum_dtype(cfg.dtype), kernel_init=init, bias_init=init,
        name=f"convolution_{n}",
    )  # fmt: skip

"""Fusions: layers that combine two channels over the same positions, such as CharBERT's. Open it to add a fusion.

A fusion takes two channels [B, L, D], here of tokens and of their characters, and returns two of the same shape.
"""

from __future__ import annotations

import functools
import math
from typing import Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.embed import Dense, gelu, kernel_init, layer_norm
from charlm.nn.kernels import sum_dtype


class Channels(Protocol):
    """The part of a model's config that a fusion reads."""

    @property
    def hidden(self) -> int:
        """Width D of a channel."""
        ...

    @property
    def windows(self) -> tuple[int, ...]:
        """Number of positions under each convolution."""
        ...

    @property
    def epsilon(self) -> float:
        """Epsilon of the LayerNorms."""
        ...

    @property
    def initializer(self) -> str:
        """Name of the initialiser, see `charlm.nn.embed.kernel_init`."""
        ...

    @property
    def dtype(self) -> DTypeLike:
        """Dtype of the inputs of matrix products, and of both channels."""
        ...


class Fusion(nn.Module):
    """Base class of all fusions: a subclass defines `__call__` and makes its parameters in it or in `setup`."""

    config: Channels

    def __call__(
        self, tokens_BLD: jax.Array, chars_BLD: jax.Array, mask_BL1: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns both channels after they were combined, of the same shape and dtype.

        Args:
          mask_BL1: bool, True at real positions; padding must not affect any other position. None: all are real.
        """
        raise NotImplementedError

    @staticmethod
    def products(config: Channels) -> float:
        """Returns the multiplications of one layer per position, see `charlm.core.flops`; 0: they are not counted."""
        return 0.0


class Convolved(Fusion):
    """Base of CharBERT's fusions: convolves both channels, side by side, over positions and adds the result to each."""

    bias = False  # whether the linear layers have a bias

    def given_back(self, m_BLD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns the activated mixture, and what is added to the tokens and to the characters."""
        raise NotImplementedError

    def linear(self, name: str) -> Dense:
        """Returns a linear layer [.., D] -> [.., D]."""
        cfg = self.config
        return Dense(cfg.hidden, cfg.dtype, kernel_init(cfg.initializer), use_bias=self.bias, name=name)

    @nn.compact
    def __call__(
        self, tokens_BLD: jax.Array, chars_BLD: jax.Array, mask_BL1: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns both channels; padding, where `mask_BL1` is False, affects no other position."""
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
        """Returns the multiplications of the linear layers before the convolutions, and of the convolutions."""
        return 2 * config.hidden**2 + _convolved(config)


class PaperInteraction(Convolved):
    """The heterogeneous interaction of CharBERT (section 3.4): tanh, then a linear layer and GELU for each channel."""

    bias = True

    def given_back(self, m_BLD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns tanh of the mixture, and the output of a GELU layer on it for each channel."""
        m_BLD = jnp.tanh(m_BLD)
        return m_BLD, gelu(self.linear("word_split")(m_BLD)), gelu(self.linear("char_split")(m_BLD))

    @staticmethod
    def products(config: Channels) -> float:
        """Returns the multiplications of the four linear layers and the convolutions."""
        return 4 * config.hidden**2 + _convolved(config)


class ReleasedInteraction(Convolved):
    """The interaction in CharBERT's released code: the convolutions' output is added to both channels unchanged."""

    def given_back(self, m_BLD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns the mixture three times."""
        return m_BLD, m_BLD, m_BLD


def _convolved(config: Channels) -> float:
    return sum(config.windows) * 2 * config.hidden * (config.hidden / len(config.windows))


def _convolution(cfg: Channels, n: int, size: int, filters: int) -> nn.Conv:
    """Returns a convolution over positions with as many outputs as inputs, and zeros beyond both ends."""
    bound = 1 / math.sqrt(2 * cfg.hidden * size)  # the default of PyTorch's nn.Conv1d, which the released code keeps
    init = lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -bound, bound)
    padding = ((size - 1) // 2, size // 2)
    return nn.Conv(
        filters, (size,), padding=(padding,), dtype=sum_dtype(cfg.dtype), kernel_init=init, bias_init=init,
        name=f"convolution_{n}",
    )  # fmt: skip

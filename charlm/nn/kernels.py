"""How attention is computed: by the reference, or fused by cuDNN where that is possible, safe and worth it.

    mixed = softmax((query . key + sum of biases) * scale) . value

The reference keeps the scores in float32 and can return or drop probabilities. cuDNN's kernel (flash attention, through
`jax.nn.dot_product_attention`) never writes scores to memory. It is for inference: a gradient is always the
reference's, because cuDNN's own has given NaN for some lengths and strongly negative scores (pytorch#196678,
cudnn-frontend#1072), and training drops probabilities anyway. The biases are rounded to the dtype of the products: in
float32 it has given NaN (jax#32242).
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from charlm.nn.choices import KERNELS

MASKED_SCORE = -1e30  # finite, so that a row without any key gives finite values and gradients instead of NaN
_, EINSUM, CUDNN = KERNELS
SHORTEST = 128  # queries and keys of a tile of cuDNN's kernel; shorter windows would leave most of one empty

Biases = tuple[jax.Array, ...]
Drop = Callable[[jax.Array], jax.Array]
Shaped = jax.Array | jax.ShapeDtypeStruct  # an array, or what stands for one


class Machine(NamedTuple):
    """Where a program will run.

    Attributes:
      platform: "cpu", "gpu" or "tpu". capability: of an NVIDIA GPU its compute capability, (9, 0) of an H100.
      devices: over how many the mesh spreads the program.
    """

    platform: str
    capability: tuple[int, int] | None = None
    devices: int = 1


def this_machine() -> Machine:
    """Returns the machine that a program traced now is for."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]  # set when JAX is loaded
    device = chosen if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[0]
    number = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(device, "compute_capability", "")))
    devices = max(1, jax.sharding.get_abstract_mesh().size)
    return Machine(device.platform, (int(number[1]), int(number[2])) if number else None, devices)


def sum_dtype(dtype: Any) -> Any:
    """Returns the dtype of a product's factors and result such that its sums are float32: on CPUs that, else `dtype`.

    XLA for CPUs adds up the gradients of biases in bfloat16, and since 0.11 some products: sums of thousands of terms
    were up to 50 % off.
    """
    return jnp.float32 if this_machine().platform == "cpu" else dtype


def summed_in_float32(*factors: jax.Array) -> tuple[jax.Array, ...]:
    """Returns the factors of a product in `sum_dtype`."""
    return tuple(x.astype(sum_dtype(x.dtype)) for x in factors)


def product(subscripts: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns `jnp.einsum` of two arrays in float32, summed in float32 on the way back, too."""
    return jnp.einsum(subscripts, *summed_in_float32(x, y), preferred_element_type=jnp.float32)


def obstacle(machine: Machine, dtype: Any, head_dim: int) -> str:
    """Returns why cuDNN's kernel cannot run, "" when it can; see jax/_src/cudnn/fused_attention_stablehlo.py."""
    if machine.platform != "gpu" or (machine.capability or (0, 0)) < (8, 0):
        return f"it needs an NVIDIA GPU of compute capability 8.0 or more, got {machine}"
    if dtype not in (jnp.bfloat16, jnp.float16):
        return f"it needs bfloat16 or float16, got {dtype}"
    if head_dim % 8 or head_dim > 128:
        return f"it needs heads of a multiple of 8, at most 128, got {head_dim}"
    return ""


def choose(asked: str, machine: Machine, query_XYQK: Shaped, keys: int, probabilities: bool) -> str:
    """Returns `EINSUM` or `CUDNN`.

    Args:
      asked: "auto": what is best; "einsum": the reference; "cudnn": cuDNN for any length and on any mesh.
      keys: their number. probabilities: whether they are returned, or some of them dropped: the reference alone can.

    Raises:
      ValueError: `asked` is none of `KERNELS`, or "cudnn" where it cannot run.
    """
    if asked not in KERNELS:
        raise ValueError(f"attention_kernel={asked!r} is not one of {', '.join(KERNELS)}")
    *_, queries, head_dim = query_XYQK.shape
    why_not = obstacle(machine, query_XYQK.dtype, head_dim)
    if asked == CUDNN and why_not:
        raise ValueError(f"attention_kernel={CUDNN!r}: {why_not}")
    if asked == EINSUM or why_not or probabilities:
        return EINSUM
    # Compute capability 10.3 needs cuDNN 9.11, and JAX does not tell which there is.
    best = min(queries, keys) >= SHORTEST and machine.devices == 1 and machine.capability != (10, 3)
    return CUDNN if best or asked == CUDNN else EINSUM


def attend(
    asked: str,
    query_XYQK: jax.Array,
    key_XYNK: jax.Array,
    value_XYNK: jax.Array,
    visible_XYQN: jax.Array,
    *,
    biases: Biases = (),
    scale: float = 1.0,
    drop: Drop | None = None,
    probabilities: bool,
) -> tuple[jax.Array, jax.Array | None]:
    """Mixes the values that each query sees. X and Y are batch and heads, in either order.

    Args:
      asked: which kernel, see `choose`.
      visible_XYQN: bool, broadcast over all axes but N: True where a query sees a key. Hidden keys get probability
        exactly 0; a query that sees none gets finite values that mean nothing.
      biases: float32 [X, Y, Q, N], added one after the other: their sum would be one more array of that size.
      scale: of products and biases.
      drop: what the probabilities pass through before they are used.
      probabilities: whether the caller reads them.

    Returns:
      [X, Y, Q, K], and probabilities, float32 before `drop`; None where they are not read and the kernel has none.
    """
    machine = this_machine()
    if choose(asked, machine, query_XYQK, key_XYNK.shape[2], probabilities or drop is not None) == CUDNN:
        return _fused(query_XYQK, key_XYNK, value_XYNK, visible_XYQN, biases, scale), None
    return _reference(query_XYQK, key_XYNK, value_XYNK, visible_XYQN, biases, scale, drop)


def _reference(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    visible: jax.Array,
    biases: Biases,
    scale: float,
    drop: Drop | None = None,
) -> tuple[jax.Array, jax.Array]:
    scores = product("xyqk,xynk->xyqn", query, key)
    for bias in biases:
        scores += bias
    if scale != 1:
        scores *= scale
    probs = jax.nn.softmax(jnp.where(visible, scores, MASKED_SCORE), axis=-1)
    dropped = probs if drop is None else drop(probs)
    mixed = jnp.einsum("xyqn,xynk->xyqk", *summed_in_float32(dropped.astype(value.dtype), value))
    return mixed.astype(value.dtype), probs


def _by_cudnn(
    query: jax.Array, key: jax.Array, value: jax.Array, visible: jax.Array, biases: Biases, scale: float
) -> jax.Array:
    # cuDNN gets the mask as a bias: spread over the queries, which it does not do itself, and with a key for the query
    # that has none, because it is strongly negative rows that it has computed wrongly.
    visible = visible | ~visible.any(axis=-1, keepdims=True)
    visible = jnp.broadcast_to(visible, (*visible.shape[:2], query.shape[2], key.shape[2]))
    bias = (functools.reduce(operator.add, biases) * scale).astype(query.dtype) if biases else None
    query, key, value = (y.swapaxes(1, 2) for y in (query, key, value))
    mixed = jax.nn.dot_product_attention(query, key, value, bias, visible, scale=scale, implementation="cudnn")
    return mixed.swapaxes(1, 2)


_fused = jax.custom_vjp(_by_cudnn, nondiff_argnums=(5,))


def _fused_forward(
    query: jax.Array, key: jax.Array, value: jax.Array, visible: jax.Array, biases: Biases, scale: float
) -> tuple[jax.Array, Any]:
    return jax.vjp(lambda q, k, v, b: _reference(q, k, v, visible, b, scale)[0], query, key, value, biases)


def _fused_backward(scale: float, backward: Any, grad: jax.Array) -> tuple[Any, ...]:
    query, key, value, biases = backward(grad)
    return query, key, value, None, biases


_fused.defvjp(_fused_forward, _fused_backward)

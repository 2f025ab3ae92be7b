"""Chooses how attention is computed: by the reference, or by a fused kernel where that is possible, safe and better.

    mixed = softmax((query . key + sum of biases) * scale) . value

The reference keeps the scores in float32, and it can return probabilities or apply dropout to them. cuDNN's kernel
(flash attention, through `jax.nn.dot_product_attention`) never writes scores to memory. It is used for inference only:
gradients always come from the reference, because cuDNN's have been NaN for some lengths and strongly negative scores
(pytorch#196678, cudnn-frontend#1072), and training drops probabilities anyway. For cuDNN the biases are rounded to the
dtype of the products; in float32 they have given NaN (jax#32242).

The third way are kernels of our own for TPUs and GPUs, `charlm.nn.tiled`, for inference and training, with dropout.
They take relative positions before they become biases, so the modules that can use them ask `choose_tiled` and call
them themselves. On Hopper GPUs they come first; cuDNN's has what they cannot do, such as causal masks. They are
imported where they are used, since Pallas takes a fifth of a second to import. Open this module to add a kernel, or to
see why one was chosen (`choose`).
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.choices import KERNELS, Chip

MASKED_SCORE = -1e30  # finite, so that a query without any key gives finite values and gradients, not NaN
AUTO, EINSUM, CUDNN, PALLAS = KERNELS  # a new kernel needs a name here, too
SHORTEST_CUDNN = 128  # queries and keys from which "auto" takes cuDNN: its tiles would be mostly empty

Biases = tuple[jax.Array, ...]
Drop = Callable[[jax.Array], jax.Array]
Shaped = jax.Array | jax.ShapeDtypeStruct  # an array, or its shape and dtype alone


class Machine(NamedTuple):
    """The machine that a program will run on.

    Attributes:
      platform: "cpu", "gpu" or "tpu".
      capability: compute capability of an NVIDIA GPU, such as (9, 0) for an H100.
      devices: number of devices over which the mesh spreads the program.
      here: whether the machine is there to be asked; False where a program is compiled for one elsewhere.
    """

    platform: str
    capability: tuple[int, int] | None = None
    devices: int = 1
    here: bool = True

    @property
    def tiles(self) -> Chip:
        """The chip whose tiles are computed (`charlm.nn.tiled`); CPUs interpret those of TPUs."""
        return "gpu" if self.platform == "gpu" else "tpu"


def this_machine() -> Machine:
    """Returns the machine that a program traced at this moment will run on."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]  # set when JAX is loaded
    device = chosen if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[0]
    number = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(device, "compute_capability", "")))
    devices = max(1, jax.sharding.get_abstract_mesh().size)
    capability = (int(number[1]), int(number[2])) if number else None
    client = type(getattr(device, "client", None)).__name__  # JAX has no public name for the class of absent machines
    return Machine(device.platform, capability, devices, not client.startswith("CompileOnly"))


def device_count() -> int:
    """Returns the number of devices, of all processes, of the backend that a program traced at this moment is for."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]  # set when JAX is loaded
    return chosen.client.device_count() if isinstance(chosen, jax.Device) else jax.device_count()


def sum_dtype(dtype: DTypeLike) -> DTypeLike:
    """Returns the dtype that a product's factors and result need so that it sums in float32.

    That is float32 on CPUs and `dtype` elsewhere. XLA for CPUs adds up the gradients of biases in bfloat16, and since
    0.11 those of some products, too: sums of thousands of terms were up to 50 % off.
    """
    return jnp.float32 if this_machine().platform == "cpu" else dtype


def summed_in_float32(*factors: jax.Array) -> tuple[jax.Array, ...]:
    """Returns the factors of a product, converted to `sum_dtype`."""
    return tuple(x.astype(sum_dtype(x.dtype)) for x in factors)


def product(subscripts: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns `jnp.einsum` of two arrays in float32; the gradient is summed in float32, too."""
    return jnp.einsum(subscripts, *summed_in_float32(x, y), preferred_element_type=jnp.float32)


def obstacle(machine: Machine, dtype: DTypeLike, head_dim: int) -> str:
    """Returns the reason why cuDNN's kernel cannot run, or ""; see jax/_src/cudnn/fused_attention_stablehlo.py."""
    if machine.platform != "gpu" or (machine.capability or (0, 0)) < (8, 0):
        return f"it needs an NVIDIA GPU of compute capability 8.0 or more, got {machine}"
    if not machine.here:
        return "it is a library of the machine that the program is for, which is not here"
    if dtype not in (jnp.bfloat16, jnp.float16):
        return f"it needs bfloat16 or float16, got {dtype}"
    if head_dim % 8 or head_dim > 128:
        return f"it needs heads of a multiple of 8, at most 128, got {head_dim}"
    return ""


def choose_tiled(asked: str, machine: Machine, query_QK: Shaped, keys: int, probabilities: bool) -> bool:
    """Returns whether `charlm.nn.tiled` computes an attention that it can compute: one with a mask of keys alone.

    "pallas" takes it wherever it runs; on a CPU that is in an interpreter, for tests. "auto" takes it on Hopper GPUs,
    where it was the fastest at 512 and 2,048 words with heads of 64, and inside words (docs/benchmarks.md); between
    these it was not measured. TPUs have not run it yet, so there it must be asked for. Windows that would leave most of
    a tile empty stay with the reference in any case.

    Args:
      asked: as in `choose`.
      query_QK: the queries of a head.
      keys: number of keys.
      probabilities: whether probabilities are returned, which only the reference can do. The kernels do drop them.

    Raises:
      ValueError: `asked` is not in `KERNELS`, or it is "pallas" where the kernels cannot run.
    """
    if asked not in KERNELS:
        raise ValueError(f"attention_kernel={asked!r} is not one of {', '.join(KERNELS)}")
    if asked not in (AUTO, PALLAS):
        return False
    if asked == AUTO and (machine.platform != "gpu" or (machine.capability or (0,))[0] != 9):
        return False
    from charlm.nn import tiled

    why_not = tiled_obstacle(machine, query_QK, keys)
    if asked == PALLAS and why_not:
        raise ValueError(f"attention_kernel={PALLAS!r}: {why_not}")
    return not (why_not or probabilities) and tiled.fills(query_QK.shape[0], keys, machine.tiles)


def tiled_obstacle(machine: Machine, query_QK: Shaped, keys: int) -> str:
    """Returns the reason why the kernels of `charlm.nn.tiled` cannot run, or ""."""
    # For an A100, of 8.0, the compiler keeps much of a tile outside of the registers.
    if machine.platform not in ("tpu", "cpu") and (machine.capability or (0, 0)) < (9, 0):
        return f"it needs a TPU, an NVIDIA GPU of compute capability 9.0 or more, or a CPU for tests, got {machine}"
    from charlm.nn import tiled

    return tiled.obstacle(query_QK, keys, machine.tiles)


def choose(asked: str, machine: Machine, query_XYQK: Shaped, keys: int, probabilities: bool) -> str:
    """Returns the kernel of `attend`, `EINSUM` or `CUDNN`.

    Args:
      asked: "auto": the best one; "einsum": the reference; "cudnn": cuDNN for any length and on any mesh; "pallas": the
        reference, since what the tiles compute does not come here (`choose_tiled`).
      keys: number of keys.
      probabilities: whether probabilities are returned or dropped, which only the reference can do.

    Raises:
      ValueError: `asked` is not in `KERNELS`, or it is "cudnn" where cuDNN cannot run.
    """
    if asked not in KERNELS:
        raise ValueError(f"attention_kernel={asked!r} is not one of {', '.join(KERNELS)}")
    *_, queries, head_dim = query_XYQK.shape
    why_not = obstacle(machine, query_XYQK.dtype, head_dim)
    if asked == CUDNN and why_not:
        raise ValueError(f"attention_kernel={CUDNN!r}: {why_not}")
    if asked in (EINSUM, PALLAS) or why_not or probabilities:
        return EINSUM
    # Compute capability 10.3 needs cuDNN 9.11, and JAX does not say which version is installed.
    best = min(queries, keys) >= SHORTEST_CUDNN and machine.devices == 1 and machine.capability != (10, 3)
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
    """Returns for each query the weighted mean of the values it sees. X and Y are batch and heads, in either order.

    Args:
      asked: the kernel as in `choose`.
      visible_XYQN: bool, broadcast over all axes but N: True where a query sees a key. Hidden keys get probability
        exactly 0; the output of a query that sees no key is finite but meaningless.
      biases: float32 [X, Y, Q, N], added one after the other: their sum would be one more array of that size.
      scale: factor of products and biases.
      drop: dropout, applied to the probabilities before they are used.
      probabilities: whether the caller reads the probabilities.

    Returns:
      [X, Y, Q, K], and the probabilities in float32 before `drop`, or None where they are not read and the kernel has
      none.
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
    # cuDNN gets the mask broadcast over the queries, since it does not broadcast itself. A query that sees no key gets
    # all keys here, because cuDNN has computed wrong values for rows that are strongly negative throughout.
    visible = visible | ~visible.any(axis=-1, keepdims=True)
    visible = jnp.broadcast_to(visible, (*visible.shape[:2], query.shape[2], key.shape[2]))
    bias = (functools.reduce(operator.add, biases) * scale).astype(query.dtype) if biases else None
    query, key, value = (y.swapaxes(1, 2) for y in (query, key, value))
    mixed = jax.nn.dot_product_attention(query, key, value, bias, visible, scale=scale, implementation="cudnn")
    return mixed.swapaxes(1, 2)


# From the gradient of the result to those of query, key, value and biases.
Pullback = Callable[[jax.Array], tuple[jax.Array, jax.Array, jax.Array, Biases]]
_fused = jax.custom_vjp(_by_cudnn, nondiff_argnums=(5,))


def _fused_forward(
    query: jax.Array, key: jax.Array, value: jax.Array, visible: jax.Array, biases: Biases, scale: float
) -> tuple[jax.Array, Pullback]:
    return jax.vjp(lambda q, k, v, b: _reference(q, k, v, visible, b, scale)[0], query, key, value, biases)


def _fused_backward(scale: float, backward: Pullback, grad: jax.Array) -> tuple[jax.Array | Biases | None, ...]:
    query, key, value, biases = backward(grad)
    return query, key, value, None, biases


_fused.defvjp(_fused_forward, _fused_backward)

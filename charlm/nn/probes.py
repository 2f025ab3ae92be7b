"""Reads what the attention layers of a model multiply with, in a real call: the probabilities of every layer.

Open it to see where the numbers come from that `charlm.show` draws. Every layer of attention in charlm records its
probabilities in flax's collection `intermediates`, if that is mutable; the fused kernels never write them to memory, so
such a call is computed by the reference (`charlm.nn.kernels`).
"""

from __future__ import annotations

import re
from typing import Any

import flax.linen as nn
import jax
from flax import traverse_util
from flax.typing import VariableDict

PROBABILITIES = "probs"  # the name under which layers record them
_LAYER = re.compile(r"^(.*?)/?layer_(\d+)/")

# The probabilities of each stack of layers, [B, H, Q, N] each: how much each of Q positions reads from each of N.
Stacks = dict[str, list[jax.Array]]


# Any: what the method takes and returns
def probed(model: nn.Module, params: VariableDict, *inputs: Any, method: str | None = None) -> tuple[Any, Stacks]:
    """Returns what a model returns without dropout, and the probabilities of its attention, float32.

    Args:
      params: the parameters, without the name of their collection.
      inputs: arguments of `method`.
      method: the name of a method of the model; None: `__call__`.

    Returns:
      The output, and for each stack of layers, by the name of the module that holds them ("bert/encoder"), the
      probabilities of its layers in order. If a layer is called several times, those of its last call.
    """
    output, recorded = model.apply({"params": params}, *inputs, method=method, mutable=["intermediates"])
    found: dict[str, dict[int, jax.Array]] = {}
    flat: dict[str, Any] = traverse_util.flatten_dict(recorded.get("intermediates", {}), sep="/")  # tuples of arrays
    for path, values in flat.items():
        layer = _LAYER.match(path)
        if layer and path.rpartition("/")[2] == PROBABILITIES:
            found.setdefault(layer[1], {})[int(layer[2])] = values[-1]
    return output, {stack: [layers[n] for n in sorted(layers)] for stack, layers in found.items()}

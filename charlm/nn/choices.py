"""The names of kernels, initialisers, activations and positions, for types, checks and command lines; imports no JAX.

Open it to add the name of a new kernel (`kernels`), initialiser (`embed`), activation or kind of position (`blocks`).
"""

from typing import Literal, get_args

Kernel = Literal["auto", "einsum", "cudnn", "pallas"]  # how attention is computed, see `charlm.nn.kernels.choose`
InitializerName = Literal["bert", "torch", "lecun"]  # see `charlm.nn.embed.kernel_init`
Chip = Literal["tpu", "gpu"]  # whose tiles the kernels compute, see `charlm.nn.tiled`
ActivationName = Literal["gelu", "gelu_new", "relu"]  # see `charlm.nn.blocks.ACTIVATION_FUNCTIONS`
PositionName = Literal["absolute", "rotary"]  # what tells a plain Transformer where a token stands
KERNELS: tuple[str, ...] = get_args(Kernel)
INITIALIZERS: tuple[str, ...] = get_args(InitializerName)
ACTIVATIONS: tuple[str, ...] = get_args(ActivationName)
POSITIONS: tuple[str, ...] = get_args(PositionName)

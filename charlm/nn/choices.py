"""The names of kernels, initialisers and activations, for types, checks and command lines; imports no JAX."""

from typing import Literal, get_args

Kernel = Literal["auto", "einsum", "cudnn"]  # how attention is computed, see `charlm.nn.kernels.choose`
Initializer = Literal["bert", "torch", "lecun"]  # see `charlm.nn.embed.kernel_init`
Activation = Literal["gelu", "gelu_new", "relu"]  # see `charlm.nn.blocks.ACTIVATIONS`
KERNELS: tuple[str, ...] = get_args(Kernel)
INITIALIZERS: tuple[str, ...] = get_args(Initializer)
ACTIVATIONS: tuple[str, ...] = get_args(Activation)

"""charlm: language models that look inside words, in JAX and Flax.

Importing it gives `from_pretrained` and `Pretrained` (`charlm.families.pretrained`), and imports no JAX until one of
them is used. `charlm.main` is the command that trains, `charlm.predict` the one that applies a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained, from_pretrained

__version__ = "0.1.0"
__all__ = ["Pretrained", "from_pretrained"]


def __getattr__(name: str) -> object:
    """Imports the models when they are asked for: the command lines' help needs no JAX."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import charlm.families.pretrained

    return getattr(charlm.families.pretrained, name)

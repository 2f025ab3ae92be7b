"""charlm: language models that look inside words, in JAX and Flax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained, from_pretrained

__version__ = "0.1.0"
__all__ = ["Pretrained", "from_pretrained"]


def __getattr__(name: str) -> Any:
    """Imports the models when they are asked for: the command lines' help needs no JAX."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import charlm.families.pretrained

    return getattr(charlm.families.pretrained, name)

"""charlm: language models that look inside words, in JAX and Flax.

    model = charlm.load("runs/hlm")  # any model: a workdir, a checkpoint, a folder of Hugging Face
    model("Return the [MASK] of the list.")
    tagger = charlm.finetune(model, train=rows, task="tag")
    charlm.noise("keyboard:0.1")("I did not see the cat.")
    charlm.robustness(tagger, test_rows).show()
    charlm.show(model, "I did not see teh cat.")
    charlm.to_pandas(tagger(["I did not see teh cat."]))

Importing it gives these functions (`charlm.api`), `from_pretrained` and `Pretrained` (`charlm.families.pretrained`),
and imports no JAX until one of them is used. `charlm.main` is the command that trains, `charlm.predict` the one that
applies a model. Compiled programs are kept for the next process (`charlm.core.programs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from charlm.core.called import give
from charlm.core.programs import keep_programs
from charlm.core.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from charlm.api.model import Model, load
    from charlm.api.noise import noise
    from charlm.api.reports import Report, robustness
    from charlm.api.showing import show
    from charlm.api.tables import to_pandas
    from charlm.api.training import finetune
    from charlm.families.pretrained import Pretrained, from_pretrained
    from charlm.show.shown import Shown

__all__ = [
    "Model",
    "Pretrained",
    "__version__",
    "finetune",
    "from_pretrained",
    "load",
    "noise",
    "robustness",
    "show",
    "to_pandas",
]


def __getattr__(name: str) -> object:
    """Imports the models when they are asked for: the command lines' help needs no JAX."""
    if name in __all__:
        keep_programs()  # as the commands do; it does nothing if the caller has imported JAX
    if name in ("Model", "load"):
        from charlm.api import model as found
    elif name == "noise":
        from charlm.api import noise as found
    elif name == "to_pandas":
        from charlm.api import tables as found
    elif name in ("Pretrained", "from_pretrained"):
        from charlm.families import pretrained as found
    elif name == "finetune":  # a package, which can be called
        import charlm.finetune

        return charlm.finetune
    elif name == "robustness":  # another
        import charlm.robustness

        return charlm.robustness
    elif name == "show":  # another
        import charlm.show

        return charlm.show
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(found, name)


def __dir__() -> list[str]:
    """The public names, which completion offers, also those that are not imported yet."""
    return sorted(__all__)


def _finetune() -> Callable[..., Model]:
    from charlm.api.training import finetune

    return finetune


def _robustness() -> Callable[..., Report]:
    from charlm.api.reports import robustness

    return robustness


def _show() -> Callable[..., Shown]:
    from charlm.api.showing import show

    return show


give("charlm.finetune", _finetune)
give("charlm.robustness", _robustness)
give("charlm.show", _show)

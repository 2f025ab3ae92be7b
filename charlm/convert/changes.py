"""The error for changes to config fields that a model does not have; a module of its own, to be used without JAX."""

from __future__ import annotations

from collections.abc import Sequence


class NotChangeable(ValueError):
    """Raised when fields are to be changed that the config of the model's family does not have.

    Attributes:
      names: names of the fields. family: family of the model.
    """

    def __init__(self, reason: str, names: Sequence[str], family: str) -> None:
        super().__init__(reason)
        self.names, self.family = names, family

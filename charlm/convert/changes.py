"""What is said when fields of a model's config are to be changed that it does not have. Needs no JAX."""

from __future__ import annotations

from collections.abc import Sequence


class NotChangeable(ValueError):
    """Fields that are to be changed, and which the config of a family does not have.

    Attributes:
      names: of the fields. family: of the model.
    """

    def __init__(self, reason: str, names: Sequence[str], family: str) -> None:
        super().__init__(reason)
        self.names, self.family = names, family

"""The error that is raised when a config field is to be changed that the model does not have.

It is a module of its own so that code without JAX can catch it.
"""

from __future__ import annotations

from collections.abc import Sequence


class NotChangeable(ValueError):
    """Raised when fields are to be changed that the config of the model's family does not have.

    Attributes:
      names: names of the fields.
      family: family of the model.
    """

    def __init__(self, reason: str, names: Sequence[str], family: str) -> None:
        super().__init__(reason)
        self.names, self.family = names, family

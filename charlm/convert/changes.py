"""The error that is raised when the user changes a config field that the model does not have.

Use it in code that changes fields of a stored model's config. It is a module of its own so that code without JAX can
catch it.
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

"""PyTorch, an optional package that benchmarks compare with and conversion reads files by: here without types."""

from typing import Any

def __getattr__(name: str) -> Any: ...

"""onnxruntime, an optional package that benchmarks compare with: here without types."""

from typing import Any

def __getattr__(name: str) -> Any: ...

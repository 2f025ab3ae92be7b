"""ONNX, a file format of models that the benchmark writes for a peer: here without types."""

from typing import Any

def __getattr__(name: str) -> Any: ...

"""Writes models for programs that do not have charlm: `charlm export`.

`program` is a model as one function of plain arrays, `stablehlo` and `onnx` write it for JAX and for ONNX's runtimes,
`readme` says in the written folder how it is used.
"""

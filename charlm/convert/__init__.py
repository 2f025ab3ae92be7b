"""Converts weights to and from PyTorch, with one table of rules per family that is used in both directions.

In this package, "theirs" is the PyTorch side (the authors' code or transformers), "ours" is charlm's. Begin with
`rules` (how tensor names map to parameters) and `model` (the interface that a family implements).
"""

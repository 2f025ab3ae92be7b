"""Packs a trained model as those that charlm carries: a compact checkpoint and a model card in one folder.

Begin with `packing`; `facts` reads from a run what its card says, and `card` writes it.
"""

"""Writes models for programs that do not have charlm: `charlm export`.

`program` is a model as one function of plain arrays, `stablehlo` writes it for JAX, `words` the vectors of frequent
words for charlm itself; `readme` says in the written folder how the program is used. `sentence_folder` writes a model
for sentence-transformers, which loads it by `sentence_module`.
"""

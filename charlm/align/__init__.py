"""Aligns a model with the vectors of another: noisy text is to have the vector that a teacher gives the clean text.

For an index that exists: documents keep their vectors, and a student reads the queries. Begin with `objective`;
`config` has the keys, `run` trains and keeps the best student. `charlm.families.alignment` is what this shares with
Char2Subword's stage of that name.
"""

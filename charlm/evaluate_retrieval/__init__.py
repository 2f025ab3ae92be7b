"""Measures how retrieval holds up under typos: queries with noise, rivals with spelling correction, intervals by query.

`python -m charlm.evaluate_retrieval` is the command. Begin with `data` (BEIR's files, and SQuAD's as an index) and
`intents` (labelled texts, whose classes are found), then `measure` (what is embedded and scored) and `report`.
"""

"""The parts shared by families that read some or all words from their characters: batches, models, units, predictors.

Char2Subword, CharacterBERT and XRayEmb build on them. Begin with `batch` (what a model reads) and `model`.
"""

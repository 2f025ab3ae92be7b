"""Shared by the families that read some or all words from their characters: batches, models, units, predictors."""

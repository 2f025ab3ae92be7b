"""What users call from Python: `charlm.load`, `charlm.finetune` and `charlm.noise`, and the types of their results.

They are thin: `model` wraps the predictors, `training` writes rows to files and fine-tunes on them, `noise` is the
language of `charlm.text.noise`, and `results` holds the dataclasses that they return. Open `model` first.
"""

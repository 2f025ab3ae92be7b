"""What users call from Python, `charlm.load`, `charlm.finetune`, `charlm.robustness`, `charlm.noise`, and the results.

They are thin: `model` wraps the predictors, `training` writes rows to files and fine-tunes on them, `reports` measures
robustness, `noise` is the language of `charlm.text.noise`, and `results` holds the dataclasses that they return. Open
`model` first.
"""

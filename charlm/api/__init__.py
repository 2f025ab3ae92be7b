"""What users call from Python, `charlm.load`, `finetune`, `robustness`, `show` and `noise`, and the results.

They are thin: `model` wraps the predictors, `training` writes rows to files and fine-tunes on them, `reports` measures
robustness, `showing` shows attention, `noise` is the language of `charlm.text.noise`, and `results` holds the
dataclasses that they return. Open `model` first.
"""

"""Pre-training of every family, and the training loop that fine-tuning uses, too.

Begin with `train`, which runs pre-training from start to end, and with `loop`, which takes its steps.
"""

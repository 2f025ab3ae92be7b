"""Pre-training of every family, and the training loop that fine-tuning uses, too."""

"""What a model is trained for: the loss of a batch and its metrics."""

"""Weights to and from the authors' PyTorch code: one rule table per family, read in both directions."""

"""Turns raw text into words, subwords, characters and noised text; imports neither jax nor TensorFlow."""

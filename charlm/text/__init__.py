"""From raw text to words, characters and noise; imports neither jax nor TensorFlow."""

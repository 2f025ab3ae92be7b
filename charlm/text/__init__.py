"""Turns raw text into words, subwords, characters and noised text; imports neither jax nor TensorFlow.

Begin with `words` (text into words), `chars` (words into character ids) or `subwords` (published tokenizers); `noise`
makes typos.
"""

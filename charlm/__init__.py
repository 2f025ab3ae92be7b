"""charlm: language models that look inside words, in JAX and Flax."""

__version__ = "0.1.0"

"""The model families, their heads and their outputs."""

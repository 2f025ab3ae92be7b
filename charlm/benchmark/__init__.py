"""Measures speed and memory on real text, beside other models: `python -m charlm.benchmark`."""

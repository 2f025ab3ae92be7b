"""Speed and memory, measured on real text: `python -m charlm.benchmark`."""

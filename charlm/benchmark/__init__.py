"""Speed and memory, measured on real text beside other models: `python -m charlm.benchmark`."""

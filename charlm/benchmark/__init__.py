"""Measures speed and memory on real text, beside other models: `python -m charlm.benchmark`.

Begin with `__main__`, whose text says what each case measures and how; `cases` runs the paths side by side.
"""

"""The tasks of fine-tuning: how each reads its examples, computes its loss, and predicts and scores labels.

Begin with `base`, which defines what a task is; `table` lists the tasks.
"""

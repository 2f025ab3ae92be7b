"""Fine-tuning, the same for every family of models (`charlm.families.units`) and every task (`charlm.tasks`).

`run` is the whole command, `fine_tuning` one run of it. `batching` packs rows of units into batches of a few shapes,
`model` puts a task's head on a pre-trained model, `course` decides when to evaluate and stop, `evaluate` predicts.
Begin with `fine_tuning`.
"""

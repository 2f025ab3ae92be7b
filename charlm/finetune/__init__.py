"""Fine-tuning: one road for every family of models (`charlm.families.units`) and every task (`charlm.tasks`).

`batching` lays rows of units out in batches of a few shapes, `model` puts a task's head on a pre-trained model, `loop`
trains and evaluates.
"""

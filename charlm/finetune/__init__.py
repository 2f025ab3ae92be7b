"""Fine-tuning, the same for every family of models (`charlm.families.units`) and every task (`charlm.tasks`).

`run` is the whole command, `fine_tuning` one run of it. `batching` packs rows of units into batches of a few shapes,
`model` puts a task's head on a pre-trained model, `course` decides when to evaluate and stop, `evaluate` predicts.
Begin with `fine_tuning`. The package can be called: `charlm.finetune(model, rows, task="classify")` is the function of
`charlm.api.training`.
"""

from charlm.core.called import make_callable

make_callable(__name__)

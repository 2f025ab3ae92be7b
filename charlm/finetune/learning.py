"""What the training loop needs to fine-tune a task: its loss as a `Learning`, its learning rate and its optimizer.

Open it to change the learning rate or the optimizer of fine-tuning. The loss itself is the task's (`charlm.tasks`).
"""

from __future__ import annotations

from collections.abc import Collection

import jax
import ml_collections
import optax

from charlm.core.flops import TRAINING
from charlm.core.learning import Learning
from charlm.core.optimizer import learning_rate, make_optimizer
from charlm.core.types import Params
from charlm.families.family import Family
from charlm.families.pretrained import Pretrained
from charlm.families.units import Units
from charlm.finetune.batching import Packed, TaskBatch, of_rows
from charlm.tasks.base import AnyTask, TaskSums


def rate_of(config: ml_collections.ConfigDict, steps: int, peak: float | None = None) -> optax.Schedule:
    """Returns the learning-rate schedule of a fine-tuning run of `steps` steps; peak None: `optim.learning_rate`."""
    return learning_rate(config.optim, steps, round(config.optim.warmup_share * steps), peak)


def optimizer_of(
    config: ml_collections.ConfigDict, steps: int, family: Family, new: Collection[str]
) -> optax.GradientTransformation:
    """Returns the optimizer of a fine-tuning run.

    Args:
      steps: length of the whole run.
      family: family of the model.
      new: names of randomly initialised parameters.
    """
    head = config.optim.head_learning_rate
    own_rate = rate_of(config, steps, head) if head else None
    return make_optimizer(config.optim, rate_of(config, steps), family.undecayed, new, own_rate)


class TaskLearning(Learning):
    """The loss of a task and its metrics.

    Args:
      task: the task, with its labels set.
      model: a model with the task's head.
      units: text side of the model.
    """

    sums = TaskSums
    unit = "rows"

    def __init__(self, task: AnyTask, model: Pretrained, units: Units) -> None:
        self._task, self._model, self._units = task, model, units

    def loss_sums(self, params: Params, micro_batch: TaskBatch, dropout_key: jax.Array | None) -> TaskSums:
        """Returns the sums of a micro-batch [S, ...]."""
        read = self._units.apply(self._model.model, params, micro_batch.inputs, dropout_key)
        logits = of_rows(read, micro_batch.places)
        targets = {name: x.reshape(-1, *x.shape[2:]) for name, x in micro_batch.targets.items()}
        return self._task.sums(logits, targets)

    def count(self, batch: Packed) -> int:
        """Returns the number of rows of this process."""
        return batch.rows

    def training_flops(self, batch: Packed) -> float:
        """Returns the useful operations of a step, without the task's small head."""
        return TRAINING * self._units.forward_flops(self._model.config, batch.batch.inputs)

    def summarize(self, sums: TaskSums) -> dict[str, float]:
        """Returns the mean loss (nats, or squared errors) and the share of exactly right predictions."""
        weight = max(float(sums.weight), 1.0)
        return {"loss": float(sums.loss) / weight, "right": float(sums.right) / weight}

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the text with the loss and the share of right predictions."""
        return f"loss {scalars['loss']:.4f}  right {100 * scalars['right']:.1f} %"

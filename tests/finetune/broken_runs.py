"""Runs a fine-tuning twice, once in one go and once killed and resumed, and compares everything that they leave."""

from __future__ import annotations

from pathlib import Path

import jax
import ml_collections
import numpy as np
import pytest
from finetune.test_fine_tuning import Killed
from small_run import on_devices

from charlm.core.types import Tree
from charlm.families.pretrained import from_pretrained
from charlm.finetune.batching import Packer
from charlm.finetune.run import fine_tune
from charlm.finetune.strips import Group
from charlm.tasks.base import Row


def check_resumed(config: ml_collections.ConfigDict, folder: Path, batches: int) -> None:
    """Asserts that a run that is killed after so many batches, and resumed, ends as the one in `folder / "whole"`.

    Batches to predict count, too. Results are equal, and every parameter to the bit.
    """
    pack, packed = Packer.inputs, 0

    def dying(self: Packer, rows: list[Row], group: Group) -> Tree:
        nonlocal packed
        packed += 1
        if packed > batches:
            raise Killed
        return pack(self, rows, group)

    with on_devices(1):
        whole = fine_tune(config, str(folder / "whole"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Packer, "inputs", dying)
            with pytest.raises(Killed):
                fine_tune(config, str(folder / "broken"))
        assert fine_tune(config, str(folder / "broken"))["runs"] == whole["runs"]
    one, two = (from_pretrained(folder / name).params for name in ("whole", "broken"))
    jax.tree.map(np.testing.assert_array_equal, one, two)

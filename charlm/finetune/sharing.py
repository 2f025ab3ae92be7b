"""Whether the rows of fine-tuning and of its predictions may share strips; open it to change where that is done."""

from __future__ import annotations

from jax.sharding import Mesh

from charlm.families.labels import LSTMS
from charlm.families.pretrained import Pretrained
from charlm.families.units import Units
from charlm.finetune.strips import Sharing


def may_share(sharing: Sharing, model: Pretrained, units: Units, mesh: Mesh) -> bool:
    """Returns whether rows share strips (`charlm.finetune.strips`).

    With "auto" they do on processors, where work that is left out is time saved; on accelerators, fused attention reads
    strips of one row alone.

    Raises:
      ValueError: they have to, but the model cannot tell rows in a strip apart.
    """
    if sharing == "no":
        return False
    able = units.shares_rows and model.metadata.get("label_head") not in LSTMS  # an LSTM reads on into the next row
    if sharing == "yes":
        if not able:
            raise ValueError(
                f"data.share_rows=yes: a model of the kind {model.title} with this head reads one text a row: expected "
                "auto or no"
            )
        return True
    return able and mesh.devices.flat[0].platform == "cpu"

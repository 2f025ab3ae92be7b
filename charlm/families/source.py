"""Loads the model that fine-tuning or alignment starts from, as its config says. Open it to add a key of the model."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import ml_collections

from charlm.config import carried_configs
from charlm.convert.changes import NotChangeable
from charlm.core.types import Option
from charlm.families.family import FAMILIES, families, families_with_option, model_options
from charlm.families.pretrained import Pretrained, changed, from_pretrained


def load_source(config: ml_collections.ConfigDict) -> Pretrained:
    """Returns the model that `init_from` names, changed as the section `model` says.

    Raises:
      ValueError: there is no model, or keys are set that its family does not have.
    """
    model = config.model
    changes: dict[str, Option] = {"dtype": jnp.dtype(model.dtype)}
    changes |= {name: model[name] for name in ("remat", "attention_kernel")}
    changes |= {"scan_layers": True} if model.scan_layers else {}
    changes |= {name: model[name] for name in ("dropout", "attention_dropout") if model.get(name, -1) >= 0}
    keys = {name: option.key for name, option in model_options(families()).items() if option.key is not None}
    chosen = {name: model.get(name, key.default) for name, key in keys.items()}
    own = {name: value for name, value in chosen.items() if value != keys[name].default}
    changes |= own
    for name in own:
        changes |= {other: chosen[other] for other in families_with_option(name)[0].options[name].resets}
    try:
        source = from_pretrained(config.init_from, **changes)
        if "dropout" in changes and hasattr(source.config, "embed_dropout"):  # GPT-2 has a rate of its own there
            source = changed(source, embed_dropout=changes["dropout"])
        return source
    except NotChangeable as error:
        if unknown := [name for name in error.names if name not in keys]:
            raise ValueError(f"model.{unknown[0]}: {error}") from None
        name = next(name for name in error.names if name in own)
        owners = families_with_option(name)
        files = (f"configs/{one.name}_base.py" for one in owners if one.name in FAMILIES.own)
        made_by = ", ".join(file for file in files if Path(file).name.removesuffix(".py") in carried_configs())
        kinds = " or ".join(one.title for one in owners) + (f" (made by {made_by})" if made_by else "")
        raise ValueError(
            f"model.{name}={own[name]} needs a model of the kind {kinds}, and is left "
            f"{'empty' if keys[name].default == '' else keys[name].default} for a {error.family}"
        ) from None

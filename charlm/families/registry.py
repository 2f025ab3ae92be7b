"""Which family something is of: a config, a model, a folder of PyTorch weights; and the part of that family for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import ml_collections

from charlm.convert.files import find_state, read_json
from charlm.convert.model import CONFIG_FILES, Converter
from charlm.data.corpus import EncodedCorpus
from charlm.families.family import FAMILIES, families, family, load
from charlm.families.units import Units

if TYPE_CHECKING:
    from charlm.families.objective import Objective


def corpora_of(config: ml_collections.ConfigDict) -> list[EncodedCorpus]:
    """Encodes what a run of the config will read, or finds it in the cache, and returns it.

    Raises:
      ValueError: when it reads no text, or as `prepare`.
    """
    one = family(config.family)
    if one.corpora:
        return load(one.corpora)(config)
    data = prepare(config)
    return [*data.train, *data.heldout]


class Loaded(Protocol):
    """A model that was loaded: `charlm.families.pretrained.Pretrained`."""

    @property
    def family(self) -> str:
        """The name of its family."""
        ...


def objective_of(config: ml_collections.ConfigDict) -> type[Objective]:
    """Returns what the config's family pre-trains on; in a family with stages, what its stage does."""
    return family(config.family).get_objective(config.get("stage", ""))


def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> Any:
    """Returns the vocabularies and encoded corpora of a run; see `Objective.prepare`."""
    return objective_of(config).prepare(config, run)


def units_of(pretrained: Loaded, longest: int = 0) -> Units:
    """Returns the text side of a model.

    Args:
      longest: positions of the longest row; 0: as many as the model has.

    Raises:
      ValueError: when the model has fewer positions, or its tokenizer is missing.
    """
    return family(pretrained.family).get_units(pretrained, longest)


def converter_of(name: str) -> Converter:
    """Returns the converter of a family; ValueError when there is no family of that name."""
    return family(name).get_converter()


def recognise(source: str) -> Converter:
    """Returns the family of a folder or file of theirs: by the config beside the weights, else by the tensors.

    Configs of some families say that they are of another (`Converter.hides_behind`): there the tensors tell.
    Weights without a config may be an HLM's, whose config may lie elsewhere: its reader says how to name it.

    Raises:
      ValueError: when there are no weights, or the config is of no family that we have.
    """
    file = find_state(source)
    configs = [file.parent / name for name in CONFIG_FILES if (file.parent / name).is_file()]
    theirs = read_json(configs[0]) if configs else None
    converters = [one.get_converter() for one in families()]
    for converter in converters:
        if theirs is not None and converter.recognises(theirs):
            return _hidden_behind(converter, converters, file, theirs)
    # What cannot be read is named by the reader of the family that is chosen then.
    with contextlib.nullcontext() if configs else contextlib.suppress(ValueError):
        for converter in converters:
            if converter.recognises_tensors(file, theirs):
                return converter
    if theirs is None:
        return next(converter for converter in converters if converter.config_elsewhere)
    raise ValueError(
        f"{configs[0]}: model_type={theirs.get('model_type')!r} is none of the families {', '.join(FAMILIES)}; "
        "a config without model_type needs its family named"
    )


def _hidden_behind(said: Converter, converters: Iterable[Converter], file: Path, theirs: dict[str, Any]) -> Converter:
    """Returns the family that the tensors are of where the config says another; else the one that it says."""
    hiding = [converter for converter in converters if said.name in converter.hides_behind]
    with contextlib.suppress(ValueError):  # what cannot be read is named by the reader of the family that is said
        return next((converter for converter in hiding if converter.recognises_tensors(file, theirs)), said)
    return said

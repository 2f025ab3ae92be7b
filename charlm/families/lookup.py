"""Finds the family of a config, a model or a folder of PyTorch weights, and returns the part of it that is needed.

Use it in code that works with any family, instead of asking for a family by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import ml_collections

from charlm.config import is_fine_tuning
from charlm.convert.files import find_state
from charlm.convert.model import CONFIG_FILES, Converter
from charlm.core.reading import read_object
from charlm.core.types import JsonObject
from charlm.data.corpus import EncodedCorpus
from charlm.families.family import FAMILIES, families, family
from charlm.families.units import Units

if TYPE_CHECKING:
    from charlm.families.objective import Objective, RunData


def corpora_of(config: ml_collections.ConfigDict) -> list[EncodedCorpus]:
    """Returns the encoded corpora that a run of the config will read; they are taken from the cache if possible.

    Raises:
      ValueError: the run reads no text, as fine-tuning, or as in `prepare`.
    """
    if is_fine_tuning(config):
        raise ValueError(f"task={config.task}: fine-tuning reads its examples as they are; there is nothing to encode")
    one = family(config.family)
    if one.corpora:
        return one.get_corpora(config)
    data = prepare(config)
    return [*data.train, *data.heldout]


class Loaded(Protocol):
    """The part of a loaded model, `charlm.families.pretrained.Pretrained`, that this module needs."""

    @property
    def family(self) -> str:
        """The name of its family."""
        ...


def objective_of(config: ml_collections.ConfigDict) -> type[Objective]:
    """Returns the objective of the config's family: that of the config's stage, or of its key `objective`."""
    return family(config.family).get_objective(config.get("stage", "") or config.get("objective", ""))


def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> RunData:
    """Returns the vocabularies and encoded corpora of a run; see `Objective.prepare`."""
    return objective_of(config).prepare(config, run)


def units_of(pretrained: Loaded, longest: int = 0) -> Units:
    """Returns the text side of a model.

    Args:
      longest: positions of the longest row; 0: as many as the model has.

    Raises:
      ValueError: the model has fewer positions, or its tokenizer is missing.
    """
    return family(pretrained.family).get_units(pretrained, longest)


def converter_of(name: str) -> Converter:
    """Returns the converter of a family; ValueError if there is no family of that name."""
    return family(name).get_converter()


def recognise(source: str) -> Converter:
    """Returns the converter for a PyTorch folder or file, chosen by the config beside the weights, else by the tensors.

    The configs of some families name another family (`Converter.hides_behind`); then the tensors decide. Weights that
    have no config and match no family are taken for an HLM, whose config may lie elsewhere: its reader says how to name
    the config.

    Raises:
      ValueError: there are no weights, or the config is of no known family.
    """
    file = find_state(source)
    configs = [file.parent / name for name in CONFIG_FILES if (file.parent / name).is_file()]
    theirs = read_object(configs[0]) if configs else None
    converters = list(_converters())
    if found := _recognised(converters, file, theirs):
        return found
    if theirs is None:
        return next(converter for converter in converters if converter.config_elsewhere)
    raise ValueError(
        f"{configs[0]}: model_type={theirs.get('model_type')!r} is none of the families {', '.join(FAMILIES)}; "
        "a config without model_type needs its family named"
    )


def recognise_cases(folder: str | Path) -> Converter:
    """Returns the converter of the family that golden cases are of, chosen by the config or the tensors of a case.

    Raises:
      ValueError: there is no such folder, or no case in it tells its family.
    """
    if not Path(folder).is_dir():
        raise ValueError(f"--golden-dir={folder} is not a folder")
    converters = list(_converters())
    for description in sorted(Path(folder).glob("*.json")):
        weights, theirs = description.with_suffix(".safetensors"), read_object(description).get("config")
        if weights.is_file() and isinstance(theirs, dict) and (found := _recognised(converters, weights, theirs)):
            return found
    raise ValueError(f"--golden-dir={folder}: no case there says which family it is of; name it with --family")


def _recognised(converters: Sequence[Converter], file: Path, theirs: JsonObject | None) -> Converter | None:
    """Returns the converter that recognises a config, else the tensors; None if none does."""
    for converter in converters:
        if theirs is not None and converter.recognises(theirs):
            return _hidden_behind(converter, converters, file, theirs)
    # Without a config, errors of reading are ignored here; the converter that is chosen then reports them.
    with contextlib.suppress(ValueError) if theirs is None else contextlib.nullcontext():
        for converter in converters:
            if converter.recognises_tensors(file, theirs):
                return converter
    return None


def _converters() -> Iterator[Converter]:
    """Yields the converter of each family; skips added families whose converter is broken, with a log line."""
    for one in families():
        try:
            yield one.get_converter()
        except ValueError as error:
            if one.name in FAMILIES.own:
                raise
            FAMILIES.warn(str(error))


def _hidden_behind(said: Converter, converters: Iterable[Converter], file: Path, theirs: JsonObject) -> Converter:
    """Returns `said`, or the family that hides behind it (`hides_behind`) if the tensors belong to that family."""
    hiding = [converter for converter in converters if said.name in converter.hides_behind]
    with contextlib.suppress(ValueError):  # errors of reading are reported later, by `said`
        return next((converter for converter in hiding if converter.recognises_tensors(file, theirs)), said)
    return said

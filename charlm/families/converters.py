"""Which family a folder of PyTorch weights holds."""

from __future__ import annotations

import contextlib

from charlm.convert.files import find_state, read_json
from charlm.convert.model import CONFIG_FILES, Converter
from charlm.families.family import FAMILIES, families, family


def converter_of(name: str) -> Converter:
    """Returns the converter of a family; ValueError when there is no family of that name."""
    return family(name).get_converter()


def recognise(source: str) -> Converter:
    """Returns the family of a folder or file of theirs: by the config beside the weights, else by the tensors.

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
            return converter
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

"""Reads prepared TFDS data sets as a source of text, without TensorFlow; nothing is ever downloaded.

Open it when a prepared data set is not found, or its text column is not read.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from charlm.core import extras
from charlm.core.nearest import ALIKE, did_you_mean
from charlm.data.parts import Part, column_texts

PART_EXAMPLES = 50_000  # examples in one part

_SPEC = re.compile(r"tfds:(?P<name>\w+(?:/[\w.\-]+)?)(?::(?P<version>\d+\.\d+\.\d+))?(?::(?P<split>.+))?")


def tfds_parts(spec: str, text_key: str, key: str) -> tuple[list[Part], list[str]]:
    """Returns the parts and files of a prepared data set; raises ValueError when it is missing or unreadable here."""
    match = _SPEC.fullmatch(spec)
    if not match:
        raise ValueError(f'{key}: {spec!r}: expected "tfds:NAME[/CONFIG][:VERSION][:SPLIT]"')
    name, split = match["name"], match["split"] or "train"
    full_name = f"{name}:{match['version']}" if match["version"] else name
    builder = _builder(full_name, spec, key)
    formats = {f.value for f in builder.info.available_file_formats()}
    if not formats & {"array_record", "parquet"}:
        raise ValueError(
            f"{key}: {spec!r} is prepared in {builder.data_dir} as {', '.join(sorted(formats))}, which only TensorFlow "
            f"can read; prepare it with: tfds build {name} --file_format=array_record"
        )
    features, splits = list(builder.info.features), list(builder.info.splits)
    if text_key not in features:
        known = ", ".join(features)
        raise ValueError(f"{key}: {spec!r} has no feature {text_key!r} (data.text_key); features: {known}")
    base = re.split(r"[\[+]", split)[0]
    if base not in [*splits, "all"]:
        known = ", ".join(splits)
        raise ValueError(f"{key}: {spec!r} has no split {base!r}; splits: {known}{did_you_mean(base, splits, ALIKE)}")
    try:
        size = len(builder.as_data_source(split=split))
    except ValueError as error:
        raise ValueError(f"{key}: {spec!r}: bad split {split!r}: {error}") from error
    path, step = os.fspath(builder.data_dir), PART_EXAMPLES
    parts = [Part(f"{i}", "tfds", path, i, min(i + step, size), split) for i in range(0, max(size, 1), step)]
    files = sorted({os.fspath(file) for name in splits for file in builder.info.splits[name].filepaths})
    return parts, files


def _builder(full_name: str, spec: str, key: str) -> Any:  # see `open_prepared`
    """Opens a data set from its files alone: none of its code runs, and nothing is downloaded."""
    tfds = extras.load(f"{key}: {spec!r}", "tensorflow_datasets")
    from tensorflow_datasets.core import read_only_builder

    data_dir = os.path.expanduser(os.environ.get("TFDS_DATA_DIR") or tfds.core.constants.DATA_DIR)
    try:
        return read_only_builder.builder_from_files(full_name, data_dir=data_dir)
    except (tfds.core.registered.DatasetNotFoundError, FileNotFoundError) as error:
        name = full_name.split(":")[0]
        raise ValueError(
            f"{key}: {spec!r} is not prepared in {data_dir} ($TFDS_DATA_DIR); nothing is downloaded during a run; "
            f"prepare it with: tfds build {name} --file_format=array_record --data_dir={data_dir}"
        ) from error


def open_prepared(folder: str) -> Any:  # a `DatasetBuilder`, whose methods TFDS's decorators leave without types
    """Returns the builder of a prepared data set."""
    from tensorflow_datasets.core import read_only_builder

    return read_only_builder.builder_from_directory(folder)


def read_tfds(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields the text feature of the part's examples; TFDS returns text as bytes."""
    examples = open_prepared(part.path).as_data_source(split=part.detail)
    for start in range(part.start, part.stop or 0, 256):
        batch = examples.__getitems__(list(range(start, min(start + 256, part.stop or 0))))
        yield from column_texts([example[text_key] for example in batch], skipped)

"""Describes the columns of the tables that a task reads, and reads them.

Open it when a column is not found, or to add one that tasks can read. Tasks that read tables take their columns from
it; the file formats are in `charlm.data.text_tables`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import ml_collections

from charlm.core.types import Json, JsonObject, Option
from charlm.data.examples import Skipped, TextExample
from charlm.data.rows import NoColumn
from charlm.data.text_tables import read_texts


@dataclasses.dataclass(frozen=True)
class Columns:
    """Columns by name, or by number if a table has no header; "" for none.

    Attributes:
      text, pair, label, group, id: see `charlm.data.examples.TextExample`.
      header: whether the table has a header: "yes", "no", or "auto": yes if a column is given by name.
      multi_label, separator, skip_labels: see `charlm.data.text_tables.read_texts`.
    """

    text: str = "sentence"
    pair: str = ""
    label: str = "label"
    group: str = ""
    id: str = ""
    header: str = "auto"
    multi_label: str = "error"
    separator: str = ""
    skip_labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: ml_collections.ConfigDict) -> Columns:
        """Returns the columns that the section `data` of a fine-tuning config names."""
        names = ("header", "multi_label", "separator", "skip_labels")
        group = data.fold_column or data.group
        return cls(data.text, data.pair, data.label, group, data.id, **{name: data[name] for name in names})

    @classmethod
    def from_dict(cls, fields: Mapping[str, Json]) -> Columns:
        """Returns the columns from the result of `to_dict` after JSON; raises TypeError for unknown fields."""
        return cls(**{**fields, "skip_labels": tuple(fields.get("skip_labels", ()))})

    def to_dict(self) -> JsonObject:
        """Returns the fields."""
        return dataclasses.asdict(self)

    @contextlib.contextmanager
    def named_by_keys(self, group: str = "data.fold_column") -> Iterator[None]:
        """Has a column that a file lacks named together with the config key that asks for it.

        Args:
          group: that of the column `group`.

        Raises:
          NoColumn: a file that is read within lacks one of the columns.
        """
        try:
            yield
        except NoColumn as error:
            keys = {self.id: "data.id", self.group: group, self.label: "data.label", self.pair: "data.pair"}
            key = (keys | {self.text: "data.text"}).get(error.column)
            raise error.named(key) if key else error from None

    def read(self, files: Sequence[str], labelled: bool = True, **options: Option) -> list[TextExample]:
        """Returns the examples of all files and logs what was left out; `options` are passed to `read_texts`."""
        skipped = Skipped()
        header = {"yes": True, "no": False}.get(self.header)
        found: list[TextExample] = []
        with self.named_by_keys():
            for file in files:
                found += read_texts(
                    file,
                    text=needed_column(self.text, "data.text"),
                    pair=column(self.pair),
                    label=column(self.label) if labelled else None,
                    group=column(self.group),
                    id=column(self.id),
                    header=header,
                    multi_label=self.multi_label,
                    separator=self.separator,
                    skip_labels=tuple(self.skip_labels),
                    skipped=skipped,
                    **options,
                )
        skipped.log()
        return found


def needed_column(name: str, key: str) -> str | int:
    """Returns a column that a task requires; raises a ValueError naming its config key if it is ""."""
    found = column(name)
    if found is None:
        raise ValueError(f"{key} names no column; expected its name, or its number where a table has no header")
    return found


def column(name: str) -> str | int | None:
    """Returns a column in the form that readers take: an int for a number, None for "", else the name."""
    if not name:
        return None
    return int(name) if name.removeprefix("-").isdecimal() else name

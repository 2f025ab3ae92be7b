"""Counts the parameters of a model, and how many of them are in its table of subword embeddings.

Open it to change which parameters count as the table.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax

from charlm.convert.files import find_state
from charlm.core import checkpoint as checkpoints
from charlm.core.sharding import path_name
from charlm.core.types import JsonObject
from charlm.families.family import FAMILIES
from charlm.families.lookup import converter_of
from charlm.families.pretrained import from_pretrained
from charlm.families.stored import family_of, metadata_of
from charlm.text.subwords import SubwordTokenizer

_TABLE = "embed/token/embedding"  # the end of the table's name in every family that reads subwords


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Numbers of parameters of a model.

    Attributes:
      family: the family of the model.
      total: all parameters of the model; tied parameters count once.
      table: parameters of the whole input table of subwords; 0 if there is none.
      module: parameters of the module that replaces the table (Char2Subword); 0 if there is none.
      kept: parameters of those rows of the table that stay if the module replaces it: the rows of special tokens. (A
        head that predicts subwords needs the whole table; heads that predict labels do not.)
      left_out: parameters of the rows that were removed from the table; they count in `table`, but not in `total`.
    """

    family: str
    total: int
    table: int = 0
    module: int = 0
    kept: int = 0
    left_out: int = 0

    @property
    def before(self) -> int:
        """The number of parameters with the whole table and without the module."""
        return self.total - self.module + self.left_out

    @property
    def table_share(self) -> float:
        """The share of the table in the model without the module; 0 if there is no table."""
        return self.table / self.before if self.table else 0.0

    @property
    def saved(self) -> int:
        """How many parameters are saved if the module replaces the table (full mode)."""
        return self.table - self.kept - self.module

    def to_dict(self) -> JsonObject:
        """Returns the values under their names, ready for JSON."""
        values = dataclasses.asdict(self) | {"table_share": self.table_share}
        if not (self.module and self.table):
            return {name: value for name, value in values.items() if name not in ("module", "kept", "left_out")}
        shares = {"saved_share_of_table": self.saved / self.table, "saved_share_of_model": self.saved / self.before}
        return values | {"saved": self.saved} | shares

    def __str__(self) -> str:
        lines = [f"{self.total:,} parameters ({self.family})"]
        if self.table:
            them = (
                "were in the table of subwords, which was left out"
                if self.left_out
                else "of them in the table of subwords"
            )
            lines.append(f"{self.table:,} {them}, {self.table_share:.1%} of the model")
        if self.table and self.module:
            share = self.saved / self.before
            lines[-1] += " with it and without the module" if self.left_out else " without the module"
            lines.append(
                f"{self.module:,} in the module: in full mode {self.saved:,} fewer than with the table, "
                f"{self.saved / self.table:.1%} of it and {share:.1%} of the model"
            )
        return "\n  ".join(lines)


def by_kind(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Returns how many parameters are in tables, in the head, and in all the rest: what is compared at equal size.

    Args:
      shapes: the shape of each parameter by its name.

    Returns:
      "total"; "tables": of embeddings, also of positions and characters; "head": what predicts in pre-training, but for
      its tables; "body": the rest.
    """
    found: dict[str, int] = dict.fromkeys(("total", "tables", "head", "body"), 0)
    for name, shape in shapes.items():
        table, head = name.split("/")[-1] == "embedding", name.split("/")[0] == "head"
        size = math.prod(shape)
        found["tables" if table else "head" if head else "body"] += size
        found["total"] += size
    return found


class Opened(NamedTuple):
    """A tokenizer (None for an HLM, which has none) and the size of its model (None for a tokenizer alone)."""

    tokenizer: SubwordTokenizer | None
    parameters: Parameters | None


def open_model(path: str | os.PathLike[str], lowercase: bool | None = None) -> Opened:
    """Opens a workdir, a checkpoint, a model in the format of Hugging Face (folder or file), or a tokenizer.

    The parameters of a charlm checkpoint are counted without reading them.

    Args:
      lowercase: whether BERT lower-cases, for a `vocab.txt` without a configuration that says so.

    Raises:
      ValueError: the path is none of these, or it is damaged.
    """
    try:
        checkpoint = checkpoints.find(path, key="--model")
    except ValueError as no_checkpoint:
        return _open_theirs(Path(path), lowercase, str(no_checkpoint))
    metadata = metadata_of(checkpoint, tuple(FAMILIES))
    family = family_of(metadata)
    tokenizer = converter_of(family).open_tokenizer(checkpoints.files_of(checkpoint), lowercase)
    shapes = checkpoints.parameter_shapes(checkpoint)
    rows = (metadata.get("hf_config") or {}).get("vocab_size", 0) if metadata.get("rows") else 0
    return Opened(tokenizer, count(family, shapes, tokenizer, rows))


def _open_theirs(path: Path, lowercase: bool | None, no_checkpoint: str) -> Opened:
    """Opens a model or a tokenizer that is not a charlm checkpoint."""
    if path.is_file() and path.suffix in (".txt", ".json", ".model"):
        return Opened(SubwordTokenizer.load(path, lowercase=lowercase), None)
    try:
        find_state(path)
    except ValueError as no_state:
        if not path.exists() or (path / checkpoints.FOLDER).exists():
            raise ValueError(f"{no_checkpoint}, or a model or tokenizer ({no_state})") from None
        return Opened(SubwordTokenizer.load(path, lowercase=lowercase), None)
    model = from_pretrained(path)
    tokenizer = converter_of(model.family).open_tokenizer(model.folder, lowercase)
    leaves = jax.tree_util.tree_leaves_with_path(model.params)
    return Opened(tokenizer, count(model.family, {path_name(name): leaf.shape for name, leaf in leaves}, tokenizer))


def count(
    family: str, shapes: Mapping[str, tuple[int, ...]], tokenizer: SubwordTokenizer | None, rows: int = 0
) -> Parameters:
    """Counts parameters by their names and shapes.

    Args:
      tokenizer: the tokenizer, which has the special tokens.
      rows: the number of rows of the whole table, if the model keeps only those of the special tokens; 0: the table is
        whole.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    tables = [shape for name, shape in shapes.items() if name.endswith(_TABLE)]
    replacement = converter_of(family).replaces_table
    module = sum(size for name, size in sizes.items() if name.split("/")[0] == replacement)
    kept = 0
    if module and tables and tokenizer is not None:
        kept = len(set(tokenizer.special) - {None}) * tables[0][1]
    table = math.prod(tables[0]) if tables else 0
    whole = rows * tables[0][1] if rows else table
    return Parameters(family, sum(sizes.values()), whole, module, table if rows else kept, whole - table)

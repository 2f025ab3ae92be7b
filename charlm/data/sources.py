"""Raw text in: documents from files, from prepared TFDS data sets, and from Python's own documentation.

`open_source` turns one corpus of the config (`data.train`, `data.heldout`) into a `Source`: a list of parts that can be
read independently and in any order, each an iterator of documents (`str`). What cannot be read as text is skipped and
counted under a reason, never repaired silently; a file that is not text at all stops the run.
"""

from __future__ import annotations

import codecs
import dataclasses
import difflib
import functools
import glob
import gzip
import hashlib
import json
import os
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

MAX_DOCUMENT_CHARS = 1_000_000  # longer documents are skipped: they are rarely prose and would need unbounded memory
PART_BYTES = 32 << 20  # a big plain file is read in ranges of this size: about half a minute of encoding each
PART_EXAMPLES = 50_000  # TFDS examples of one part
BUILTIN_HELDOUT = 0.05  # share of modules and topics of the built-in corpus that are set aside
SPLITS = ("train", "heldout", "all")

_LINE_BYTES = {
    "lines": 4 * MAX_DOCUMENT_CHARS,
    "jsonl": 16 * MAX_DOCUMENT_CHARS,
}  # UTF-8: <= 4 bytes; JSON: \uXXXX\uXXXX
_HEAD_BYTES = 8192  # of a file that are looked at to tell text from binary
_HEAD_INVALID = 0.3  # share of invalid first lines from which a file counts as binary
_TOO_LONG = f"longer than {MAX_DOCUMENT_CHARS:,} characters"
_BAD_UTF8 = "invalid UTF-8"
_BOM = b"\xef\xbb\xbf"
_TFDS = re.compile(r"tfds:(?P<name>\w+(?:/[\w.\-]+)?)(?::(?P<version>\d+\.\d+\.\d+))?(?::(?P<split>.+))?")
_GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
_LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data"})


@dataclasses.dataclass(frozen=True)
class Part:
    """One piece of a source that can be read on its own.

    Attributes:
      name: stable and unique within the source.
      kind: "lines", "jsonl", "parquet", "tfds" or "builtin".
      path: file, or folder of a prepared TFDS data set; empty for the built-in corpus.
      start: first byte, row group or example.
      stop: one past the last; None: to the end.
      detail: TFDS split expression, or the split of the built-in corpus.
    """

    name: str
    kind: str
    path: str = ""
    start: int = 0
    stop: int | None = None
    detail: str = ""


class Source:
    """The documents of one corpus and split; picklable, so that parts can be read in other processes.

    Attributes:
      name: the corpus as written in the config.
      parts: independently readable pieces in a fixed order.
      skipped: documents left out so far by `documents` of this object, by reason.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[Part],
        files: Sequence[str],
        *,
        text_key: str,
        split: str,
        heldout_fraction: float,
        cache_dir: str | None,
    ):
        self.name = name
        self.parts = list(parts)
        self.skipped: Counter[str] = Counter()
        self.split = split
        self.heldout_fraction = heldout_fraction
        self._files = list(files)
        self._text_key = text_key
        self._cache_dir = cache_dir

    def fingerprint(self) -> str:
        """Returns a sha256 (hex) of the content; file hashes are kept in the cache folder while size and time stay."""
        if self.parts[0].kind == "builtin":
            return _hash(["builtin", _builtin_fingerprint()])
        kinds = sorted({(part.kind, part.detail) for part in self.parts})
        key = "" if kinds == [("lines", "")] else self._text_key
        return _hash([kinds, key, [_file_sha256(path, self._cache_dir) for path in self._files]])

    def documents(self, part: Part) -> Iterator[str]:
        """Yields the documents of `part` that belong to the source's split, in order; counts the others in `skipped`.

        Raises:
          ValueError: the part cannot be read (truncated gzip, no usable line, broken Parquet file); names the file.
        """
        for text in self._texts(part):
            if len(text) > MAX_DOCUMENT_CHARS:
                self.skipped[_TOO_LONG] += 1
                continue
            try:
                data = text.encode()
            except UnicodeEncodeError:  # JSON can hold half a surrogate pair
                self.skipped[_BAD_UTF8] += 1
                continue
            if part.kind == "builtin" or self._belongs(data):
                yield text

    def _texts(self, part: Part) -> Iterator[str]:
        try:
            yield from _READERS[part.kind](part, self._text_key, self.skipped)
        except OSError as error:
            raise ValueError(f"{part.path}: cannot be read: {error.strerror or error}") from error

    def _belongs(self, data: bytes) -> bool:
        """Whether a document is in the split: by its own hash, so the order is free and duplicates stay together."""
        return self.split == "all" or _is_heldout(data, self.heldout_fraction) == (self.split == "heldout")


def open_source(
    spec: str,
    *,
    text_key: str = "text",
    split: str = "all",
    heldout_fraction: float = 0.0,
    cache_dir: str | None = None,
    key: str = "data.train",
) -> Source:
    """Opens a corpus.

    Args:
      spec: "builtin"; a path or glob (.txt, .text, .jsonl, .json with one object per line, each also with .gz; .parquet;
        other extensions are read as plain text, one document per line); or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]" of a
        data set that is prepared in $TFDS_DATA_DIR or in TFDS's default folder (nothing is ever downloaded).
      text_key: field or column of the text (JSONL, Parquet, TFDS).
      split: "train", "heldout" or "all".
      heldout_fraction: share of documents held out, in [0, 1). The built-in corpus ignores it: it holds out whole
        modules, `BUILTIN_HELDOUT` of them.
      cache_dir: folder in which file hashes are remembered; None: they are not.
      key: config key of `spec`, for messages.

    Raises:
      ValueError: unknown `spec` or `split`, missing or unreadable file, data set or column; says what was expected.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: expected one of {', '.join(SPLITS)}{_nearest(split, SPLITS)}")
    if not 0 <= heldout_fraction < 1:
        raise ValueError(f"data.heldout_fraction={heldout_fraction}: expected at least 0 and below 1")
    if spec == "builtin":
        parts = [Part(f"builtin-{s}", "builtin", detail=s) for s in ("train", "heldout") if split in (s, "all")]
        files: list[str] = []
    elif spec.startswith("tfds:"):
        parts, files = _tfds_parts(spec, text_key, key)
    else:
        files = _matching_files(spec, key)
        parts = [part for path in files for part in _file_parts(path, text_key)]
    if len({part.name for part in parts}) < len(parts):  # files of one name in several folders
        parts = [dataclasses.replace(part, name=f"{i:05d}-{part.name}") for i, part in enumerate(parts)]
    fraction = float(heldout_fraction)
    return Source(spec, parts, files, text_key=text_key, split=split, heldout_fraction=fraction, cache_dir=cache_dir)


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _is_heldout(data: bytes, fraction: float) -> bool:
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") < fraction * 2**64


def _nearest(value: str, choices: Sequence[str]) -> str:
    near = difflib.get_close_matches(value, choices, n=1, cutoff=0.6)
    return f"; nearest: {near[0]!r}" if near else ""


# ----------------------------------------------------------------------------------------------------------------------
# Files


def _matching_files(spec: str, key: str) -> list[str]:
    """Returns the sorted files of a path or glob; ValueError when there are none."""
    here = f"(current directory: {os.getcwd()})"
    path = os.path.expanduser(spec)
    if os.path.isdir(path):
        raise ValueError(
            f"{key}: {spec!r} is a directory; give its files, such as {os.path.join(spec, '*.txt')!r} {here}"
        )
    found = [path] if os.path.exists(path) else sorted(p for p in glob.glob(path, recursive=True) if os.path.isfile(p))
    if found:
        return found
    if glob.has_magic(path):
        raise ValueError(f"{key}: no file matches {spec!r} {here}")
    folder, base = os.path.split(path)
    near = _nearest(base, os.listdir(folder or ".") if os.path.isdir(folder or ".") else [])
    if not near:
        near = _nearest(re.split("(?<=:)", spec)[0], ["builtin", "tfds:"])
    expected = 'expected "builtin", an existing file or glob, or "tfds:NAME[/CONFIG][:SPLIT]"'
    raise ValueError(f"{key}: {spec!r} does not exist {here}; {expected}{near}")


def _file_parts(path: str, text_key: str) -> list[Part]:
    """Cuts a file into parts; ValueError when it is not readable as what its extension says."""
    name = os.path.basename(path)
    try:
        if name.endswith(".parquet"):
            return _parquet_parts(path, name, text_key)
        kind = "jsonl" if name.removesuffix(".gz").endswith((".jsonl", ".json")) else "lines"
        _check_is_text(path)
        size = os.path.getsize(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    if name.endswith(".gz") or size <= PART_BYTES:  # gzip cannot be entered in the middle
        return [Part(name, kind, path)]
    starts = range(0, size, PART_BYTES)
    return [Part(f"{name}@{start}", kind, path, start, min(start + PART_BYTES, size)) for start in starts]


def _open(path: str) -> BinaryIO:
    return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def _check_is_text(path: str) -> None:
    """Raises ValueError when the beginning of the file is not UTF-8 text."""
    try:
        with _open(path) as stream:
            head = stream.read(_HEAD_BYTES)
    except _GZIP_ERRORS as error:
        raise ValueError(f"{path}: truncated or damaged gzip file ({error})") from error
    if b"\0" in head:
        raise ValueError(f"{path}: file looks binary (NUL byte in its first {_HEAD_BYTES} bytes); expected UTF-8 text")
    lines = [line for line in head.splitlines(keepends=True) if line.strip()]
    invalid = sum(not _decodes(line) for line in lines[:-1])
    invalid += sum(not _decodes(line, cut=len(head) == _HEAD_BYTES) for line in lines[-1:])
    if invalid > _HEAD_INVALID * len(lines):
        counts = f"{invalid} of its first {len(lines)} lines are invalid UTF-8"
        raise ValueError(f"{path}: file looks binary or is not UTF-8 ({counts}); expected UTF-8 text")


def _decode(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _decodes(data: bytes, cut: bool = False) -> bool:
    """Whether `data` is UTF-8; `cut`: it may end inside a character."""
    try:
        codecs.utf_8_decode(data, "strict", not cut)
    except UnicodeDecodeError:
        return False
    return True


def _raw_lines(part: Part) -> Iterator[bytes | None]:
    """Yields the lines that begin inside the part, without holding more than one bounded line; None: one too long."""
    limit = _LINE_BYTES[part.kind]
    with _open(part.path) as stream:
        position = part.start
        if part.start:  # the line that is under way belongs to the part before
            stream.seek(part.start - 1)
            position += _drain(stream) - 1
        while part.stop is None or position < part.stop:
            line = stream.readline(limit)
            if not line:
                return
            first, size = position == 0, len(line)
            if size == limit and not line.endswith(b"\n"):
                size += _drain(stream)
                yield None
            else:
                yield line.removeprefix(_BOM) if first else line
            position += size


def _drain(stream: BinaryIO) -> int:
    """Reads to the end of the line in small pieces; returns the bytes read."""
    total = 0
    while piece := stream.readline(1 << 20):
        total += len(piece)
        if piece.endswith(b"\n"):
            break
    return total


def _read_lines(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields each line that is not blank; (text_key is for the other kinds)."""
    del text_key
    try:
        for line in _raw_lines(part):
            text = "" if line is None else _decode(line)
            if line is None or text is None:
                skipped[_TOO_LONG if line is None else _BAD_UTF8] += 1
            elif text := text.strip():
                yield text
    except _GZIP_ERRORS as error:
        raise ValueError(f"{part.path}: truncated or damaged gzip file ({error})") from error


def _read_jsonl(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields the text of each JSON line; ValueError when no line at all has one."""
    good, first_reason = False, ""
    try:
        for number, line in enumerate(_raw_lines(part), 1):
            if line is not None and not line.strip():
                continue
            text, reason = (None, _TOO_LONG) if line is None else _json_text(line, text_key)
            if text is None:
                skipped[reason] += 1
                first_reason = first_reason or f"{part.path}:{number}: {reason}"
                continue
            good = True
            if text := text.strip():
                yield text
    except _GZIP_ERRORS as error:
        raise ValueError(f"{part.path}: truncated or damaged gzip file ({error})") from error
    if first_reason and not good and part.start == 0:  # a later part may fail alone: the file as a whole does not
        raise ValueError(f"{first_reason} (and no other line can be read; expected one JSON object per line)")


def _json_text(line: bytes, text_key: str) -> tuple[str | None, str]:
    """Returns (text, "") or (None, reason)."""
    if (decoded := _decode(line)) is None:
        return None, _BAD_UTF8
    try:
        item = json.loads(decoded)
    except (ValueError, RecursionError):
        return None, "invalid JSON"
    if not isinstance(item, dict):
        return None, "not a JSON object"
    if text_key not in item:
        return None, f"no key {text_key!r}"
    return (item[text_key], "") if isinstance(item[text_key], str) else (None, f"value of {text_key!r} is not a string")


# ----------------------------------------------------------------------------------------------------------------------
# Parquet


def _open_parquet(path: str) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(f"{path}: reading Parquet needs pyarrow (pip install pyarrow)") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error})") from error


def _parquet_parts(path: str, name: str, text_key: str) -> list[Part]:
    """Groups row groups to parts of about `PART_BYTES`; ValueError when the text column is missing or not text."""
    with _open_parquet(path) as file:
        types = {field.name: str(field.type) for field in file.schema_arrow}
        if text_key not in types:
            known = ", ".join(types)
            raise ValueError(
                f"{path}: no column {text_key!r} (data.text_key); columns: {known}{_nearest(text_key, [*types])}"
            )
        if types[text_key] not in ("string", "large_string", "string_view", "binary", "large_binary"):
            raise ValueError(f"{path}: column {text_key!r} (data.text_key) holds {types[text_key]}; expected strings")
        sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)]
    parts, start, filled = [], 0, 0
    for i, size in enumerate(sizes):
        filled += size
        if filled >= PART_BYTES or i == len(sizes) - 1:
            parts.append(Part(f"{name}@{start}", "parquet", path, start, i + 1))
            start, filled = i + 1, 0
    return parts or [Part(name, "parquet", path, 0, 0)]


def _read_parquet(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields the text column of the part's row groups."""
    groups = list(range(part.start, part.stop or 0))
    with _open_parquet(part.path) as file:
        batches = file.iter_batches(batch_size=1024, row_groups=groups, columns=[text_key]) if groups else ()
        try:
            for batch in batches:
                column = batch.column(0).cast("large_binary")  # bytes: invalid UTF-8 is skipped, not fatal
                yield from _texts(column.to_pylist(), skipped)
        except (OSError, ArithmeticError, ValueError) as error:  # pyarrow's own errors derive from these
            raise ValueError(f"{part.path}: damaged Parquet file ({error})") from error


def _texts(values: Sequence[Any], skipped: Counter[str]) -> Iterator[str]:
    """Yields the values of a column as text; counts those that are none."""
    for value in values:
        text = _decode(value) if isinstance(value, bytes) else value
        if text is None:
            skipped["no text" if value is None else _BAD_UTF8] += 1
        elif not isinstance(text, str):
            skipped["not a string"] += 1
        elif text := text.strip():
            yield text


# ----------------------------------------------------------------------------------------------------------------------
# TFDS


def _tfds_parts(spec: str, text_key: str, key: str) -> tuple[list[Part], list[str]]:
    """Returns the parts and files of a prepared data set; ValueError when it is not there or not readable here."""
    match = _TFDS.fullmatch(spec)
    if not match:
        raise ValueError(f'{key}: {spec!r}: expected "tfds:NAME[/CONFIG][:VERSION][:SPLIT]"')
    name, split = match["name"], match["split"] or "train"
    full_name = f"{name}:{match['version']}" if match["version"] else name
    builder = _tfds_builder(full_name, spec, key)
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
        raise ValueError(f"{key}: {spec!r} has no split {base!r}; splits: {known}{_nearest(base, splits)}")
    try:
        size = len(builder.as_data_source(split=split))
    except ValueError as error:
        raise ValueError(f"{key}: {spec!r}: bad split {split!r}: {error}") from error
    path, step = os.fspath(builder.data_dir), PART_EXAMPLES
    parts = [Part(f"{i}", "tfds", path, i, min(i + step, size), split) for i in range(0, max(size, 1), step)]
    files = sorted({os.fspath(file) for name in splits for file in builder.info.splits[name].filepaths})
    return parts, files


def _tfds_builder(full_name: str, spec: str, key: str) -> Any:
    """Opens a data set from its files alone: no code of it runs and nothing is fetched."""
    try:
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core import read_only_builder
    except ImportError as error:
        raise ValueError(f"{key}: {spec!r} needs tensorflow_datasets (pip install tensorflow-datasets)") from error
    data_dir = os.path.expanduser(os.environ.get("TFDS_DATA_DIR") or tfds.core.constants.DATA_DIR)
    try:
        return read_only_builder.builder_from_files(full_name, data_dir=data_dir)
    except (tfds.core.registered.DatasetNotFoundError, FileNotFoundError) as error:
        name = full_name.split(":")[0]
        raise ValueError(
            f"{key}: {spec!r} is not prepared in {data_dir} ($TFDS_DATA_DIR); nothing is downloaded during a run; "
            f"prepare it with: tfds build {name} --file_format=array_record --data_dir={data_dir}"
        ) from error


def _read_tfds(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields the text feature of the part's examples; TFDS hands text over as bytes."""
    from tensorflow_datasets.core import read_only_builder

    examples = read_only_builder.builder_from_directory(part.path).as_data_source(split=part.detail)
    for start in range(part.start, part.stop or 0, 256):
        batch = examples.__getitems__(list(range(start, min(start + 256, part.stop or 0))))
        yield from _texts([example[text_key] for example in batch], skipped)


# ----------------------------------------------------------------------------------------------------------------------
# The built-in corpus: what every CPython says about itself


def _read_builtin(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields docstrings and help topics, one document each."""
    del text_key, skipped
    yield from _builtin_documents()[part.detail]


def _stdlib_files() -> list[tuple[str, str]]:
    """Returns (path relative to the standard library, path) of its modules, sorted."""
    root = os.path.dirname(os.path.abspath(os.__file__))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        found += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    return sorted((os.path.relpath(path, root).replace(os.sep, "/"), path) for path in found)


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions leave it out; the docstrings alone are enough
        return {}
    return topics


@functools.cache
def _builtin_fingerprint() -> str:
    digest = hashlib.sha256(json.dumps(_topics(), sort_keys=True).encode())
    for name, path in _stdlib_files():
        with open(path, "rb") as file:
            digest.update(name.encode() + b"\0" + file.read() + b"\0")
    return digest.hexdigest()


@functools.cache
def _builtin_documents() -> dict[str, list[str]]:
    """Returns the documents by split. A paragraph occurs once in the whole: its first owner keeps it, so the splits
    share none. The top-level module, or the topic, decides the split."""
    documents: dict[str, list[str]] = {"train": [], "heldout": []}
    seen: set[str] = set()
    for owner, text in _builtin_texts():
        fresh = []
        for paragraph in _paragraphs(text):
            identity = paragraph.casefold()
            if identity not in seen:
                seen.add(identity)
                fresh.append(paragraph)
        if fresh:
            split = "heldout" if _is_heldout(owner.encode(), BUILTIN_HELDOUT) else "train"
            documents[split].append("\n\n".join(fresh))
    return documents


def _builtin_texts() -> Iterator[tuple[str, str]]:
    """Yields (owner, text) of every help topic and docstring, in a fixed order."""
    import ast

    for name, text in sorted(_topics().items()):
        yield f"topics/{name}", text
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for name, path in _stdlib_files():
        with open(path, "rb") as file:
            source = file.read()
        try:
            with warnings.catch_warnings():  # escapes that Python will refuse one day are no concern of the caller's
                warnings.simplefilter("ignore")
                tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, described) and (text := ast.get_docstring(node, clean=False)):
                yield name.split("/")[0].removesuffix(".py"), text


def _paragraphs(text: str) -> Iterator[str]:
    """Yields the paragraphs of a docstring as single lines, without doctests, rules and tables."""
    import inspect

    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = []
        for line in block.splitlines():
            if line.lstrip().startswith(">>>"):  # its output goes on to the end of the block
                break
            if any(map(str.isalnum, line)) and not line.lstrip().startswith(("|", "+-")):
                lines.append(line)
        if paragraph := " ".join(" ".join(lines).split()):
            yield paragraph


_READERS = {
    "lines": _read_lines,
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
    "tfds": _read_tfds,
    "builtin": _read_builtin,
}


# ----------------------------------------------------------------------------------------------------------------------
# File hashes


def _file_sha256(path: str, cache_dir: str | None) -> str:
    """Returns the sha256 (hex) of a file, remembered by path, size and modification time."""
    status = os.stat(path)
    identity = [os.path.abspath(path), status.st_size, status.st_mtime_ns]
    memo = os.path.join(cache_dir, "fingerprints", _hash(identity)[:32]) if cache_dir else ""
    if memo and os.path.exists(memo):
        with open(memo) as file:
            return file.read()
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    if memo:
        os.makedirs(os.path.dirname(memo), exist_ok=True)
        temporary = f"{memo}.{os.getpid()}.tmp"
        with open(temporary, "w") as file:
            file.write(digest)
        os.replace(temporary, memo)
    return digest

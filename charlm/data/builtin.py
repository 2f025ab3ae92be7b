"""The built-in corpus: the docstrings of Python's standard library and the help topics of the interpreter.

A config that names no text trains on it, so that examples and tests need no download. Open it to see which texts it
contains, and which of them are held out.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator

from charlm.data.parts import Part, is_heldout

HELDOUT = 0.05  # share of modules and topics that are held out

_LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data"})


def read_builtin(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields docstrings and help topics, one document each."""
    del text_key, skipped
    yield from documents()[part.detail]


def _stdlib_files() -> list[tuple[str, str]]:
    """Returns the modules of the standard library as (path relative to the library, path), sorted."""
    root = os.path.dirname(os.path.abspath(os.__file__))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        found += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    return sorted((os.path.relpath(path, root).replace(os.sep, "/"), path) for path in found)


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions leave the topics out; the docstrings are enough
        return {}
    return topics


@functools.cache
def fingerprint() -> str:
    """Returns a sha256 (hex) of all the files that the documents are made from."""
    digest = hashlib.sha256(json.dumps(_topics(), sort_keys=True).encode())
    for name, path in _stdlib_files():
        with open(path, "rb") as file:
            digest.update(name.encode() + b"\0" + file.read() + b"\0")
    return digest.hexdigest()


@functools.cache
def documents() -> dict[str, list[str]]:
    """Returns the documents of each split.

    Each paragraph occurs once in the whole corpus: its first owner keeps it, so the splits share no paragraph. The
    split of a document follows from its top-level module or its topic.
    """
    found: dict[str, list[str]] = {"train": [], "heldout": []}
    seen: set[str] = set()
    for owner, text in _owned_texts():
        fresh = []
        for paragraph in _paragraphs(text):
            identity = paragraph.casefold()
            if identity not in seen:
                seen.add(identity)
                fresh.append(paragraph)
        if fresh:
            split = "heldout" if is_heldout(owner.encode(), HELDOUT) else "train"
            found[split].append("\n\n".join(fresh))
    return found


def _owned_texts() -> Iterator[tuple[str, str]]:
    """Yields (owner, text) of every help topic and docstring, in a fixed order."""
    for name, text in sorted(_topics().items()):
        yield f"topics/{name}", text
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for name, path in _stdlib_files():
        with open(path, "rb") as file:
            source = file.read()
        try:
            with warnings.catch_warnings():  # invalid escapes in a module do not concern the caller
                warnings.simplefilter("ignore")
                tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, described) and (text := ast.get_docstring(node, clean=False)):
                yield name.split("/")[0].removesuffix(".py"), text


def _paragraphs(text: str) -> Iterator[str]:
    """Yields the paragraphs of a docstring as single lines, without doctests, rules and tables."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = []
        for line in block.splitlines():
            if line.lstrip().startswith(">>>"):  # a doctest and its output fill the rest of the block
                break
            if any(map(str.isalnum, line)) and not line.lstrip().startswith(("|", "+-")):
                lines.append(line)
        if paragraph := " ".join(" ".join(lines).split()):
            yield paragraph

"""The files beside an encoder that make it read misspelled words: settings, the words that it knows, and a context.

    write_speller(folder, StoredSpeller(words, SpellerSettings()))
    found = read_speller(folder)

The words of the encoder's own table are not in the files: its tokenizer has them. Open it to change what is kept.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from charlm.core.durable import write_json
from charlm.core.reading import read_object
from charlm.core.types import Json, JsonObject
from charlm.text.noise.keyboards import keyboard_for
from charlm.text.speller.channel import LARGEST, Costs
from charlm.text.speller.context import FILE as CONTEXT_FILE
from charlm.text.speller.context import ContextWeights, read_context, write_context
from charlm.text.speller.settings import MARKS, WORD, SpellerSettings

FILE = "speller.json"
FILES = (FILE, CONTEXT_FILE)
FORMAT = 1
_LATER = ("context", "other")  # settings that files of before lack, which have no context either


class StoredSpeller(NamedTuple):
    """What lies beside a model.

    Attributes:
      words: words and how often they were seen, in the form that the model's tokenizer gives them; they may be none.
      settings: costs and limits.
      context: how words fit between others; None: nothing is known about that.
    """

    words: Mapping[str, float]
    settings: SpellerSettings
    context: ContextWeights | None = None


def counted(texts: Iterable[str], normalized: Callable[[str], str]) -> Counter[str]:
    """Returns how often texts have each run of letters, and each word of letters and digits.

    A single letter counts where it stands alone, and not as a part of "it's" or "e.g.".

    Args:
      normalized: the form in which words are compared.
    """
    found: Counter[str] = Counter()
    for text in texts:
        form = normalized(text)
        found.update(word for word in WORD.findall(form) if len(word) > 1)
        cores = [chunk.strip(MARKS) for chunk in form.split()]
        found.update(core for core in cores if len(core) == 1 and core.isalpha())
        found.update(core for core in cores if any(map(str.isdigit, core)) and any(map(str.isalpha, core)))
    return found


def write_speller(folder: Path, stored: StoredSpeller) -> None:
    """Writes the files into a folder; OSError if they cannot be written."""
    settings = dataclasses.asdict(stored.settings)
    has_context = stored.context is not None
    content = {"format": FORMAT, "settings": settings, "context": has_context, "words": dict(stored.words)}
    write_json(folder / FILE, content)
    if stored.context is not None:
        write_context(folder, stored.context)


def copy_speller(source: Path, target: Path) -> None:
    """Copies the files that there are from one folder to another; OSError if that cannot be done."""
    for name in FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def read_speller(folder: Path) -> StoredSpeller | None:
    """Returns what lies in a folder; None if there is no speller; ValueError if a file is damaged."""
    path = folder / FILE
    if not path.is_file():
        return None
    found = read_object(path)
    if type(found.get("format")) is not int or found["format"] != FORMAT:
        raise ValueError(f"{path}: format {found.get('format')!r}, expected {FORMAT}")
    words, settings = found.get("words"), found.get("settings")
    if not isinstance(words, dict) or not all(word and _is_count(count) for word, count in words.items()):
        raise ValueError(f"{path}: expected words with positive counts")
    context = read_context(folder)
    if found.get("context") and context is None:
        raise ValueError(f"{path}: it has a context, but there is no {CONTEXT_FILE} beside it")
    return StoredSpeller(words, _settings(settings, path), context)


def _settings(found: Json, path: Path) -> SpellerSettings:
    """Returns settings of a file; ValueError if one is unknown, missing or of another kind."""
    usual = SpellerSettings()
    if isinstance(found, dict):
        found = {name: getattr(usual, name) for name in _LATER} | found
    _check(found, dataclasses.asdict(usual), "settings", path)
    try:
        costs = Costs(**{name: float(value) for name, value in found["costs"].items()})
        keyboard_for(found["language"])
        return SpellerSettings(**{**found, "costs": costs})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check(found: Json, usual: JsonObject, name: str, path: Path) -> None:
    if not isinstance(found, dict) or set(found) != set(usual):
        raise ValueError(f"{path}: {name}: expected {', '.join(usual)}; charlm search speller makes it anew")
    for key, value in usual.items():
        if isinstance(value, dict):
            _check(found[key], value, f"{name}.{key}", path)
        elif isinstance(value, str):
            if not isinstance(found[key], str):
                raise ValueError(f"{path}: {name}.{key}: expected a text, got {found[key]!r}")
        elif not (_is_whole(found[key]) if isinstance(value, int) else _is_number(found[key])):
            kind = "a whole number of at least 1" if isinstance(value, int) else "a number"
            raise ValueError(f"{path}: {name}.{key}: expected {kind}, got {found[key]!r}")


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def _is_count(value: Json) -> bool:
    return _is_number(value) and value > 0


def _is_whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0

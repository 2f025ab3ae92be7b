"""The fields of a request: the type and range of each, checked in one place and described as a JSON schema.

Open it to add a type of field. It needs the standard library alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from charlm.core.nearest import did_you_mean
from charlm.core.types import Json, JsonObject
from charlm.serve.limits import Limits, Refused

SURROGATES = ("\ud800", "\udfff")  # halves of characters, which JSON can write and no text has
SHOWN = 40  # characters of a wrong value that a message quotes


class Field(NamedTuple):
    """A field of a request.

    Attributes:
      name, line: its name, and what it is.
      kind: "text", "texts" (a list, or one text), "words" (a list), "counts" (a list of words,
        or an object with their counts), "pairs" (a list of texts and nulls), "integer",
        "number", "boolean", or one of several strings, "a|b".
      default: its value if it is not given; `NEEDED`: it must be given.
      least, most: of a number, both included.
    """

    name: str
    line: str
    kind: str = "texts"
    default: Json = None
    least: float = -math.inf
    most: float = math.inf

    def schema(self, limits: Limits) -> JsonObject:
        """Returns the JSON schema of the field."""
        text = {"type": "string", "maxLength": limits.max_characters}
        many = {"type": "array", "minItems": 1, "maxItems": limits.max_texts}
        kinds: dict[str, JsonObject] = {
            "text": text,
            "texts": {"oneOf": [text, {**many, "items": text}]},
            "pairs": {"oneOf": [text, {**many, "items": {**text, "type": ["string", "null"]}}, {"type": "null"}]},
            "words": {"type": ["array", "null"], "items": {"type": "string"}},
            "counts": {
                "type": ["array", "object", "null"],
                "items": {"type": "string"},
                "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
            },
            "integer": {"type": "integer"},
            "number": {"type": "number"},
            "boolean": {"type": "boolean"},
        }
        found: JsonObject = dict(kinds.get(self.kind) or {"type": "string", "enum": self.kind.split("|")})
        found["description"] = self.line
        if math.isfinite(self.least):
            found["minimum"] = self.least
        if math.isfinite(self.most):
            found["maximum"] = self.most
        if self.default is not NEEDED:
            found["default"] = self.default
        return found


NEEDED = object()  # the default of a field without one


def read(body: Json, fields: Sequence[Field], limits: Limits) -> JsonObject:
    """Returns the values of a request's fields, with the defaults of those that it leaves out.

    Args:
      body: the JSON value of the request.

    Raises:
      Refused: it is no object, a field is unknown, missing or wrong, or a text exceeds a limit.
    """
    if not isinstance(body, dict):
        raise Refused(422, f"expected a JSON object, got {_kind(body)}")
    known = [field.name for field in fields]
    for name in body:
        if name not in known:
            found = f"{name[:SHOWN]!r}{did_you_mean(name[:SHOWN], known)}"
            raise Refused(422, f"unknown field {found}; expected {', '.join(known)}")
    values = {}
    for field in fields:
        if field.name in body:
            values[field.name] = _checked(field, body[field.name], limits)
        elif field.default is NEEDED:
            raise Refused(422, f"the field {field.name!r} is missing: {field.line}")
        else:
            values[field.name] = field.default
    return values


def _checked(field: Field, value: Json, limits: Limits) -> Json:
    """Returns the value of a field: a list of texts for one text where several may stand."""
    name, kind = field.name, field.kind
    if value is None and field.default is None:
        return None
    if kind == "text":
        return _text(name, value, limits)
    if kind in ("texts", "pairs"):
        if isinstance(value, str):
            return [_text(name, value, limits)]
        texts = _list(name, value, limits.max_texts, "texts")
        if not texts:
            raise Refused(422, f"{name} is empty: expected at least one text")
        return [
            None if one is None and kind == "pairs" else _text(f"{name}[{n}]", one, limits)
            for n, one in enumerate(texts)
        ]
    if kind == "counts" and isinstance(value, dict):
        return {_text(f"a word of {name}", word, limits): one for word, one in value.items()}
    if kind in ("words", "counts"):
        return [_text(f"{name}[{n}]", one, limits) for n, one in enumerate(_list(name, value, None, "words"))]
    if kind == "boolean":
        if not isinstance(value, bool):
            raise Refused(422, f"{name}: expected true or false, got {_kind(value)}")
        return value
    if kind in ("integer", "number"):
        return _number(field, value)
    choices = kind.split("|")
    if value not in choices:
        got = repr(value[:SHOWN]) if isinstance(value, str) else _kind(value)
        raise Refused(422, f"{name}: expected one of {', '.join(choices)}, got {got}")
    return value


def _list(name: str, value: Json, most: int | None, what: str) -> list[Json]:
    if not isinstance(value, list):
        raise Refused(422, f"{name}: expected a list of {what}, got {_kind(value)}")
    if most is not None and len(value) > most:
        raise Refused(413, f"{name}: {len(value):,} {what}, but a request may have {most:,} (--max-texts)")
    return value


def _text(name: str, value: Json, limits: Limits) -> str:
    if not isinstance(value, str):
        raise Refused(422, f"{name}: expected a text, got {_kind(value)}")
    if len(value) > (most := limits.max_characters):
        raise Refused(413, f"{name}: {len(value):,} characters, but a text may have {most:,} (--max-characters)")
    if any(SURROGATES[0] <= char <= SURROGATES[1] for char in value):
        raise Refused(422, f"{name}: expected Unicode characters, got half of a surrogate pair")
    return value


def _number(field: Field, value: Json) -> Json:
    whole = field.kind == "integer"
    right = isinstance(value, int | float) and not isinstance(value, bool)
    if not right or (whole and not isinstance(value, int)):
        raise Refused(422, f"{field.name}: expected {'a whole number' if whole else 'a number'}, got {_kind(value)}")
    if not field.least <= value <= field.most:  # nor is NaN
        raise Refused(422, f"{field.name}={str(value)[:SHOWN]}: expected {field.least:.12g} to {field.most:.12g}")
    return value


def _kind(value: Json) -> str:
    """Returns what JSON calls a value."""
    if value is None:
        return "null"
    names: Mapping[type, str] = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}
    return names.get(type(value)) or ("a list" if isinstance(value, list) else "an object")

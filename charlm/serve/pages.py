"""Describes the server: an OpenAPI document, and a page of HTML with no script, made from the fields of the abilities.

Open it to change what the description says.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence

from charlm import __version__
from charlm.core.types import JsonObject
from charlm.serve.abilities import MODEL
from charlm.serve.fields import NEEDED, Field
from charlm.serve.limits import Limits
from charlm.serve.models import Served

STATUSES = {
    400: "no JSON, or a body that was cut",
    404: "an unknown path or model, or a model without the ability",
    408: "the body came too slowly",
    413: "a body, text or list that exceeds a limit",
    415: "a body that is not application/json",
    422: "a wrong field, or a text that the model refuses",
    429: "too many requests wait; see Retry-After",
    503: "not ready, stopping, or waited too long; see Retry-After",
}
OTHERS = {
    "/v1/models": "the models and what they can",
    "/health": "200 when the server is ready, else 503",
    "/metrics": "metrics for Prometheus",
    "/openapi.json": "this description",
    "/docs": "this description as a page",
}
NO_ACCESS_CONTROL = "There is no authentication: who reaches the port may use it."
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:auto;padding:1rem}"
    "pre{background:#8882;padding:.6rem;overflow-x:auto}"
    "td,th{text-align:left;vertical-align:top;padding:.1rem .8rem .1rem 0}"
    ":root{color-scheme:light dark}"
)


def openapi(models: Sequence[Served], limits: Limits) -> JsonObject:
    """Returns the OpenAPI document of a server with these models."""
    failures = {str(status): {"$ref": f"#/components/responses/{status}"} for status in STATUSES}
    paths: JsonObject = {}
    for name, ability in _abilities(models).items():
        needed = [field.name for field in ability.fields if field.default is NEEDED]
        schema = {
            "type": "object",
            "properties": {field.name: field.schema(limits) for field in (*ability.fields, MODEL)},
            "required": needed,
            "additionalProperties": False,
        }
        body = {"required": True, "content": {"application/json": {"schema": schema, "example": ability.example}}}
        result = {"type": "object", "properties": {"model": {"type": "string"}, "results": {"type": "array"}}}
        found = {"description": "a result for each text", "content": {"application/json": {"schema": result}}}
        paths[f"/v1/{name}"] = {
            "post": {
                "operationId": name,
                "summary": ability.line,
                "requestBody": body,
                "responses": {"200": found, **failures},
            }
        }
    for path, line in OTHERS.items():
        paths[path] = {"get": {"summary": line, "responses": {"200": {"description": line}}}}
    error = {"application/json": {"schema": {"type": "object", "properties": {"error": {"type": "string"}}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "charlm", "version": __version__, "description": NO_ACCESS_CONTROL},
        "paths": paths,
        "components": {
            "responses": {str(status): {"description": line, "content": error} for status, line in STATUSES.items()}
        },
    }


def docs(models: Sequence[Served], limits: Limits) -> str:
    """Returns the page: every ability with its fields and an example, the limits, and the statuses of errors."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>charlm</title><style>{STYLE}</style><h1>charlm {__version__}</h1><p>{NO_ACCESS_CONTROL}</p>"
        "<h2>Models</h2>",
        _table([(one.name, one.model.path, ", ".join(one.abilities)) for one in models], ("name", "model", "it can")),
    ]
    for name, ability in _abilities(models).items():
        command = (
            f"curl -s http://HOST:PORT/v1/{name} -H 'Content-Type: application/json' -d '{_json(ability.example)}'"
        )
        fields = [(field.name, _kind(field), field.line) for field in (*ability.fields, MODEL)]
        parts += [f"<h2>POST /v1/{name}</h2><p>{html.escape(ability.line)}</p><pre>{html.escape(command)}</pre>"]
        parts += [_table(fields, ("field", "value", "what it is"))]
    for path, line in OTHERS.items():
        parts.append(f"<h2>GET {path}</h2><p>{html.escape(line)}</p>")
    parts += ["<h2>Limits</h2>", _table([(name, f"{value:,}") for name, value in limits._asdict().items()], ())]
    parts += ['<h2>Errors</h2><p>{"error": "..."}, with the status</p>']
    parts += [_table([(str(status), line) for status, line in STATUSES.items()], ())]
    return "\n".join(parts)


def _abilities(models: Sequence[Served]) -> JsonObject:
    """Returns the abilities that any of the models has, by name."""
    return {name: ability for one in models for name, ability in one.abilities.items()}


def _kind(field: Field) -> str:
    kind = field.kind.replace("|", " or ")
    return f"{kind}, needed" if field.default is NEEDED else f"{kind}; default {_json(field.default)}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    lines = ["<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"] if head else []
    lines += ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"

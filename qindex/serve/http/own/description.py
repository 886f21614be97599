"""The paths of our own as OpenAPI, made from the table that serves them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import qindex

if TYPE_CHECKING:
    from qindex.serve.http.own.paths import Path

_PART: Final = re.compile(r"{(\w+)(?::([^}]*))?}")


def openapi(prefix: str, paths: list[Path]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for each in paths:
        written = prefix + _PART.sub(r"{\1}", each.path)
        found.setdefault(written, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "qindex", "version": qindex.__version__},
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
        "security": [{"basic": []}],
        "paths": found,
    }


def _operation(path: Path) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _schema(words)}
        for name, words in _PART.findall(path.path)
    ]
    parameters += [
        {"name": name, "in": "query", "schema": {"type": "string"}} for name in path.query.split()
    ]
    answers = {
        "200": {"description": "done", "content": {"application/json": {}}},
        "400": {"description": "the request is wrong; `reason` says how"},
        "401": {"description": "no log-in, or the user may not do this"},
        "404": {"description": "it is not there"},
    }
    found: dict[str, Any] = {
        "summary": path.says,
        "parameters": parameters,
        "responses": answers,
    }
    if path.method == "POST":
        found["requestBody"] = {"content": {"application/json": {"schema": {"type": "object"}}}}
    return found


def _schema(words: str) -> dict[str, Any]:
    return {"type": "string", **({"enum": words.split("|")} if words else {})}

"""Write the types of requests and responses in client.d.ts from the OpenAPI description.

Run it after a change of the models: ``python -m scripts.make_client_types``. A test compares the file
with the output of this script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recto.server.http import ServeOptions
from recto.server.http.app import WEB, make_app
from recto.settings import Settings

TYPES = WEB / "client.d.ts"
_MARKER = "// scripts/make_client_types.py writes the rest of this file from the OpenAPI description.\n"
_NAMES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def build() -> str:
    """Return the file: what is written by hand, and the types of everything under `/v1`."""
    described = make_app(Settings("local", "edge", Path("nowhere")), ServeOptions()).openapi()
    schemas = described["components"]["schemas"]
    paths = {path: value for path, value in described["paths"].items() if path.startswith("/v1/")}
    hand_written = TYPES.read_text("utf-8").partition(_MARKER)[0]
    types = (_interface(name, schemas[name]) for name in sorted(_reachable(paths, schemas)))
    return "\n".join((hand_written + _MARKER, *types))


def _reachable(paths: Any, schemas: dict[str, Any]) -> set[str]:
    """Return the names of all schemas that some operations use, directly or not."""
    found: set[str] = set()
    new = set(_references(paths))
    while new:
        found |= new
        new = {other for name in new for other in _references(schemas[name])} - found
    return found


def _references(value: Any) -> Iterator[str]:
    yield from re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(value))


def _interface(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    lines = [*_comment(schema, ""), f"export interface {_short(name)} {{"]
    for field, inner in schema["properties"].items():
        lines += _comment(inner, "  ")
        lines.append(f"  {field}{'' if field in required else '?'}: {_type(inner)};")
    return "\n".join((*lines, "}\n"))


def _comment(schema: dict[str, Any], indent: str) -> list[str]:
    text = " ".join(schema.get("description", "").split())
    return [f"{indent}/** {text} */"] if text else []


def _short(name: str) -> str:
    return re.sub("Body$", "Request", name.removesuffix("Model"))


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _short(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        inner = _type(schema["items"])
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if schema.get("type") == "object":
        inner = schema["additionalProperties"]
        return f"Record<string, {'unknown' if inner is True else _type(inner)}>"
    return _NAMES[schema["type"]]


if __name__ == "__main__":
    TYPES.write_text(build(), "utf-8")
    print(f"{TYPES.name}: {TYPES.stat().st_size} bytes")

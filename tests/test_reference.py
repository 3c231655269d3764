"""Compare the reference pages with the code: commands, settings, public names, routes, file formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields

import pytest
from click import Command, Context, Group, Option

import recto
from recto.book.sources.options import SiteOptions
from recto.cli.main import recto as product
from recto.cli.retrieve import retrieve
from recto.stores import to_payload
from recto.stores.qdrant.dialects import ALIASES
from recto.testing.parts import chunk
from tests.running import ROOT
from tests.server.http.service import described

REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "recto"
VARIABLE = r"(?:RECTO|QDRANT|COHERE)_[A-Z_]+|COLLECTION_NAME|NO_COLOR"
SETTINGS_MODULES = ("settings.py", "server/http/__init__.py", "server/auth.py", "cli/__init__.py")


def page(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


def sections(text: str) -> dict[str, str]:
    """Return the text below each heading of the second level."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(group: Group, name: str) -> Iterator[tuple[str, Command]]:
    """Yield all commands with their full names, also the commands of subgroups."""
    context = Context(group)
    for part in group.list_commands(context):
        command = group.get_command(context, part)
        assert command is not None
        if isinstance(command, Group):
            yield from commands(command, f"{name} {part}")
        else:
            yield f"{name} {part}", command


assert isinstance(product, Group)
COMMANDS = {**dict(commands(product, "recto")), "retrieve.py": retrieve}


def flags_of(command: Command) -> set[str]:
    options = (one for one in command.params if isinstance(one, Option))
    return {flag for one in options for flag in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_in_its_table(name: str) -> None:
    section = sections(page("commands.md")).get(name, "")
    assert section, f"commands.md has no section '## {name}'"
    rows = re.findall(r"^\| (`--.*?) \|", section, re.MULTILINE)
    documented = {flag for row in rows for flag in re.findall(r"--[a-z-]+", row)}
    assert documented == flags_of(COMMANDS[name])


def test_every_documented_command_exists() -> None:
    documented = {heading for heading in sections(page("commands.md")) if heading.startswith("recto ")}
    assert documented == set(COMMANDS) - {"retrieve.py"}


def test_every_setting_is_documented() -> None:
    read = {
        name
        for module in SETTINGS_MODULES
        for name in re.findall(rf'"({VARIABLE})"', (SOURCE / module).read_text("utf-8"))
    }
    documented = set(re.findall(rf"^\| `({VARIABLE})` \|", page("settings.md"), re.MULTILINE))
    assert read <= documented
    code = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    assert {name for name in documented if f'"{name}"' not in code} == set()


def test_the_template_of_settings_has_only_documented_settings() -> None:
    template = re.findall(rf"^# ({VARIABLE})=", (ROOT / ".env.example").read_text("utf-8"), re.MULTILINE)
    assert template
    assert set(template) <= set(re.findall(VARIABLE, page("settings.md")))


def test_every_public_name_is_documented() -> None:
    text = page("python.md")
    missing = [name for name in recto.__all__ if not re.search(rf"`{name}\b", text)]
    assert missing == []


def test_every_route_is_documented() -> None:
    paths = described()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    documented = set(re.findall(r"^\| `((?:GET|POST) /.*?)` \|", page("http.md"), re.MULTILINE))
    assert documented == routes


def test_every_field_of_the_http_api_is_documented() -> None:
    """One section has all fields of a request or a response: a field of another one does not count."""
    documented = sections(page("http.md")).values()
    missing = {
        name: min(
            ({field for field in properties if f"`{field}`" not in text} for text in documented), key=len
        )
        for name, schema in described()["components"]["schemas"].items()
        if (properties := schema.get("properties"))
    }
    assert {name: fields for name, fields in missing.items() if fields} == {}


def test_every_field_of_a_file_is_documented() -> None:
    documented = sections(page("file-formats.md"))
    suite = json.loads((SOURCE / "evaluation" / "suite.schema.json").read_text("utf-8"))
    expected = {
        "recto.toml": {f"site.{field.name}" for field in fields(SiteOptions)}
        | {"site.exclude", "modules.NAME"},
        "Suites": (set(suite["properties"]) | set(suite["$defs"]["entry"]["properties"])) - {"$schema"},
        "Payload mappings": set(ALIASES),
        "Points on a Qdrant server": set(to_payload(chunk(0))),
    }
    for section, names in expected.items():
        assert {name for name in names if f"`{name}`" not in documented[section]} == set(), section

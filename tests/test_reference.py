"""Compare the reference pages with the code: commands, settings, public names, routes, file formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import get_args

import pytest
from click import Command, Context, Group, Option

import recto
from recto import protocols
from recto.book.sources.options import SiteOptions
from recto.cli.main import recto as product
from recto.cli.retrieve import retrieve
from recto.stores import to_payload
from recto.stores.qdrant.dialects import ALIASES
from recto.testing.parts import chunk
from recto.types.request import OPTIONS, Operation, options_of
from recto.types.search import fields_of
from tests.running import ROOT
from tests.server.http.service import described

REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "recto"
VARIABLE = r"(?:RECTO|QDRANT|COHERE)_[A-Z_]+|COLLECTION_NAME|NO_COLOR"
FLAG = re.compile(r"`(--[a-z-]+)")
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
    options = (option for option in command.params if isinstance(option, Option))
    return {flag for option in options for flag in (*option.opts, *option.secondary_opts)}


def search_flags_of(command: Command) -> set[str]:
    """Return the flags that are search options of the table; others may have the same name."""
    table = {(option.flag, option.flag_help or option.help) for option in OPTIONS}
    return {
        option.opts[0]
        for option in command.params
        if isinstance(option, Option) and (option.opts[0], option.help) in table
    }


def search_rows(section: str) -> set[str]:
    """Return the names and flags in the first two cells of a table of search.md."""
    rows = re.findall(r"^\| (`[^|]*\|[^|]*)\|", sections(page("search.md"))[section], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_documented(name: str) -> None:
    """Its section has a row for an option, or names it if another table of the reference has the row."""
    command, commands_page = COMMANDS[name], sections(page("commands.md"))
    section = commands_page.get(name, "")
    assert section, f"commands.md has no section '## {name}'"
    rows = re.findall(r"^\| (`--.*?) \|", section, re.MULTILINE)
    documented = {flag for row in rows for flag in FLAG.findall(row)}
    common = set(FLAG.findall(commands_page["Common options"]))
    search = search_flags_of(command) & search_rows("Options")
    for line in re.findall(r"^(?:Also|Options:) (.*)$", section, re.MULTILINE):
        named, _, left_out = line.partition(" except ")
        assert set(FLAG.findall(named)) <= common | search
        documented |= set(FLAG.findall(named))
        if "(search.md#options)" in line:
            assert set(FLAG.findall(left_out)) == {option.flag for option in options_of("cli")} - search
            documented |= search
    assert documented == flags_of(command)


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


def test_every_documented_protocol_exists() -> None:
    rows = re.findall(r"^\| (`[A-Z]\w+`)", sections(page("python.md"))["Plugins and tests"], re.MULTILINE)
    assert rows
    assert [name for name in rows if not hasattr(protocols, name.strip("`"))] == []


def test_every_route_is_documented() -> None:
    paths = described()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    documented = set(re.findall(r"^\| `((?:GET|POST) /.*?)` \|", page("http.md"), re.MULTILINE))
    assert documented == routes


def shared_fields(properties: set[str]) -> set[str]:
    """Return the search options of a request, or the fields of a result, that search.md has in its tables."""
    options = [{option.name for option in options_of("http", operation)} for operation in get_args(Operation)]
    results = [{field.name for field in fields_of(view)} for view in ("search", "page")]
    return set().union(
        *(names & search_rows("Options") for names in options if names <= properties),
        *(names & search_rows("Fields") for names in results if names <= properties),
    )


def test_every_field_of_the_http_api_is_documented() -> None:
    """One section has all fields of a request or a response: a field of another one does not count."""
    documented = [*sections(page("http.md")).values(), sections(page("search.md"))["Response"]]
    missing = {}
    for name, schema in described()["components"]["schemas"].items():
        properties = set(schema.get("properties", ()))
        shared = shared_fields(properties)
        missing[name] = min(
            (
                {field for field in properties - shared if f"`{field}`" not in text}
                for text in documented
                if not shared or "(search.md" in text
            ),
            key=len,
        )
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

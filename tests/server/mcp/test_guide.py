"""Test the configurations in the guide: they parse, and the commands exist."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

from recto import __version__
from recto.cli.commands.serve import mcp
from tests.running import ROOT

GUIDE = (ROOT / "docs" / "how-to" / "mcp.md").read_text("utf-8")


def fences(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def servers(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the servers in a client's configuration."""
    if isinstance(value, dict):
        if "command" in value or "url" in value:
            yield value
        for part in value.values():
            yield from servers(part)


def check(command: list[str]) -> None:
    assert command[:2] == ["recto", "mcp"], command
    with mcp.make_context("mcp", command[2:]) as context:
        assert context.params["collection"] == "my-book"


def test_every_configuration_is_valid() -> None:
    found = [server for body in fences("jsonc") for server in servers(json.loads(body))]
    found += [server for body in fences("toml") for server in servers(tomllib.loads(body))]
    assert len(found) == 5
    for server in found:
        if "url" in server:
            assert server["url"].endswith("/mcp")
        else:
            check([server["command"], *server["args"]])


def test_the_commands_for_claude_code() -> None:
    (body,) = fences("text")
    stdio, http = body.strip().split("\n")
    check(shlex.split(stdio.partition(" -- ")[2]))
    assert http.endswith("http://127.0.0.1:8001/mcp")


def test_the_description_for_registries() -> None:
    """The registry's schema has these rules, and it checks that the package belongs to the server."""
    server = json.loads((ROOT / "server.json").read_text("utf-8"))
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    assert f"<!-- mcp-name: {server['name']} -->" in (ROOT / "README.md").read_text("utf-8")
    assert 1 <= len(server["description"]) <= 100
    (package,) = server["packages"]
    assert server["version"] == package["version"] == __version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert package["identifier"] == project["name"]
    assert package["identifier"] in project["scripts"], "runners start the command with the package's name"
    (extra,) = package["runtimeArguments"]
    assert (extra["name"], extra["value"]) == ("--with", f"{project['name']}[mcp]=={__version__}")
    assert package["transport"] == {"type": "stdio"}
    first, *others = package["packageArguments"]
    assert first == {"type": "positional", "value": "mcp"}
    flags = {flag for option in mcp.params for flag in option.opts}
    assert {argument["name"] for argument in others} <= flags
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    assert all(f"| `{one['name']}` |" in settings for one in package["environmentVariables"])
    assert all(one.get("isSecret") for one in package["environmentVariables"] if "KEY" in one["name"])

"""Test the configurations in the guide: they parse, and the commands exist."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

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

"""Test the guides: their requests work, and their files and configurations use existing options."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from recto import __version__
from recto.cli.commands.serve import mcp, serve
from tests.running import ROOT
from tests.server.http.service import Service

GUIDE = (ROOT / "docs" / "how-to" / "mcp.md").read_text("utf-8")
SERVE_GUIDES = "".join(
    (ROOT / "docs" / "how-to" / f"{name}.md").read_text("utf-8") for name in ("serve", "web-api")
)
REFERENCE = "".join(
    (ROOT / "docs" / "reference" / f"{name}.md").read_text("utf-8") for name in ("http", "commands")
)
REQUESTS = re.findall(r"^curl .*127\.0\.0\.1.*", SERVE_GUIDES, re.MULTILINE)
SERVE_FLAGS = {flag for option in serve.params for flag in option.opts}


@pytest.mark.parametrize("line", REQUESTS)
def test_every_request_in_the_guide_works(service: Service, line: str) -> None:
    words = iter(shlex.split(line)[1:])
    address, headers, body = "", {}, None
    for word in words:
        if word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(words).encode()
        else:
            address = word
    path = urlsplit(address)._replace(scheme="", netloc="").geturl()
    reply = service.ask("POST" if body else "GET", path, headers=headers, raw=body)
    assert reply.status == 200, reply.body
    if reply.headers["content-type"] == "application/json":
        assert reply.json().get("results", [1]), "the example finds something"


def test_every_path_metric_and_flag_is_in_the_reference(service: Service) -> None:
    for path in service.get("/openapi.json").json()["paths"]:
        assert path.partition("{")[0] in REFERENCE, path
    figures = service.get("/metrics").body.decode()
    for name in re.findall(r"^# TYPE (recto_\w+?)(?:_created)? ", figures, re.MULTILINE):
        assert name in REFERENCE, name
    assert [flag for flag in SERVE_FLAGS if flag not in REFERENCE] == []


def test_deployment_files_use_existing_options() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(ROOT / "deploy" / "recto.service")
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    for command in (unit["Service"]["ExecStart"].split()[1:], compose["services"]["serve"]["command"]):
        assert command[0] == "serve"
        assert {word.partition("=")[0] for word in command if word.startswith("--")} <= SERVE_FLAGS


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

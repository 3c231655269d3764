"""Test the guide: its requests work, and its files use existing options."""

from __future__ import annotations

import configparser
import re
import shlex
from urllib.parse import urlsplit

import pytest
import yaml
from click import Command
from click.testing import CliRunner

from recto.cli.main import recto as product
from tests.running import ROOT
from tests.server.http.service import Service

GUIDE = (ROOT / "docs" / "how-to" / "serve.md").read_text("utf-8")
WEB_GUIDE = (ROOT / "docs" / "how-to" / "web-api.md").read_text("utf-8")
REFERENCE = "\n".join(
    (ROOT / "docs" / "reference" / name).read_text("utf-8") for name in ("http.md", "commands.md")
)
REQUESTS = [line for line in (GUIDE + WEB_GUIDE).splitlines() if re.match(r"curl .*127\.0\.0\.1", line)]


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
    parts = urlsplit(address)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    reply = (
        service.ask("POST" if body else "GET", path, headers=headers, raw=body) if body else service.get(path)
    )
    assert reply.status == 200, reply.body
    if reply.headers["content-type"] == "application/json":
        assert reply.json().get("results", [1]), "the example finds something"


def test_every_path_and_flag_is_in_the_reference(service: Service) -> None:
    for path in service.get("/openapi.json").json()["paths"]:
        assert path.partition("{")[0] in REFERENCE, path
    figures = service.get("/metrics").body.decode()
    for name in re.findall(r"^# TYPE (recto_\w+?)(?:_created)? ", figures, re.MULTILINE):
        assert name in REFERENCE, name
    flags = [
        flag
        for flag in re.findall(r"--[a-z-]+", help_of("serve"))
        if flag not in ("--help", "--host", "--port")
    ]
    assert flags
    for flag in flags:
        assert flag in REFERENCE, flag


def help_of(name: str) -> str:
    assert isinstance(product, Command)
    return CliRunner().invoke(product, [name, "--help"]).output


def commands_of_the_deployment() -> list[list[str]]:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(ROOT / "deploy" / "recto.service")
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    return [unit["Service"]["ExecStart"].split()[1:], compose["services"]["serve"]["command"]]


@pytest.mark.parametrize("command", commands_of_the_deployment(), ids=["systemd", "compose"])
def test_deployment_files_use_existing_options(command: list[str]) -> None:
    assert command[0] == "serve"
    known = help_of("serve")
    assert all(word in known for word in command if word.startswith("--"))

"""Test what the guides promise: requests, configurations and deployment files work, and alerts use existing metrics."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from recto import __version__
from recto.cli.commands.serve import mcp, serve
from recto.errors import ErrorKind
from recto.server.http import ServeOptions
from recto.settings import Settings
from tests.running import ROOT
from tests.server.http.service import Service

GUIDE = (ROOT / "docs" / "how-to" / "mcp.md").read_text("utf-8")
GUIDES = ROOT / "docs" / "how-to"
SERVE_GUIDE = (GUIDES / "serve.md").read_text("utf-8")
REQUESTS = re.findall(r"^curl .*127\.0\.0\.1.*", SERVE_GUIDE, re.MULTILINE)


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


def test_every_metric_is_in_the_reference(service: Service) -> None:
    figures = service.get("/metrics").body.decode()
    for name in re.findall(r"^# TYPE (recto_\w+?)(?:_created)? ", figures, re.MULTILINE):
        assert name in ROUTES, name


def test_deployment_files_use_existing_options() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(ROOT / "deploy" / "recto.service")
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    for command in (unit["Service"]["ExecStart"].split()[1:], compose["services"]["serve"]["command"]):
        assert command[0] == "serve"
        flags = {flag for option in serve.params for flag in option.opts}
        assert {word.partition("=")[0] for word in command if word.startswith("--")} <= flags


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
        assert context.params["collections"] == ("my-book",)


def test_every_configuration_of_an_mcp_client_is_valid() -> None:
    found = [server for body in fences("jsonc") for server in servers(json.loads(body))]
    found += [server for body in fences("toml") for server in servers(tomllib.loads(body))]
    assert len(found) == 3
    for server in found:
        if "url" in server:
            assert server["url"].endswith("/mcp")
        else:
            check([server["command"], *server["args"]])
    (body,) = fences("text")  # the commands for Claude Code
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


MONITORING = ROOT / "deploy" / "monitoring"
GROUPS = yaml.safe_load((MONITORING / "prometheus-rules.yml").read_text("utf-8"))["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text("utf-8"))
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
ROUTES = (ROOT / "docs" / "reference" / "http.md").read_text("utf-8")
_WITHOUT_LABELS = (
    "app_status_recovery_mode collection_active_replicas_min collection_dead_replicas collections_total "
    "memory_resident_bytes"
)
QDRANT: dict[str, set[str]] = {name: set() for name in _WITHOUT_LABELS.split()}
QDRANT |= {"cluster_working_state": {"state"}, "collection_points": {"id"}}
"""Metrics of a real Qdrant 1.16.3 with their labels; tests of the service have no such server."""
ADDED_BY_PROMETHEUS = {"job", "instance", "le"}


def expressions() -> Iterator[tuple[str, str]]:
    yield from ((name, rule["expr"]) for name, rule in ALERTS.items())
    for title, panel in PANELS.items():
        yield from ((title, target["expr"]) for target in panel.get("targets", ()))
    for variable in DASHBOARD["templating"]["list"]:
        if found := re.fullmatch(r"label_values\((.*), \w+\)", variable.get("definition", "")):
            yield variable["name"], found[1]


def parsed(expression: str) -> Any:
    """Parse a PromQL expression, after replacing Grafana's variables."""
    return promql_parser.parse(re.sub(r"\$\w+", "x", expression.replace("$__rate_interval", "5m")))


def selectors(node: Any) -> Iterator[Any]:
    """Yield the selectors of an expression, such as `up{job="recto"}`."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("args", "expr", "lhs", "rhs", "param", "vector_selector", "vs"):
        inner = getattr(node, name, None)
        for one in inner if isinstance(inner, list) else [inner]:
            if isinstance(one, promql_parser.Expr):
                yield from selectors(one)


@pytest.fixture(scope="module")
def exported(house_settings: Settings) -> dict[str, set[str]]:
    """Return the metrics that the service exports after some requests, with their labels."""
    with Service(house_settings, ServeOptions(collections=("absent",), rate=60)) as service:
        for _ in range(8):  # more than the rate limit allows at once
            service.post("/v1/search", {"query": "When are beans sown?"})
        text = service.get("/metrics").body.decode()
    assert 'recto_index_ready{collection="house"} 1.0' in text
    assert 'recto_index_ready{collection="absent"} 0.0' in text
    assert 'recto_index_created_timestamp_seconds{collection="house"} 1.' in text
    assert 'recto_index_chunks{collection="absent"}' not in text
    labels: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def test_every_metric_and_label_exists(exported: dict[str, set[str]]) -> None:
    labels_of = exported | QDRANT
    for where, expression in expressions():
        used = list(selectors(parsed(expression)))
        assert used, where
        for selector in used:
            matched = {matcher.name for matcher in selector.matchers.matchers}
            assert matched <= labels_of[selector.name] | ADDED_BY_PROMETHEUS, where
        names = {name for selector in used for name in labels_of[selector.name]}
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            assert set(grouped.split(", ")) <= names | ADDED_BY_PROMETHEUS, where


def test_kinds_and_reasons_exist() -> None:
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src/recto/server").rglob("*.py"))
    values_of = {
        "kind": {kind.value for kind in ErrorKind},
        "reason": set(re.findall(r'Refused\(\s*"(\w+)"', sources)),
        "route": set(re.findall(r"`(?:GET|POST) (/[\w/]+)`", ROUTES)),
    }
    for where, expression in expressions():
        for label, values in re.findall(r'(kind|reason|route)[=!]~?"([^"]*)"', expression):
            assert set(values.split("|")) <= values_of[label], where


def test_alerts_say_what_happened_and_the_guide_says_what_to_do() -> None:
    guide = (ROOT / "docs" / "how-to" / "deploy.md").read_text("utf-8")
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert f"| `{name}` |" in guide


def test_panels_use_the_chosen_data_source() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert len({panel["id"] for panel in PANELS.values()}) == len(DASHBOARD["panels"])
    for title, panel in PANELS.items():
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables.keys(), title


def test_the_scrape_configuration_names_the_rules_and_no_key() -> None:
    configuration = yaml.safe_load((MONITORING / "prometheus.yml").read_text("utf-8"))
    assert all((MONITORING / name).is_file() for name in configuration["rule_files"])
    jobs = {job["job_name"]: job for job in configuration["scrape_configs"]}
    assert jobs.keys() == {group["name"] for group in GROUPS}
    for job in jobs.values():
        assert Path(job["authorization"]["credentials_file"]).is_absolute()

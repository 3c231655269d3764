"""Check the alerts and the dashboard in deploy/monitoring against the metrics of the real service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from recto.errors import ErrorKind
from recto.server.http import ServeOptions
from recto.settings import Settings
from tests.running import ROOT
from tests.server.http.service import Service

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
    guide = (ROOT / "docs" / "how-to" / "monitoring.md").read_text("utf-8")
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

"""Test the OpenAPI description against the server, with generated requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from recto.server.http import ServeOptions
from recto.server.http.app import make_app
from recto.settings import Settings
from tests.server.http.service import Service

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@pytest.fixture(scope="module")
def asked(house_settings: Settings) -> Iterator[Service]:
    with Service(house_settings, ServeOptions()) as service:
        yield service


def described_api() -> Any:
    """Return the OpenAPI description without opening a book."""
    app = make_app(Settings("local", "edge", Path("nowhere")), ServeOptions())
    return schemathesis.openapi.from_dict(app.openapi())


OPERATIONS = {operation.ok().label: operation.ok() for operation in described_api().get_all_operations()}
GENERATED = settings(
    max_examples=10,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value
)
@GENERATED
@given(data=st.data())
def test_generated_requests(asked: Service, label: str, mode: GenerationMode, data: st.DataObject) -> None:
    operation = OPERATIONS[label]
    if mode.is_negative and not (operation.body or operation.query or operation.path_parameters):
        return  # nothing that could be wrong
    case = data.draw(operation.as_strategy(generation_mode=mode))
    reply = case.call(base_url=f"http://127.0.0.1:{asked.port}", timeout=60)
    case.validate_response(reply, checks=CHECKS)


def test_described_operations(asked: Service) -> None:
    described = asked.get("/openapi.json").json()
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert "422" not in operation["responses"], path
            assert operation["summary"]
    for path in ("/retrieve", "/v1/search", "/v1/related", "/v1/batch"):
        codes = set(described["paths"][path]["post"]["responses"])
        assert {"200", "400", "401", "404", "413", "429", "500", "503"} <= codes
    assert "HTTPValidationError" not in described["components"]["schemas"]


def test_examples_work(asked: Service) -> None:
    described = asked.get("/openapi.json").json()
    items = described["paths"].items()
    bodies = {path: item["post"]["requestBody"] for path, item in items if "post" in item}
    assert len(bodies) >= 5
    for path, body in bodies.items():
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for example in described["components"]["schemas"][name]["examples"]:
            expected = {"/v1/click": 204, "/v1/answer/feedback": 204, "/v1/answer": 404}.get(path, 200)
            assert asked.post(path, example).status == expected, path


def test_the_key_is_described(house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(keys=("a-key-0123456789",))) as service:
        described = service.get("/openapi.json", Authorization="Bearer a-key-0123456789").json()
    assert described["components"]["securitySchemes"] == {
        "key": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    assert described["security"] == [{"key": []}, {"header": []}]
    gets = {path: item["get"] for path, item in described["paths"].items() if "get" in item}
    assert [path for path, get in gets.items() if get.get("security") == []] == ["/healthz", "/readyz"]

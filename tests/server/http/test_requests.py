"""Test requests against the OpenAPI description: generated ones, and invalid or ambiguous ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from recto.server.http import ServeOptions
from recto.server.http.app import make_app
from recto.server.http.service import SearchService
from recto.settings import Settings
from tests.server.http.service import Service, described

CHECKS = [
    not_a_server_error,
    *(checks.status_code_conformance, checks.content_type_conformance, checks.response_headers_conformance),
    *(checks.response_schema_conformance, checks.negative_data_rejection),
]

API: Any = schemathesis.openapi.from_dict(described())
OPERATIONS = {operation.ok().label: operation.ok() for operation in API.get_all_operations()}
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
def test_generated(house_service: Service, label: str, mode: GenerationMode, data: st.DataObject) -> None:
    operation = OPERATIONS[label]
    if mode.is_negative and not operation.body and len(list(operation.query)) < 2:
        return  # it takes at most the name of a collection, and any text may be one
    case = data.draw(operation.as_strategy(generation_mode=mode))
    reply = case.call(base_url=f"http://127.0.0.1:{house_service.port}", timeout=60)
    case.validate_response(reply, checks=CHECKS)


def test_described_operations(house_service: Service) -> None:
    description = house_service.get("/openapi.json").json()
    for path, operations in description["paths"].items():
        for operation in operations.values():
            assert "422" not in operation["responses"], path
            assert operation["summary"]
    for path in ("/retrieve", "/v1/search", "/v1/related", "/v1/batch"):
        codes = set(description["paths"][path]["post"]["responses"])
        assert {"200", "400", "401", "404", "413", "429", "500", "503"} <= codes
    assert "HTTPValidationError" not in description["components"]["schemas"]


def test_examples_work(house_service: Service) -> None:
    description = house_service.get("/openapi.json").json()
    items = description["paths"].items()
    bodies = {path: item["post"]["requestBody"] for path, item in items if "post" in item}
    assert len(bodies) >= 5
    for path, body in bodies.items():
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for example in description["components"]["schemas"][name]["examples"]:
            expected = {"/v1/click": 204, "/v1/answer/feedback": 204, "/v1/answer": 404}.get(path, 200)
            assert house_service.post(path, example).status == expected, path


def test_the_key_is_described() -> None:
    options = ServeOptions(keys=("a-key-0123456789",))
    description = make_app(Settings("local", "edge", Path("nowhere")), options).openapi()
    assert description["components"]["securitySchemes"] == {
        "key": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    assert description["security"] == [{"key": []}, {"header": []}]
    gets = {path: item["get"] for path, item in description["paths"].items() if "get" in item}
    assert [path for path, get in gets.items() if get.get("security") == []] == ["/healthz", "/readyz"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "is required"),
        (b"{", "not JSON"),
        (b'{"query": "a"} trailing', "not JSON"),
        (b'{"query": "a", "query": "b"}', "given twice"),
        (b'{"query": "a", "module": [{"x": 1, "x": 2}]}', "given twice"),
        (b'{"query": NaN}', "NaN is not a number"),
        (b'{"query": "a", "min_score": -Infinity}', "-Infinity is not a number"),
        (b'{"query": "a", "min_score": 1e999}', "too large"),
        (b'{"query": "a", "limit": ' + b"9" * 5000 + b"}", "too large"),
        (b'{"query": "\xff\xfe"}', "not UTF-8"),
        (b'\xef\xbb\xbf{"query": "a"}', "not JSON"),
        ('{"query": "a"}'.encode("utf-16"), "not UTF-8"),
        (b'{"query": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "nested too deeply"),
        (b"[]", "must be a JSON object"),
        (b'"query"', "must be a JSON object"),
        (b"null", "The body"),
    ],
)
def test_invalid_bodies(service: Service, body: bytes, words: str) -> None:
    for path in ("/retrieve", "/v1/search"):
        reply = service.ask("POST", path, raw=body)
        assert reply.status == 400
        assert words in reply.error


def test_only_json_is_accepted(service: Service) -> None:
    """Browsers send the other types across origins without a preflight request."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        reply = service.ask("POST", "/retrieve", {"query": "robot"}, {"Content-Type": kind})
        assert reply.status == 400
        assert "application/json" in reply.error
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        assert service.ask("POST", "/retrieve", {"query": "robot"}, {"Content-Type": kind}).status == 200


def test_lone_surrogates(service: Service) -> None:
    reply = service.ask("POST", "/retrieve", raw=b'{"query": "robot \\ud800"}')
    assert reply.status == 200
    assert reply.json()["query"] == "robot ?"


def test_unknown_methods_and_paths(service: Service) -> None:
    assert service.ask("PUT", "/retrieve", {"query": "a"}).status == 405
    assert service.ask("GET", "/retrieve").headers["allow"] == "POST"
    for method in ("GET", "POST", "DELETE", "OPTIONS", "PROPFIND"):
        assert service.ask(method, "/nope").error
    assert service.ask("DELETE", "/validate").error == "This method is not allowed here"
    assert service.ask("GET", "/healthz/").status == 404


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "q is required"),
        ("q=a&q=b", "q is given twice"),
        ("q=a&top_k=many", "top_k must be a whole number"),
        ("q=a&min_score=nan", "min_score"),
        ("q=a&min_score=high", "min_score must be a number"),
        ("q=a&html=perhaps", "html must be true or false"),
        ("q=a&module=", "module.0 cannot be empty"),
    ],
)
def test_invalid_query_parameters(service: Service, query: str, words: str) -> None:
    reply = service.get(f"/v1/search?{query}")
    assert reply.status == 400
    assert words in reply.error


def test_an_unknown_name_comes_with_the_known_ones(service: Service) -> None:
    reply = service.get("/v1/search?query=robot")
    assert (reply.status, reply.error) == (400, "query is not a known parameter")
    names = reply.json()["hint"].removeprefix("The parameters are: ").rstrip(".").split(", ")
    assert {"q", "top_k", "module", "url", "collection", "mode", "min_score", "group_by", "html"} < {*names}
    assert "query" not in names
    reply = service.post("/v1/search", {"q": "robot"})
    assert (reply.status, reply.error) == (400, "q is not a known field")
    assert "query" in reply.json()["hint"].removeprefix("The fields are: ").rstrip(".").split(", ")


def test_head_has_no_body(service: Service) -> None:
    for path in ("/healthz", "/validate", "/v1/collections", "/nope"):
        whole, head = service.ask("GET", path), service.ask("HEAD", path)
        assert (head.status, head.body) == (whole.status, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]


def test_invalid_http(service: Service) -> None:
    answer = service.wire(b"nonsense\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert body == {"error": "Invalid HTTP request received", "status_code": 400}
    long = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000
    assert service.wire(long).startswith(b"HTTP/1.1 400")


@settings(max_examples=50, derandomize=True)
@given(
    body=st.binary(max_size=200),
    kind=st.sampled_from(["application/json", "text/plain", "application/x+json", "\xff"]),
)
def test_any_bytes(service: Service, body: bytes, kind: str) -> None:
    for path in ("/retrieve", "/v1/search"):
        reply = service.ask("POST", path, raw=body, headers={"Content-Type": kind})
        assert reply.status in (400, 404), "no such body is a request"
        assert reply.error


def test_range_headers_are_ignored(service: Service) -> None:
    for path in ("/", "/static/main.js"):
        whole = service.get(path)
        for part in ("bytes=0-9", "bytes=9-1", "bytes=999999999-", "bytes=a-b", "lines=1"):
            ranged = service.get(path, Range=part)
            assert (ranged.status, ranged.body) == (200, whole.body)


def test_a_slow_call_does_not_block_others(tmp_path: Path) -> None:
    async def ask() -> str:
        searches = SearchService(Settings("local", "edge", tmp_path), ServeOptions(), print)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await searches.run("book", lambda _: sleep(0.3))
        return await searches.run("book", lambda _: "an answer")

    assert asyncio.run(ask()) == "an answer"

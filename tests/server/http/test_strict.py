"""Test invalid and ambiguous bodies: every response has a described format."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.server.http import ServeOptions
from recto.server.http.app import make_app
from recto.server.http.models import ErrorResponse
from recto.server.http.service import SearchService
from recto.settings import Settings
from tests.asgi import asked
from tests.server.http.service import Service


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
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "x",
        "",
    ):
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
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
        "error": "Invalid HTTP request received",
        "status_code": 400,
    }
    assert service.wire(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000).startswith(
        b"HTTP/1.1 400"
    )


@pytest.fixture(scope="module")
def ask(house_settings: Settings) -> Iterator[Any]:
    """The application without a socket, for many requests in a short time."""
    app = make_app(house_settings, ServeOptions())
    with asyncio.Runner() as runner:

        def ask(path: str, body: bytes, kind: str = "application/json") -> tuple[int, bytes]:
            status, _, answer = runner.run(asked(app, "POST", path, body, content_type=kind))
            return status, answer

        yield ask


@settings(max_examples=50, derandomize=True)
@given(
    body=st.binary(max_size=200),
    kind=st.sampled_from(["application/json", "text/plain", "application/x+json", "\xff"]),
)
def test_any_bytes(ask: Any, body: bytes, kind: str) -> None:
    for path in ("/retrieve", "/v1/search"):
        status, answer = ask(path, body, kind)
        assert status in (400, 404), "no such body is a request"
        assert ErrorResponse.model_validate_json(answer).status_code == status


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

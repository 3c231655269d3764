"""Test the limits of MCP over HTTP."""

from __future__ import annotations

import asyncio
import json

import pytest
from mcp.server import Server
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from recto.server.auth import AdmissionMiddleware, ApiKeys
from recto.server.limits import MAX_BODY, AdmissionLimits
from recto.server.listening import IDLE_SECONDS, BoundedConnection, server_config
from recto.server.mcp.server import http_app
from tests.asgi import asked


def test_large_bodies_and_streams_are_refused() -> None:
    application = http_app(Server("recto"), "127.0.0.1", [])
    for parts, headers in (((b"",), {"content_length": str(MAX_BODY + 1)}), ((b" " * MAX_BODY, b" "), {})):
        status, _, body = asyncio.run(asked(application, "POST", "/mcp", *parts, **headers))
        assert status == 413
        assert json.loads(body)["error"] == "The body is larger than 65536 bytes"
    status, found, body = asyncio.run(asked(application, "GET", "/mcp", accept="text/event-stream"))
    assert (status, found["allow"]) == (405, "POST")
    assert json.loads(body)["status_code"] == 405


def test_concurrency_limit() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def held(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await ended.wait()
        await Response(b"an answer")(scope, receive, send)

    async def main() -> None:
        bounded = AdmissionMiddleware(held, ApiKeys(()), AdmissionLimits(concurrency=1))
        first = asyncio.create_task(asked(bounded, "POST", "/mcp", b"{}"))
        await begun.wait()
        waiting = [asyncio.create_task(asked(bounded, "POST", "/mcp", b"{}")) for _ in range(101)]
        status, found, body = await waiting[-1]
        assert (status, found["retry-after"]) == (429, "1")
        assert json.loads(body)["error"] == "Too many requests at the same time"
        ended.set()
        assert (await first)[0] == 200
        assert (await asked(bounded, "POST", "/mcp", b"{}"))[0] == 200

    asyncio.run(main())


def test_a_timeout_frees_its_slot() -> None:
    async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        bounded = AdmissionMiddleware(stuck, ApiKeys(()), AdmissionLimits(concurrency=1, deadline=0.05))
        for _ in range(2):
            status, found, body = await asked(bounded, "POST", "/mcp", b"{}")
            assert (status, found["retry-after"]) == (503, "2")
            assert json.loads(body)["error"] == "There was no answer within 0.05 s"

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/"])
def test_the_host_is_checked_before_anything_else(path: str) -> None:
    """A redirect to a host that the client chose would help an attacker."""
    application = http_app(Server("book"), "127.0.0.1", ())
    status, found, body = asyncio.run(asked(application, "POST", path, b"{}", host="evil.example"))
    assert status == 400
    assert "location" not in found
    assert json.loads(body)["error"] == "This service does not accept that host name"


def test_the_servers_have_the_same_limits_for_connections() -> None:
    config = server_config(None, 5.0)
    assert config.http is BoundedConnection
    assert not config.server_header
    assert not config.proxy_headers
    assert config.timeout_keep_alive == IDLE_SECONDS

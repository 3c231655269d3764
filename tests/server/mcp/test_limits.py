"""Test the limits of MCP over HTTP."""

from __future__ import annotations

import asyncio
import json

import pytest
from mcp.server import MCPServer

from recto.server.limits import MAX_BODY
from recto.server.mcp.server import http_app
from tests.asgi import asked


def test_large_bodies_and_streams_are_refused() -> None:
    application = http_app(MCPServer("recto"), "127.0.0.1", [])
    for parts, headers in (((b"",), {"content_length": str(MAX_BODY + 1)}), ((b" " * MAX_BODY, b" "), {})):
        status, _, body = asyncio.run(asked(application, "POST", "/mcp", *parts, **headers))
        assert status == 413
        assert json.loads(body)["error"] == "The body is larger than 65536 bytes"
    status, found, body = asyncio.run(asked(application, "GET", "/mcp", accept="text/event-stream"))
    assert (status, found["allow"]) == (405, "POST")
    assert json.loads(body)["status_code"] == 405


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/"])
def test_the_host_is_checked_before_anything_else(path: str) -> None:
    """A redirect to a host that the client chose would help an attacker."""
    application = http_app(MCPServer("book"), "127.0.0.1", ())
    status, found, body = asyncio.run(asked(application, "POST", path, b"{}", host="evil.example"))
    assert status == 400
    assert "location" not in found
    assert json.loads(body)["error"] == "This service does not accept that host name"

"""Test the middleware without a socket and without a book."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from starlette.types import Message

from recto.server.http.app import make_app
from recto.server.http.options import ServeOptions
from recto.server.http.service import SearchService
from recto.settings import Settings


def asked(settings: Settings, path: str, **headers: str) -> tuple[int, bytes]:
    """Return the status and the body of a response."""
    sent: list[Any] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [
            (name.encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()
        ],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(make_app(settings, ServeOptions())(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("part", ["bytes=0-9", "bytes=9-1", "bytes=999999999-", "bytes=a-b", "lines=1"])
@pytest.mark.parametrize("path", ["/", "/static/main.js"])
def test_range_headers_are_ignored(tmp_path: Path, path: str, part: str) -> None:
    settings = Settings("local", "edge", tmp_path)
    whole = asked(settings, path)
    assert whole[0] == 200
    assert asked(settings, path, range=part) == whole


def test_a_slow_call_does_not_block_others(tmp_path: Path) -> None:
    async def ask() -> str:
        searches = SearchService(Settings("local", "edge", tmp_path), ServeOptions(), print)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await searches.run("book", lambda _: sleep(0.3))
        return await searches.run("book", lambda _: "an answer")

    assert asyncio.run(ask()) == "an answer"

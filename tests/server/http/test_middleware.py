"""Test the middleware without a socket and without a book."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import sleep

import pytest

from recto.server.http.app import make_app
from recto.server.http.options import ServeOptions
from recto.server.http.service import SearchService
from recto.settings import Settings
from tests.asgi import asked


@pytest.mark.parametrize("part", ["bytes=0-9", "bytes=9-1", "bytes=999999999-", "bytes=a-b", "lines=1"])
@pytest.mark.parametrize("path", ["/", "/static/main.js"])
def test_range_headers_are_ignored(tmp_path: Path, path: str, part: str) -> None:
    app = make_app(Settings("local", "edge", tmp_path), ServeOptions())
    whole = asyncio.run(asked(app, "GET", path))
    ranged = asyncio.run(asked(app, "GET", path, range=part))
    assert (ranged[0], ranged[2]) == (whole[0], whole[2])
    assert whole[0] == 200


def test_a_slow_call_does_not_block_others(tmp_path: Path) -> None:
    async def ask() -> str:
        searches = SearchService(Settings("local", "edge", tmp_path), ServeOptions(), print)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await searches.run("book", lambda _: sleep(0.3))
        return await searches.run("book", lambda _: "an answer")

    assert asyncio.run(ask()) == "an answer"

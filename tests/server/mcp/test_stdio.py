"""Test reading and writing single messages on standard input and output."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading

import pytest

from recto.server.mcp.server import Outbox, replace_lone_surrogates

POSIX = pytest.mark.skipif(
    sys.platform == "win32", reason="pipes that can be waited for are a matter of POSIX"
)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (r"cut \ud83e", "cut \ufffd"),
        (r"\uDD16 cut", "\ufffd cut"),
        (r"\ud83e\ud83e\udd16", "\ufffd\U0001f916"),
        (r"\ud83e\u0041", "\ufffdA"),
        (r"whole \ud83e\uDD16", "whole \U0001f916"),
        (r"a path C:\\ud83e", r"a path C:\ud83e"),
        (r"\\\ud83e", "\\\ufffd"),
        (r"\n\u00e9 plain", "\n\u00e9 plain"),
    ],
)
def test_lone_surrogates_are_replaced(sent: str, read: str) -> None:
    assert json.loads(replace_lone_surrogates(f'"{sent}"')) == read


@POSIX
def test_a_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        outbox = Outbox.__new__(Outbox)
        monkeypatch.setattr(outbox, "_descriptor", ours.fileno(), raising=False)
        message = "a" * 3_000_000 + "\n"
        got = bytearray()

        def read() -> None:
            while len(got) < len(message):
                got.extend(theirs.recv(65536))

        async def write() -> None:
            asyncio.get_running_loop().call_later(0.1, reading.start)
            await asyncio.wait_for(outbox.write(message), 60)

        reading = threading.Thread(target=read)
        asyncio.run(write())
        reading.join(60)
        assert got.decode() == message

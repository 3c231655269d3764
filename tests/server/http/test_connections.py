"""Test that connections of slow clients are closed."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from recto.server import listening as connections
from recto.server.listening import BoundedConnection
from tests.running import wait_until


async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Send an endless response for a second."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.5)
    config = uvicorn.Config(endless, http=BoundedConnection, lifespan="off", ws="none", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as caller:
        running = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        running.start()
        try:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            caller.connect(listener.getsockname())
            caller.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda: bool(server.server_state.connections))
            wait_until(lambda: not server.server_state.connections)
        finally:
            server.should_exit = True
            running.join(30)

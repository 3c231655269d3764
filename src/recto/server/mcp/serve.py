"""Run the MCP server: on standard input and output, or over HTTP."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from typing import IO, TYPE_CHECKING, cast

import anyio
from anyio import wait_writable
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from recto._util.retry import Notify
from recto.server.auth import ApiKeys, is_loopback, key_required
from recto.server.limits import AdmissionLimits, Refusal, Refused, check_length, request_headers

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
_DEADLINE = 60.0  # seconds; long enough for a long page and a slow engine
_NO_STREAM = Refusal(
    405, "This server does not open event streams", "Send each request with POST.", (("Allow", "POST"),)
)
_MAX_MESSAGE = 64 << 20
_LONE_SURROGATE = re.compile(
    r"""\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"""
)


class Outbox:
    """Standard output for protocol messages only; other prints go to standard error."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._descriptor = os.dup(1)
        os.dup2(2, 1)

    async def write(self, text: str) -> None:
        """Write a whole message."""
        rest = memoryview(text.encode())
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # stdin and stdout can be one socket, which reading made non-blocking
                await wait_writable(self._descriptor)

    async def flush(self) -> None:
        """Do nothing: writes are not buffered."""


def inbox() -> AsyncIterator[str] | None:
    """Return standard input as lines, or None if it is not a pipe that the event loop can wait for."""
    if os.name != "posix" or not _is_pipe(os.fstat(0).st_mode):
        return None
    descriptor = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # child processes must not read the protocol's messages
    os.close(null)
    return _lines(os.fdopen(descriptor, "rb", buffering=0))


async def _lines(pipe: IO[bytes]) -> AsyncIterator[str]:
    reader = asyncio.StreamReader(limit=_MAX_MESSAGE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while line := await reader.readline():
            yield replace_lone_surrogates(line.decode("utf-8", "replace"))
    finally:
        transport.close()


def replace_lone_surrogates(line: str) -> str:
    """Replace escaped lone surrogates in a message: the SDK would drop the request without a response.

    JavaScript programs send them when they cut a text in the middle of an emoji.
    """
    if "\\u" not in line:
        return line
    return _LONE_SURROGATE.sub(lambda found: r"\ufffd" if found[1] else found[0], line)


def _is_pipe(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def run_stdio(server: Server[None]) -> None:
    """Serve the parent program until it closes standard input."""
    # Ctrl-C cannot interrupt a thread that reads a line. Exiting at once is safe: nothing is written.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    async def serve() -> None:
        lines, out = cast("anyio.AsyncFile[str] | None", inbox()), cast("anyio.AsyncFile[str]", Outbox())
        async with stdio_server(stdin=lines, stdout=out) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)


def run_http(server: Server[None], host: str, port: int, keys: Sequence[str], notify: Notify) -> None:
    """Serve many clients over HTTP until Ctrl-C."""
    import uvicorn

    from recto.server.listening import BoundedConnection, base_url, listen

    app = http_app(server, host, keys)
    with listen(host, port) as listener:
        notify(f"Serving the book at {base_url(listener)}{PATH}; press Ctrl-C to stop")
        config = uvicorn.Config(
            app,
            http=BoundedConnection,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=5,
        )
        uvicorn.Server(config).run(sockets=[listener])


def http_app(server: Server[None], host: str, keys: Sequence[str]) -> ASGIApp:
    """Return the ASGI application; it is stateless and answers each request with one JSON response."""
    if not is_loopback(host) and not keys:
        raise key_required(host, "or listen on 127.0.0.1")
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        transport_security=_security(host),
        host=host,
    )
    return McpMiddleware(app, keys)


class McpMiddleware:
    """Checks keys and limits, as the HTTP API does."""

    def __init__(self, app: ASGIApp, keys: Sequence[str] = (), limits: AdmissionLimits | None = None) -> None:
        self._app = app
        self._keys = ApiKeys(tuple(keys))
        self._limits = limits or AdmissionLimits(deadline=_DEADLINE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = request_headers(scope)
        try:
            if self._keys:
                self._keys.authenticate(headers)
            check_length(headers)
            if scope["method"] == "GET" and scope["path"] == PATH:
                raise Refused("method", _NO_STREAM)
            await self._limits.admit(self._app, scope, receive, send)
        except Refused as refused:
            await refused.refusal.response()(scope, receive, send)


def _security(host: str) -> TransportSecuritySettings:
    """Allow only local host names on loopback, against DNS rebinding; elsewhere a key is required."""
    if not is_loopback(host):
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    names = ["127.0.0.1", "localhost", "[::1]", host]
    return TransportSecuritySettings(
        allowed_hosts=[pattern for name in names for pattern in (name, f"{name}:*")],
        allowed_origins=[pattern for name in names for pattern in (f"http://{name}", f"http://{name}:*")],
    )

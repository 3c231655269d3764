"""Run the server: on standard input and output, or on a port that only this machine or holders of a key can use."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
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
from recto.errors import ConfigurationError
from recto.server.auth import Keys, is_loopback, unguarded
from recto.server.limits import AdmissionLimits, Refusal, Refused, busy, check_length

_LONGEST_MESSAGE = 64 << 20
_LONE_SURROGATE = re.compile(
    r"""\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"""
)


class Outbox:
    """Standard output; whatever else is printed goes to standard error."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._descriptor = os.dup(1)
        os.dup2(2, 1)

    async def write(self, text: str) -> None:
        """Write all of a message."""
        rest = memoryview(text.encode())
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except (
                BlockingIOError
            ):  # one socket for both directions: waiting for input has made it one that does not block
                await wait_writable(self._descriptor)

    async def flush(self) -> None:
        """Nothing is held back."""


def inbox() -> AsyncIterator[str] | None:
    """Return standard input as lines, or None where the event loop cannot wait for it: a terminal, a file, another system."""
    if os.name != "posix" or not _is_pipe(os.fstat(0).st_mode):
        return None
    descriptor = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # what we start must not read the protocol's messages
    os.close(nothing)
    return _lines(os.fdopen(descriptor, "rb", buffering=0))


async def _lines(pipe: IO[bytes]) -> AsyncIterator[str]:
    reader = asyncio.StreamReader(limit=_LONGEST_MESSAGE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while line := await reader.readline():
            yield whole_characters(line.decode("utf-8", "replace"))
    finally:
        transport.close()


def whole_characters(line: str) -> str:
    """Replace halves of characters in a message: JSON can hold them, the SDK would drop the request without an answer.

    A program that counts UTF-16, as those in JavaScript do, leaves one wherever it cuts a text in the middle of an emoji.
    """
    return (
        _LONE_SURROGATE.sub(lambda found: r"\ufffd" if found[1] else found[0], line)
        if "\\u" in line
        else line
    )


def _is_pipe(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATH = "/mcp"
_NO_KEY = Refusal(
    401,
    "This service wants a key: send the header `Authorization: Bearer KEY`.",
    headers=(("WWW-Authenticate", 'Bearer realm="recto"'),),
)
_ANSWER_SECONDS = 60.0  # a page of a book and a slow engine included
_NO_STREAM = Refusal(
    405, "Nothing is sent here that was not asked for", "Send each request with POST.", (("Allow", "POST"),)
)


def run_stdio(server: Server[None]) -> None:
    """Serve the program that started us, until it closes our standard input."""
    # Whoever reads a line in a thread cannot be woken by Ctrl-C; nothing is open that a sudden end could harm.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    async def serve() -> None:
        lines, out = cast("anyio.AsyncFile[str] | None", inbox()), cast("anyio.AsyncFile[str]", Outbox())
        async with stdio_server(stdin=lines, stdout=out) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)


def run_http(server: Server[None], host: str, port: int, keys: Sequence[str], notify: Notify) -> None:
    """Serve many programs, until Ctrl-C."""
    import uvicorn

    application = http_application(server, host, keys)
    with listen(host, port) as listener:
        number = listener.getsockname()[1]
        notify(
            f"Serving the book on http://{f'[{host}]' if ':' in host else host}:{number}{PATH} until Ctrl-C"
        )
        config = uvicorn.Config(
            application, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=5
        )
        uvicorn.Server(config).run(sockets=[listener])


def http_application(server: Server[None], host: str, keys: Sequence[str]) -> ASGIApp:
    """Make the application; requests that need no session are answered at once, in one piece."""
    if not is_loopback(host) and not keys:
        raise unguarded(host, "or listen on 127.0.0.1")
    application = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        transport_security=_security(host),
        host=host,
    )
    bounded = Bounded(application)
    return KeyCheck(bounded, keys) if keys else bounded


def listen(host: str, port: int) -> socket.socket:
    """Open the port, or say why that cannot be."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigurationError(
            f"Cannot listen on {host} port {port}: {_reason(error)}",
            hint="Another program may listen there; choose another --port or --host.",
        ) from error


def _reason(error: OSError) -> str:
    """What the system says, without what `socket` adds about the address."""
    return (error.strerror or str(error)).partition(" (while")[0]


class KeyCheck:
    """Lets requests through that bring one of the keys."""

    def __init__(self, application: ASGIApp, keys: Sequence[str]) -> None:
        self._application = application
        self._keys = Keys(tuple(keys))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, or pass the request on."""
        if scope["type"] == "http" and not self._keys.holder(
            dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        ):
            await _refuse(send, _NO_KEY)
            return
        await self._application(scope, receive, send)


class Bounded:
    """Lets no more in than the service does: bodies of a size, so many requests at once, and so many seconds for one."""

    def __init__(
        self, application: ASGIApp, bounds: AdmissionLimits | None = None, seconds: float = _ANSWER_SECONDS
    ) -> None:
        self._application = application
        self._bounds = bounds or AdmissionLimits()
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer why not, or pass the request on."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        try:
            check_length(dict(scope["headers"]).get(b"content-length", b"").decode("latin-1"))
            if (
                scope["method"] == "GET" and scope["path"] == PATH
            ):  # a stream on which nothing would ever come, open for ever
                raise Refused("method", _NO_STREAM)
            whole = await self._bounds.read(receive)
            with self._bounds.answering():
                await self._answer(scope, whole, send)
        except Refused as refused:
            await _refuse(send, refused.refusal)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        from asyncio import timeout

        began = False

        async def sending(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            async with timeout(self._seconds):
                await self._application(scope, receive, sending)
        except TimeoutError:
            if not began:
                raise Refused(
                    "timeout", busy(f"There was no answer within {self._seconds:g} s", seconds=2)
                ) from None


def _security(host: str) -> TransportSecuritySettings:
    """Refuse names that are not ours, so that no web page reaches us by one of its own; beyond this machine, the key sees to that."""
    if not is_loopback(host):
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    names = ["127.0.0.1", "localhost", "[::1]", host]
    return TransportSecuritySettings(
        allowed_hosts=[pattern for name in names for pattern in (name, f"{name}:*")],
        allowed_origins=[pattern for name in names for pattern in (f"http://{name}", f"http://{name}:*")],
    )


async def _refuse(send: Send, refusal: Refusal) -> None:
    body = json.dumps(refusal.body()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **dict(refusal.headers)}
    sent = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": sent})
    await send({"type": "http.response.body", "body": body})

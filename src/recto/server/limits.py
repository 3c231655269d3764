"""Admission limits of the HTTP API and of MCP over HTTP: body size, deadlines, concurrency, request rate."""

from __future__ import annotations

import json
import math
import time
from asyncio import timeout
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 64 * 1024
MAX_CONCURRENCY = 100
BODY_SECONDS = 10.0
MAX_READERS = 512
"""How many request bodies are read at once: slow clients do not block others, and 32 MiB are enough."""

RETRY_HINT = "Try again in a moment."
_CLOSE = (("Connection", "close"),)  # the rest of the body is not read
_MAX_CALLERS = 10_000


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response."""

    status: int
    error: str
    hint: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> dict[str, object]:
        """Return the body that every error has."""
        body: dict[str, object] = {"error": self.error, "status_code": self.status}
        return body | {"hint": self.hint} if self.hint else body

    def response(self) -> Response:
        """Return the error as an HTTP response."""
        from starlette.responses import Response

        body = json.dumps(self.body(), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return Response(body, self.status, dict(self.headers), "application/json")


class Refused(Exception):
    """A request that is not admitted; `reason` is the label for metrics and the log."""

    def __init__(self, reason: str, refusal: Refusal) -> None:
        super().__init__(refusal.error)
        self.reason = reason
        self.refusal = refusal


def busy(message: str, hint: str = RETRY_HINT, seconds: float = 1) -> Refusal:
    """Return a 503 that says when to retry."""
    return Refusal(503, message, hint, (("Retry-After", str(max(1, math.ceil(seconds)))),))


def request_headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a request; of a repeated header, the first."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def check_length(headers: Mapping[str, str]) -> None:
    """Refuse a body whose Content-Length is too large."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdecimal() and (len(length) > 9 or int(length) > MAX_BODY):
        raise Refused("size", _too_large())


class AdmissionLimits:
    """Admits `concurrency` requests at once, each with a deadline; use it from one event loop."""

    def __init__(
        self,
        concurrency: int = MAX_CONCURRENCY,
        deadline: float = 15.0,
        body_deadline: float = BODY_SECONDS,
        readers: int = MAX_READERS,
    ) -> None:
        self._deadline = deadline
        self._body_deadline = min(body_deadline, deadline)
        self._reading = _Slots(readers, "The service is reading as many requests as it can")
        self._running = _Slots(concurrency, "The service is answering as many requests as it can")

    async def admit(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, take a slot, and run the application; raise `Refused` if a limit is exceeded."""
        # A body that is still arriving takes no slot: slow clients must not block others.
        complete = receive if scope["method"] == "GET" else await self.read_body(receive)
        with self._running.take():
            await self.run(app, scope, complete, send)

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; raise `Refused` if it has not started its response by the deadline."""
        started = False

        async def track(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with timeout(self._deadline):
                await app(scope, receive, track)
        except TimeoutError:
            if not started:
                raise Refused(
                    "timeout", busy(f"There was no answer within {self._deadline:g} s", seconds=2)
                ) from None

    async def read_body(self, receive: Receive) -> Receive:
        """Read the whole body; return a `receive` that replays it."""
        with self._reading.take():
            try:
                async with timeout(self._body_deadline):
                    body = await _read(receive)
            except TimeoutError:
                message = f"The body did not arrive within {self._body_deadline:g} s"
                raise Refused("slow", Refusal(408, message, "Send the whole body at once.", _CLOSE)) from None

        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        return replay


class _Slots:
    """A fixed number of slots; a request that finds none is refused."""

    def __init__(self, count: int, message: str) -> None:
        self._free = count
        self._message = message

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a slot."""
        if not self._free:
            raise Refused("busy", busy(self._message))
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":  # no client reads this error, but the log records it
            raise Refused("disconnect", Refusal(400, "The body is not complete"))
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise Refused("size", _too_large(_CLOSE))
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(headers: tuple[tuple[str, str], ...] = ()) -> Refusal:
    return Refusal(
        413, f"The body is larger than {MAX_BODY} bytes", "Send fewer or shorter queries.", headers
    )


class RateLimiter:
    """A token bucket for each caller; 0 requests per minute means no limit."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, caller: str) -> None:
        """Count a request; raise `Refused` if the caller's bucket is empty."""
        if not self._per_minute:
            return
        now = self._clock()
        tokens, updated = self._buckets.pop(caller, (float(self._per_minute), now))
        tokens = min(float(self._per_minute), tokens + (now - updated) * self._per_minute / 60)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > _MAX_CALLERS:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = max(1, math.ceil((1 - tokens) * 60 / self._per_minute))
            hint = f"The limit is {self._per_minute} requests per minute."
            raise Refused("rate", Refusal(429, "Too many requests", hint, (("Retry-After", str(wait)),)))

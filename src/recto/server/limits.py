"""Admission limits of the HTTP API and of MCP over HTTP: body size, deadlines, concurrency, request rate."""

from __future__ import annotations

import json
import math
import threading
import time
from asyncio import FIRST_COMPLETED, Semaphore, create_task, gather, get_running_loop, timeout, wait
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 64 * 1024
_CHARGED_BYTES = 500  # of a request that count as one request for the rate limit
MAX_CONCURRENCY = 100
MAX_WAITING = 100
"""How many requests of one caller wait for a slot."""
BODY_SECONDS = 10.0
BURST_SECONDS = 5
"""A caller may burst up to this many seconds' worth of requests."""
MAX_READERS = 512
"""How many request bodies are read at once: slow clients do not block others, and 32 MiB are enough."""

RETRY_HINT = "Try again in a moment."
_CLOSE = (("Connection", "close"),)  # the rest of the body is not read
_MAX_CALLERS = 10_000
_DEADLINE = "recto.deadline"  # in the scope of a request


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response."""

    status: int
    error: str
    hint: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def response(self) -> Response:
        """Return the error as an HTTP response."""
        body = {"error": self.error, "status_code": self.status} | ({"hint": self.hint} if self.hint else {})
        return respond(body, self.status, dict(self.headers))


def respond(data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; lone surrogates become question marks."""
    from starlette.responses import Response

    body = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(body.encode("utf-8", "replace"), status, headers, "application/json")


class Refused(Exception):
    """A request that is not admitted; `reason` is the label for metrics and the log."""

    def __init__(self, reason: str, refusal: Refusal) -> None:
        super().__init__(refusal.error)
        self.reason = reason
        self.refusal = refusal


def busy(message: str, hint: str = RETRY_HINT, seconds: float = 1) -> Refusal:
    """Return a 503 that says when to retry."""
    return Refusal(503, message, hint, (("Retry-After", str(max(1, math.ceil(seconds)))),))


_TWO_LENGTHS = Refusal(
    400, "Content-Length and Transfer-Encoding exclude each other", "Send only one of them.", _CLOSE
)
_TOO_MANY_AT_ONCE = Refusal(
    429,
    "Too many requests at the same time",
    "Wait for the responses to earlier requests.",
    (("Retry-After", "1"),),
)


def check_length(headers: Mapping[str, str]) -> None:
    """Refuse a body whose Content-Length is too large."""
    length = headers.get("content-length", "")
    if length and "transfer-encoding" in headers:  # a proxy could see other requests in it than this server
        raise Refused("framing", _TWO_LENGTHS)
    if length.isascii() and length.isdecimal() and (len(length) > 9 or int(length) > MAX_BODY):
        raise Refused("size", _too_large())


class CallCancelled(Exception):
    """The request that a thread works for has ended."""


@dataclass(frozen=True, slots=True)
class CurrentRequest:
    """The request that the current task or thread works for.

    `cancelled` is set when the request has ended, `disconnected` before it if the client has closed the
    connection. `charge` counts more work for the rate limit. `collections` are those that the key is for;
    none means all.
    """

    caller: str
    cancelled: threading.Event = field(default_factory=threading.Event)
    disconnected: threading.Event = field(default_factory=threading.Event)
    charge: Callable[[float], None] = lambda _: None
    collections: tuple[str, ...] = ()


_current: ContextVar[CurrentRequest] = ContextVar("current_request", default=CurrentRequest(""))  # noqa: B039
current_request = _current.get
"""Return the request that the current task or thread works for."""


class AdmissionLimits:
    """Admits `concurrency` requests at once, each with a deadline; use it from one event loop.

    Further requests wait; one caller gets at most half of the slots.
    """

    def __init__(
        self,
        concurrency: int = MAX_CONCURRENCY,
        deadline: float = 15.0,
        body_deadline: float = BODY_SECONDS,
        readers: int = MAX_READERS,
    ) -> None:
        self._deadline = deadline
        self._body_deadline = min(body_deadline, deadline)
        self._free_readers = readers
        self._running = FairSlots(concurrency)

    async def admit(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, request: CurrentRequest
    ) -> None:
        """Read the body, wait for a slot, and run the application; raise `Refused` if a limit is exceeded."""
        # A body that is still arriving takes no slot: slow clients must not block others.
        complete, size = await self.read_body(receive)
        # Whatever is in it, it takes work to read, check and log.
        if extra := (size + len(scope.get("query_string", b""))) // _CHARGED_BYTES:
            request.charge(extra)

        async def client_left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async def until_client_leaves(scope: Scope, complete: Receive, send: Send) -> None:
            is_answered = False

            async def track(message: Message) -> None:
                nonlocal is_answered
                await send(message)
                is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)

            async def in_slot() -> None:
                async with self._running.take(request.caller):
                    await app(scope, complete, track)

            running, leaving = create_task(in_slot()), create_task(client_left())
            try:
                await wait((running, leaving), return_when=FIRST_COMPLETED)
                # The server also reports that the client has left when it has sent the whole response.
                if not running.done() and not is_answered:
                    request.disconnected.set()
                    raise Refused("disconnect", Refusal(400, "The client has closed the connection"))
                await running
            finally:
                request.cancelled.set()
                running.cancel()
                leaving.cancel()
                await gather(running, leaving, return_exceptions=True)

        token = _current.set(request)
        try:
            await self.run(until_client_leaves, scope, complete, send)
        finally:
            _current.reset(token)

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; raise `Refused` if it has not started its response by the deadline."""
        started = False

        async def track(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with timeout(self._deadline) as deadline:
                scope[_DEADLINE] = deadline
                await app(scope, receive, track)
        except TimeoutError:
            if not started:
                raise Refused(
                    "timeout", busy(f"There was no answer within {self._deadline:g} s", seconds=2)
                ) from None

    async def read_body(self, receive: Receive) -> tuple[Receive, int]:
        """Read the whole body; return a `receive` that replays it, and its size."""
        if not self._free_readers:
            raise Refused("busy", busy("The service is reading as many requests as it can"))
        self._free_readers -= 1
        body = bytearray()
        more = True
        try:
            async with timeout(self._body_deadline):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":  # no client reads it, but the log records it
                        raise Refused("disconnect", Refusal(400, "The body is not complete"))
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > MAX_BODY:
                        raise Refused("size", _too_large(_CLOSE))
        except TimeoutError:
            late = f"The body did not arrive within {self._body_deadline:g} s"
            raise Refused("slow", Refusal(408, late, "Send the whole body at once.", _CLOSE)) from None
        finally:
            self._free_readers += 1

        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        return replay, len(body)


def set_deadline(scope: Scope, seconds: float) -> None:
    """Let a request that streams its response take so many seconds from now on."""
    scope[_DEADLINE].reschedule(get_running_loop().time() + seconds)


class FairSlots:
    """A fixed number of slots for callers; use it from one event loop.

    One caller gets a part of the slots, so that others need not wait for all of its requests. A caller with
    too many waiting requests is refused.
    """

    def __init__(self, count: int, per_caller: int = 0) -> None:
        """Take the number of slots, and how many of them one caller gets (default: half of them)."""
        self._all = Semaphore(count)
        self._per_caller = per_caller or max(1, count // 2)
        self._own: dict[str, Semaphore] = {}
        self._requests: Counter[str] = Counter()

    @asynccontextmanager
    async def take(self, caller: str) -> AsyncIterator[None]:
        """Hold a slot; wait for it if necessary."""
        await self.acquire(caller)
        try:
            yield
        finally:
            self.release(caller)

    async def acquire(self, caller: str) -> None:
        """Get a slot; wait for it if necessary."""
        if self._requests[caller] >= self._per_caller + MAX_WAITING:
            raise Refused("queue", _TOO_MANY_AT_ONCE)
        self._requests[caller] += 1
        own = self._own.setdefault(caller, Semaphore(self._per_caller))
        try:
            await own.acquire()  # so that the queue for all slots has only a few requests of each caller
            try:
                await self._all.acquire()
            except BaseException:
                own.release()
                raise
        except BaseException:
            self._leave(caller)
            raise

    def release(self, caller: str) -> None:
        """Return a slot."""
        self._all.release()
        self._own[caller].release()
        self._leave(caller)

    def _leave(self, caller: str) -> None:
        self._requests[caller] -= 1
        if not self._requests[caller]:
            del self._requests[caller], self._own[caller]


def _too_large(headers: tuple[tuple[str, str], ...] = ()) -> Refusal:
    return Refusal(
        413, f"The body is larger than {MAX_BODY} bytes", "Send fewer or shorter queries.", headers
    )


class RateLimiter:
    """A token bucket for each caller; 0 requests per minute means no limit.

    The bucket holds what a caller may send in five seconds. A request that costs more than one token is
    admitted if there is one, and the caller waits longer afterwards.
    """

    def __init__(
        self,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        burst: float = 0,
        message: str = "Too many requests",
        hint: str = "",
    ) -> None:
        """Take the requests per minute, and the size of a burst (default: what five seconds allow)."""
        self._per_minute = per_minute
        self._capacity = max(1.0, burst or per_minute * BURST_SECONDS / 60)
        self._clock = clock
        self._message = message
        self._hint = (
            hint or f"The limit is {per_minute} requests per minute; a long request counts as several."
        )
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, caller: str) -> None:
        """Count a request; raise `Refused` if the caller's bucket is empty."""
        if not self._per_minute:
            return
        tokens = self._tokens(caller)
        if tokens < 1:
            wait = max(1, math.ceil((1 - tokens) * 60 / self._per_minute))
            raise Refused("rate", Refusal(429, self._message, self._hint, (("Retry-After", str(wait)),)))
        self.charge(caller, 1)

    def charge(self, caller: str, cost: float) -> None:
        """Take tokens from a caller's bucket, also more than it holds."""
        if self._per_minute:
            self._buckets[caller] = (self._tokens(caller) - cost, self._clock())
            if len(self._buckets) > _MAX_CALLERS:
                self._buckets.popitem(last=False)

    def _tokens(self, caller: str) -> float:
        now = self._clock()
        tokens, updated = self._buckets.pop(caller, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - updated) * self._per_minute / 60)
        self._buckets[caller] = (tokens, now)
        return tokens

"""Limits of the HTTP API and of MCP over HTTP: request rate, body size, concurrency, time."""

from __future__ import annotations

import ipaddress
import json
import math
import threading
import time
from asyncio import FIRST_COMPLETED, Semaphore, create_task, gather, get_running_loop, sleep, timeout, wait
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from recto.server.keys import Key

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 64 * 1024
MAX_CONCURRENCY = 100
MAX_WAITING = 100
"""How many requests wait for one of the concurrent ones to end."""
BODY_SECONDS = 10.0
BURST_SECONDS = 5
"""A caller may burst up to this many seconds' worth of requests."""
REFUSAL_SECONDS = 1.0
"""How long a request that exceeds the rate limit waits for its refusal."""
RETRY_HINT = "Try again in a moment."
KEY, REFUSAL_REASON = "recto.key", "recto.refusal_reason"
"""What the middleware adds to the scope of a request: the accepted key, and why the request was refused."""

_CHARGED_BYTES = 500  # a longer request costs more time to read and embed, so it counts as several
_CLOSE = (("Connection", "close"),)  # the rest of the body is not read
_MAX_CALLERS = 10_000  # about 1 MB of buckets
_IPV6_PREFIX = 64  # one subscriber has a whole /64 network: a limit for each address would not limit anyone
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
_TOO_LARGE = Refusal(
    413, f"The body is larger than {MAX_BODY} bytes", "Send fewer or shorter queries.", _CLOSE
)


class CallCancelled(Exception):
    """The request that a thread works for has ended."""


@dataclass(frozen=True, slots=True)
class CurrentRequest:
    """The request that the current task or thread works for.

    `cancelled` is set when the request has ended, `disconnected` before it if the client has closed the
    connection. `charge` counts more work for the rate limit. `collections` are the collections of the
    request's key; an empty tuple means all.
    """

    caller: str
    cancelled: threading.Event = field(default_factory=threading.Event)
    disconnected: threading.Event = field(default_factory=threading.Event)
    charge: Callable[[float], None] = lambda _: None
    collections: tuple[str, ...] = ()


_current: ContextVar[CurrentRequest] = ContextVar("current_request", default=CurrentRequest(""))  # noqa: B039
current_request = _current.get
"""Return the request that the current task or thread works for."""


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

    def check(self, caller: str, cost: float = 1) -> float:
        """Count a request, and return the tokens that are left; raise `Refused` if the bucket is empty."""
        return self._take(caller, cost, at_least=1)

    def charge(self, caller: str, left: float, cost: float) -> None:
        """Count more work of a request that had so many tokens left when it was admitted.

        A request may cost more than the bucket holds, unless other requests have emptied it in the meantime.
        """
        if cost > 0:
            self._take(caller, cost, at_least=min(0, left))

    def _take(self, caller: str, cost: float, at_least: float) -> float:
        if not self._per_minute:
            return 0
        tokens = self._tokens(caller)
        if tokens < at_least:
            seconds = max(1, math.ceil((1 - tokens) * 60 / self._per_minute))
            raise Refused("rate", Refusal(429, self._message, self._hint, (("Retry-After", str(seconds)),)))
        self._buckets[caller] = (tokens - cost, self._clock())
        if len(self._buckets) > _MAX_CALLERS:
            self._buckets.popitem(last=False)
        return tokens - cost

    def _tokens(self, caller: str) -> float:
        now = self._clock()
        tokens, updated = self._buckets.pop(caller, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - updated) * self._per_minute / 60)
        self._buckets[caller] = (tokens, now)
        return tokens


class LimitsMiddleware:
    """Bounds the rate, the body size, the concurrency and the time of requests; use it from one event loop.

    `concurrency` requests run at once, and `MAX_WAITING` more wait. `is_limited` says whether all limits
    apply to a path; other paths have only a deadline.
    """

    def __init__(
        self,
        app: ASGIApp,
        rate: RateLimiter | None = None,
        concurrency: int = MAX_CONCURRENCY,
        deadline: float = 15.0,
        is_limited: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.app = app
        self._rate = rate or RateLimiter(0)
        self._slots = Semaphore(concurrency)
        self._waiting = 0
        self._deadline = deadline
        self._is_limited = is_limited

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; raise `Refused` if a limit is exceeded."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = _declared_length(scope)
        if not self._is_limited(scope["path"]):
            await self._run(self.app, scope, receive, send)
            return
        key: Key | None = scope.get(KEY)
        caller = _caller(scope, key)
        query_size = len(scope["query_string"])
        left = 0.0
        if length is not None:
            left = await self._check_rate(caller, length + query_size)
        # A body that is still arriving takes no slot: slow clients must not block others.
        body = await self._read_body(receive)
        if length is None:
            left = await self._check_rate(caller, len(body) + query_size)
        charge = partial(self._rate.charge, caller, left)
        request = CurrentRequest(caller, charge=charge, collections=key.collections if key else ())
        token = _current.set(request)
        try:
            await self._run(partial(self._run_while_connected, request, receive), scope, _replay(body), send)
        finally:
            _current.reset(token)

    async def _check_rate(self, caller: str, size: int) -> float:
        """Count a request of so many bytes, and return the tokens left; wait before it is refused.

        Without the pause, a client that does not wait would keep the service busy with refusals.
        """
        try:
            return self._rate.check(caller, 1 + size // _CHARGED_BYTES)
        except Refused:
            await sleep(REFUSAL_SECONDS)
            raise

    async def _run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run an application; raise `Refused` if it has not started its response by the deadline."""
        is_started = False

        async def track(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            async with timeout(self._deadline) as deadline:
                scope[_DEADLINE] = deadline
                await app(scope, receive, track)
        except TimeoutError:
            if not is_started:
                late = busy(f"There was no answer within {self._deadline:g} s", seconds=2)
                raise Refused("timeout", late) from None

    async def _run_while_connected(
        self, request: CurrentRequest, connection: Receive, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Run the application in a slot, and cancel it if the client closes the connection."""
        is_answered = False

        async def track(message: Message) -> None:
            nonlocal is_answered
            await send(message)
            is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)

        async def run() -> None:
            async with self._slot():
                await self.app(scope, receive, track)

        async def wait_for_disconnect() -> None:
            while (await connection())["type"] != "http.disconnect":
                pass

        running, leaving = create_task(run()), create_task(wait_for_disconnect())
        try:
            await wait((running, leaving), return_when=FIRST_COMPLETED)
            # The server also reports a disconnect when it has sent the whole response.
            if not running.done() and not is_answered:
                request.disconnected.set()
                raise Refused("disconnect", Refusal(400, "The client has closed the connection"))
            await running
        finally:
            request.cancelled.set()
            running.cancel()
            leaving.cancel()
            await gather(running, leaving, return_exceptions=True)

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Hold one of the slots; wait for it in a bounded queue."""
        if self._slots.locked() and self._waiting >= MAX_WAITING:
            raise Refused("queue", busy("Too many requests are waiting"))
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()

    async def _read_body(self, receive: Receive) -> bytes:
        """Read the whole body."""
        body = bytearray()
        more = True
        seconds = min(BODY_SECONDS, self._deadline)
        try:
            async with timeout(seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":  # no client reads it, but the log records it
                        raise Refused("disconnect", Refusal(400, "The body is not complete"))
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > MAX_BODY:
                        raise Refused("size", _TOO_LARGE)
        except TimeoutError:
            late = f"The body did not arrive within {seconds:g} s"
            raise Refused("slow", Refusal(408, late, "Send the whole body at once.", _CLOSE)) from None
        return bytes(body)


def set_deadline(scope: Scope, seconds: float) -> None:
    """Let a request that streams its response take so many seconds from now on."""
    scope[_DEADLINE].reschedule(get_running_loop().time() + seconds)


def client_address(scope: Scope) -> str:
    """Return the address of the client; IPv6 addresses of one subscriber count as one client.

    Behind trusted proxies, uvicorn has replaced the proxy's address by the address in `X-Forwarded-For`.
    """
    client = scope.get("client")
    if not client:
        return "unknown"
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return str(client[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))


def _caller(scope: Scope, key: Key | None) -> str:
    """Return who is limited: an admin key, or a client address. Many readers share a search key."""
    return f"key {key.name}" if key and key.scope == "admin" else client_address(scope)


def _declared_length(scope: Scope) -> int | None:
    """Return the length of the body, None if it is sent in chunks; raise `Refused` if it is too large."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    if b"transfer-encoding" in headers:
        if b"content-length" in headers:  # a proxy could see other requests in it than this server
            raise Refused("framing", _TWO_LENGTHS)
        return None
    # h11 accepts digits only; Python would take long to read thousands of them.
    if len(length) > len(str(MAX_BODY)) or int(length) > MAX_BODY:
        raise Refused("size", _TOO_LARGE)
    return int(length)


def _replay(body: bytes) -> Receive:
    """Return a `receive` that gives the body, and then waits: the client is watched elsewhere."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await get_running_loop().create_future()

    return receive

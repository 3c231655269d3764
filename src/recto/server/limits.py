"""How much each caller may ask: requests a minute."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Message, Receive

MAX_BODY = 64 * 1024
MOST_AT_ONCE = 100
BODY_SECONDS = 10.0
READERS = 512
"""Bodies that may be on their way at once: so many that slow callers do not keep others out, and 32 MiB at most."""

LATER = "Try again in a moment."
_CLOSED = (("Connection", "close"),)  # what is left of the body is not waited for


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is answered instead of a result."""

    status: int
    error: str
    hint: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> dict[str, object]:
        """Return the body that every error has."""
        body: dict[str, object] = {"error": self.error, "status_code": self.status}
        return body | {"hint": self.hint} if self.hint else body


class Refused(Exception):
    """A request that is not taken in; `reason` is one word for the figures."""

    def __init__(self, reason: str, refusal: Refusal) -> None:
        super().__init__(refusal.error)
        self.reason = reason
        self.refusal = refusal


def busy(message: str, hint: str = LATER, seconds: float = 1) -> Refusal:
    """Return the answer of a service that cannot take more at the moment."""
    return Refusal(503, message, hint, (("Retry-After", str(max(1, math.ceil(seconds)))),))


def check_length(content_length: str) -> None:
    """Refuse a body that says itself that it is too large."""
    if (
        content_length.isascii()
        and content_length.isdecimal()
        and (len(content_length) > 9 or int(content_length) > MAX_BODY)
    ):
        raise Refused("size", _too_large())


class AdmissionLimits:
    """Counts what is under way; used from one event loop."""

    def __init__(
        self, most: int = MOST_AT_ONCE, body_seconds: float = BODY_SECONDS, readers: int = READERS
    ) -> None:
        self._seconds = body_seconds
        self._reading = _Slots(readers, "The service reads as many requests as it can at once")
        self._answering = _Slots(most, "The service has as many requests as it can answer at once")

    async def read(self, receive: Receive) -> Receive:
        """Wait for a whole body, which does not count as a request under way until it is there; return what gives it out again."""
        from asyncio import timeout

        with self._reading.taken():
            try:
                async with timeout(self._seconds):
                    body = await _whole(receive)
            except TimeoutError:
                message = f"The body did not arrive within {self._seconds:g} s"
                raise Refused(
                    "slow", Refusal(408, message, "Send the whole body at once.", _CLOSED)
                ) from None

        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        return again

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count a request as long as it is answered."""
        with self._answering.taken():
            yield


class _Slots:
    """So many at once; one more is told to come back."""

    def __init__(self, most: int, message: str) -> None:
        self._most = most
        self._message = message
        self._taken = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take a slot for a while."""
        if self._taken >= self._most:
            raise Refused("busy", busy(self._message))
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


async def _whole(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(
                "left", Refusal(400, "The body is not complete")
            )  # nobody is there to read it, but the log has its line
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise Refused("size", _too_large(_CLOSED))
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(headers: tuple[tuple[str, str], ...] = ()) -> Refusal:
    return Refusal(
        413, f"The body is larger than {MAX_BODY} bytes", "Send fewer or shorter questions.", headers
    )


_MOST_CALLERS = 10_000


class RateLimiter:
    """So many requests a minute for each caller: a bucket that is filled again evenly."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, caller: str) -> Refusal | None:
        """Count a request, or say when the next one is welcome."""
        if not self._per_minute:
            return None
        now = self._clock()
        left, at = self._buckets.pop(caller, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - at) * self._per_minute / 60)
        allowed = left >= 1
        self._buckets[caller] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if allowed:
            return None
        wait = math.ceil((1 - left) * 60 / self._per_minute)
        hint = f"At most {self._per_minute} requests a minute are answered."
        return Refusal(429, "Too many requests", hint, (("Retry-After", str(max(1, wait))),))

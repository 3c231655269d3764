"""How much may be asked: the size of a body, requests at once, requests a minute."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from recto.http.errors import Refusal, busy

MAX_BODY = 64 * 1024
_MOST_CALLERS = 10_000
TOO_LARGE = f"The body is larger than {MAX_BODY} bytes"


class BodyTooLarge(HTTPException):
    """A body that went on beyond the limit without having said so before."""

    def __init__(self) -> None:
        super().__init__(413, TOO_LARGE)


def check_length(content_length: str) -> Refusal | None:
    """Refuse a body that says itself that it is too large."""
    too_large = content_length.isascii() and content_length.isdecimal() and (len(content_length) > 9 or int(content_length) > MAX_BODY)
    return Refusal(413, TOO_LARGE, "Send fewer or shorter questions.") if too_large else None


def bounded_body(receive: Receive) -> Receive:
    """Count a body as it arrives."""
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise BodyTooLarge
        return message

    return counted


class Slots:
    """So many requests at once; one more is told to come back."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    def take(self) -> Refusal | None:
        """Take a slot, or say that there is none."""
        if self._taken >= self._most:
            return busy("The service has as many requests as it can answer at once")
        self._taken += 1
        return None

    def give_back(self) -> None:
        """Give a slot back."""
        self._taken -= 1


class Rate:
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

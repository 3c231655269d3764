"""How much each caller may ask: requests a minute."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from recto.bounds import Refusal

_MOST_CALLERS = 10_000


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

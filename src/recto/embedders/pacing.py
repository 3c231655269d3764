"""Stay below a service's limits per minute, and say so when that means waiting."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from recto.remote import Tell

_MINUTE = 60.0
_WORTH_TELLING = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Pace:
    """What a key may do within a minute."""

    calls: float = math.inf
    inputs: float = math.inf
    tokens: float = math.inf


TRIAL = Pace(calls=100, inputs=2000, tokens=100_000)
PRODUCTION = Pace(calls=2000, inputs=2000)
PACES = {"trial": TRIAL, "production": PRODUCTION, "off": Pace()}


class Pacer:
    """Waits before a call that would go beyond the pace of the last sixty seconds."""

    def __init__(
        self, pace: Pace, tell: Tell, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._pace = pace
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._sent: deque[tuple[float, int, int]] = deque()

    def wait(self, inputs: int, tokens: int) -> None:
        """Wait until a call with so many inputs and tokens is allowed, and note it."""
        pause = self._pause(inputs, tokens)
        if pause >= _WORTH_TELLING:
            self._tell(f"Keeping to the key's limits per minute: waiting {math.ceil(pause)} s")
        if pause > 0:
            self._sleep(pause)
        self._sent.append((self._clock(), inputs, tokens))

    def _pause(self, inputs: int, tokens: int) -> float:
        now, pace = self._clock(), self._pace
        while self._sent and now - self._sent[0][0] >= _MINUTE:
            self._sent.popleft()
        calls, all_inputs, all_tokens, pause = (
            len(self._sent),
            sum(sent[1] for sent in self._sent),
            sum(sent[2] for sent in self._sent),
            0.0,
        )
        for when, old_inputs, old_tokens in self._sent:
            if calls + 1 <= pace.calls and all_inputs + inputs <= pace.inputs and all_tokens + tokens <= pace.tokens:
                break
            calls, all_inputs, all_tokens = calls - 1, all_inputs - old_inputs, all_tokens - old_tokens
            pause = when + _MINUTE - now
        return pause

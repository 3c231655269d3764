"""Call services: time limits that hold, retries, one client per event loop, and no secrets in messages.

What is sent, checked and retried is the same with and without an event loop. It is therefore written once, as
generators that yield calls and pauses; `run` and `arun` make the calls and wait.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from recto.errors import EmbeddingError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Result = TypeVar("Result")

Backoff = Callable[[int, Exception], float | None]
"""Called with the number of failures and the last error; returns the seconds to wait, or None to give up."""


class DeadlineExceeded(Exception):
    """A call did not return in time."""


def with_timeout(call: Callable[[], Result], seconds: float) -> Result:
    """Return the result of a call, or raise `DeadlineExceeded`.

    A client's own timeouts start again with every byte, so a server that sends a byte now and then never
    exceeds them. After the deadline, the call goes on in its thread until the client's timeouts end it.
    """
    answers: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            answers.put((None, error))

    threading.Thread(target=run, daemon=True, name="recto-call").start()
    try:
        result, error = answers.get(timeout=max(0.0, seconds))
    except queue.Empty:
        raise DeadlineExceeded(f"no answer within {seconds:.0f} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def retry(
    call: Callable[[], Result], backoff: Backoff, sleep: Callable[[float], None] = time.sleep
) -> Result:
    """Call until it succeeds or `backoff` gives up."""
    failures = 0
    while True:
        try:
            return call()
        except Exception as error:
            failures += 1
            pause = backoff(failures, error)
            if pause is None:
                raise
        sleep(pause)


def retry_after(headers: Mapping[str, str], clock: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that `retry-after-ms` or `Retry-After` asks for; the latter may be a date."""
    value = headers.get("retry-after", "").strip()
    try:
        if milliseconds := headers.get("retry-after-ms"):
            seconds = float(milliseconds) / 1000
        elif value[:1].isalpha():
            from datetime import UTC
            from email.utils import parsedate_to_datetime

            date = parsedate_to_datetime(value)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - clock()
        else:
            seconds = float(value)
    except (OverflowError, ValueError):
        return None
    return max(0.0, seconds) if isfinite(seconds) else None


class ClientPerLoop(Generic[Result]):
    """One client per event loop, because a client's connections belong to the loop that opened them."""

    def __init__(self, make: Callable[[], Result]) -> None:
        self._make = make
        self._clients: WeakKeyDictionary[AbstractEventLoop, Result] = WeakKeyDictionary()

    def get(self) -> Result:
        """Return the running loop's client."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._make()
        return self._clients[loop]

    def pop(self) -> Result | None:
        """Remove and return the running loop's client, so that the caller can close it."""
        from asyncio import get_running_loop

        return self._clients.pop(get_running_loop(), None)


def redacted(text: str, *secrets: str) -> str:
    """Return a text with every secret replaced by `***`: services may repeat a key in their messages."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text


QUERY_TRIES = 3
DOCUMENT_TRIES = 6
_MAX_BACKOFF = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call to a client, and the seconds in which it must return."""

    arguments: dict[str, Any]
    seconds: float


Steps = Generator[Call | float, Any, Result]
"""Yields calls, and is sent their results, or their errors as values; a number is a pause in seconds."""


class TransientEmbeddingError(EmbeddingError):
    """An error that a retry may solve; `retry_after` is the wait that the service asked for, in seconds."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


def run(steps: Steps[Result], send: Callable[..., Any], sleep: Callable[[float], None]) -> Result:
    """Make the calls of these steps with `send`, and return their result."""
    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            result: Result = end.value
            return result
        reply = None
        if not isinstance(step, Call):
            sleep(step)
            continue
        try:
            reply = with_timeout(partial(send, **step.arguments), step.seconds)
        except Exception as error:  # noqa: BLE001 - the steps translate every error of the client
            reply = error


async def arun(steps: Steps[Result], send: Callable[..., Awaitable[Any]]) -> Result:
    """Make the calls of these steps without blocking the event loop; see `run`."""
    from asyncio import sleep, wait_for

    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            result: Result = end.value
            return result
        reply = None
        if not isinstance(step, Call):
            await sleep(step)
            continue
        try:
            reply = await wait_for(send(**step.arguments), step.seconds)
        except TimeoutError:
            reply = DeadlineExceeded(f"no answer within {step.seconds:.0f} s")
        except Exception as error:  # noqa: BLE001 - the steps translate every error of the client
            reply = error


def retried(steps: Callable[[], Steps[Result]], backoff: Backoff) -> Steps[Result]:
    """Repeat steps until they succeed or `backoff` gives up."""
    failures = 0
    while True:
        try:
            return (yield from steps())
        except Exception as error:
            failures += 1
            pause = backoff(failures, error)
            if pause is None:
                raise
        yield pause


def retry_within(deadline: float, tries: int = QUERY_TRIES) -> Backoff:
    """Return a retry policy that waits as long as the service asks for, if the deadline allows it."""

    def wait_for(failures: int, error: Exception) -> float | None:
        pause: float | None = getattr(error, "retry_after", None)
        if pause is None or failures >= tries or time.monotonic() + pause >= deadline:
            return None
        return pause

    return wait_for


def document_backoff(notify: Callable[[str], None]) -> Backoff:
    """Return a retry policy for documents: every transient error is retried, with longer and longer waits."""

    def wait_for(failures: int, error: Exception) -> float | None:
        if not isinstance(error, TransientEmbeddingError) or failures >= DOCUMENT_TRIES:
            return None
        pause = error.retry_after if error.retry_after is not None else 2.0 ** (failures - 1)
        pause = min(_MAX_BACKOFF, pause)
        notify(f"{error.message}: waiting {pause:.0f} s (try {failures + 1} of {DOCUMENT_TRIES})")
        return pause

    return wait_for

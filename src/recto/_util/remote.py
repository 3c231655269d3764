"""What embedders and stores that call a service share: sending, retries, and how long to wait.

What is sent, checked and retried is the same with and without an event loop. It is therefore written once, as
generators that yield calls and pauses; `run` and `arun` make the calls and wait.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from recto._util.retry import Backoff, Notify, awith_timeout, with_timeout
from recto.errors import EmbeddingError

QUERY_TRIES = 3
DOCUMENT_TRIES = 6
_MAX_BACKOFF = 60.0

Result = TypeVar("Result")


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
    from asyncio import sleep

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
            reply = await awith_timeout(send(**step.arguments), step.seconds)
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


def document_backoff(notify: Notify) -> Backoff:
    """Return a retry policy for documents: every transient error is retried, with longer and longer waits."""

    def wait_for(failures: int, error: Exception) -> float | None:
        if not isinstance(error, TransientEmbeddingError) or failures >= DOCUMENT_TRIES:
            return None
        pause = error.retry_after if error.retry_after is not None else 2.0 ** (failures - 1)
        pause = min(_MAX_BACKOFF, pause)
        notify(f"{error.message}: waiting {pause:.0f} s (try {failures + 1} of {DOCUMENT_TRIES})")
        return pause

    return wait_for

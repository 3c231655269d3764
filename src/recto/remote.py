"""Calling services: a deadline that holds, tries that are counted, and no key in any message."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

Tell = Callable[[str], None]
"""Shows a person one line of what is going on."""


class DeadlineExceeded(Exception):
    """A call did not end in time."""


def bounded(call: Callable[[], Result], seconds: float) -> Result:
    """Return what a call returns, or raise when the time is over.

    A client's own time-outs begin anew with every byte, so a server that drips keeps them waiting for ever. The call is left behind
    in its thread, where the client's time-outs end it.
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


def retried(
    call: Callable[[], Result],
    wait_for: Callable[[int, Exception], float | None],
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Call until it succeeds; `wait_for` says how many seconds to wait after the n-th failure, or None to give up."""
    failures = 0
    while True:
        try:
            return call()
        except Exception as error:
            failures += 1
            pause = wait_for(failures, error)
            if pause is None:
                raise
        sleep(pause)


def redacted(text: str, *secrets: str) -> str:
    """Return a text without the keys that a service may have repeated in it."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text

"""Calling services: a deadline that holds, tries that are counted, and no key in any message."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Result = TypeVar("Result")

Notify = Callable[[str], None]
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


async def aretried(
    call: Callable[[], Awaitable[Result]], wait_for: Callable[[int, Exception], float | None]
) -> Result:
    """Await a call until it succeeds; see `retried`."""
    from asyncio import sleep

    failures = 0
    while True:
        try:
            return await call()
        except Exception as error:
            failures += 1
            pause = wait_for(failures, error)
            if pause is None:
                raise
        await sleep(pause)


async def abounded(call: Awaitable[Result], seconds: float) -> Result:
    """Await a call, or raise when the time is over."""
    from asyncio import wait_for

    try:
        return await wait_for(call, seconds)
    except TimeoutError:
        raise DeadlineExceeded(f"no answer within {seconds:.0f} s") from None


class PerLoop(Generic[Result]):
    """One client for each event loop: a client's connections belong to the loop that opened them."""

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
        """Give up the running loop's client, for closing it."""
        from asyncio import get_running_loop

        return self._clients.pop(get_running_loop(), None)


def redacted(text: str, *secrets: str) -> str:
    """Return a text without the keys that a service may have repeated in it."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text

"""The stages of an index run that work at the same time, each in its own thread, with short queues between.

A stage that is ahead waits until the queue has room, so the slowest stage sets the pace and memory does not
grow with the book. An error of a stage is raised once, in the thread of the caller.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, Queue
from time import monotonic
from types import TracebackType
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# A stage that waits for a network may need longer to stop; its thread then ends on its own.
_READ_STOP_SECONDS, _WRITE_STOP_SECONDS = 0.5, 5.0
_POLL_SECONDS = 0.05

Emit = Callable[[Item], None]
"""Takes the next item; waits until there is room."""
Check = Callable[[], None]
"""Raises `Stopped` if the caller has left; a producer calls it between two items."""


class Stopped(BaseException):
    """The caller has left, so a producer has to end; not an `Exception`, so that no handler takes it."""


class _Stage(ABC, Generic[Item]):
    """A thread with a queue of items, in which None is the end."""

    def __init__(self, name: str, limit: int) -> None:
        self._queue: Queue[Item | None] = Queue(limit)
        self._stopped = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    @abstractmethod
    def _run(self) -> None:
        """Do the work of the thread, until the queue ends."""

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _drain(self) -> None:
        with suppress(Empty):
            while True:
                self._queue.get_nowait()


class ReadAhead(_Stage[Item], Generic[Item, Result]):
    """Runs a producer in a thread, and yields what it emits; `result` is its return value."""

    result: Result

    def __init__(self, produce: Callable[[Emit[Item], Check], Result], limit: int) -> None:
        super().__init__("recto-read-ahead", limit)
        self._produce = produce

    def __iter__(self) -> Iterator[Item]:
        """Yield the items; if the producer fails, raise its error instead of the next one."""
        while (item := self._queue.get()) is not None and self._error is None:
            yield item
        self._raise_error()

    def __exit__(self, *_: object) -> None:
        """Stop the producer when it emits or checks the next time, without waiting long for that."""
        self._stopped = True
        until = monotonic() + _READ_STOP_SECONDS
        while self._thread.is_alive() and monotonic() < until:
            self._drain()
            self._thread.join(_POLL_SECONDS)

    def _run(self) -> None:
        try:
            self.result = self._produce(self._emit, self._check)
        except Stopped:
            return
        except BaseException as error:  # noqa: BLE001 - raised by `__iter__`
            self._error = error
        if not self._stopped:
            self._queue.put(None)

    def _emit(self, item: Item) -> None:
        self._check()
        self._queue.put(item)

    def _check(self) -> None:
        if self._stopped:
            raise Stopped


class WriteBehind(_Stage[Item]):
    """Runs a consumer in a thread; leaving the `with` block waits until it has consumed everything."""

    def __init__(self, consume: Callable[[Item], None], limit: int) -> None:
        super().__init__("recto-write-behind", limit)
        self._consume = consume

    def put(self, item: Item) -> None:
        """Hand over an item; raise the consumer's error if it has failed."""
        self._raise_error()
        self._queue.put(item)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the consumer; after an error of the caller, drop what is queued."""
        if kind is not None:
            # A write that is under way must end before the lock is released, unless the user cannot wait.
            self._stop(None if issubclass(kind, Exception) else _WRITE_STOP_SECONDS)
            return
        try:
            self._queue.put(None)
            self._thread.join()
        except BaseException:  # an interruption
            self._stop(_WRITE_STOP_SECONDS)
            raise
        self._raise_error()

    def _stop(self, seconds: float | None) -> None:
        self._stopped = True
        self._drain()
        self._queue.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._stopped or self._error is not None:
                continue  # so that `put` does not wait for ever
            try:
                self._consume(item)
            except BaseException as error:  # noqa: BLE001 - raised by `put` or `__exit__`
                self._error = error

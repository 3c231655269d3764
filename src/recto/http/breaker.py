"""Do not ask an engine that is down again and again: after a failure only one request in a while finds out whether it is back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recto.errors import ErrorKind, RectoError, Unreachable

PAUSE = 1.0
_LONGEST = 5.0


class Breaker:
    """Lets calls through while they succeed; used from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._error: RectoError | None = None
        self._until = 0.0
        self._probing = False

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Run a call of the engine, or raise at once what the last one raised."""
        if self._error is not None:
            if self._probing or self._clock() < self._until:
                raise self._error.with_traceback(None)
            self._probing = True
        try:
            yield
        except Unreachable as error:
            # Only what may pass by itself speaks of the engine; the rest speaks of one question.
            self._note(error if hasattr(error, "retry_after") else None)
            raise
        except asyncio.CancelledError:  # the request's time was over
            self._note(Unreachable("The engine did not answer in time"))
            raise
        except RectoError as error:
            if error.kind is ErrorKind.ARGUMENT:  # the engine was not asked
                self._probing = False
            else:
                self._note(None)
            raise
        except BaseException:  # a fault of ours says nothing of the engine: it is raised, and the next request may try
            self._probing = False
            raise
        else:
            self._note(None)

    def _note(self, error: RectoError | None) -> None:
        self._probing = False
        self._error = error
        if error is not None:
            asked = getattr(error, "retry_after", None)
            self._until = self._clock() + min(_LONGEST, max(PAUSE, asked or 0))

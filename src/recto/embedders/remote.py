"""What embedders that call a service share: which errors are retried, and how long to wait."""

from __future__ import annotations

import time

from recto._util.retry import Backoff, Notify
from recto.errors import EmbeddingError

QUERY_TRIES = 3
DOCUMENT_TRIES = 6
_MAX_BACKOFF = 60.0


class TransientEmbeddingError(EmbeddingError):
    """An error that a retry may solve; `retry_after` is the wait that the service asked for, in seconds."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


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

"""One table from kinds of errors to HTTP statuses, and the body that every error has; addresses and paths stay inside."""

from __future__ import annotations

import math
from collections.abc import Mapping

from recto.bounds import LATER, Refusal, busy
from recto.errors import ErrorKind, RectoError

STATUSES = {
    ErrorKind.ARGUMENT: 400,
    ErrorKind.MISSING: 404,
    ErrorKind.EMPTY: 503,
    ErrorKind.CONNECTION: 503,
    ErrorKind.BUSY: 503,
    ErrorKind.CONFIGURATION: 500,
    ErrorKind.STORAGE: 500,
    ErrorKind.DAMAGED: 500,
}
RETRY_SECONDS = 2
_EMPTY_SECONDS = 30

_TOLD = (ErrorKind.ARGUMENT, ErrorKind.MISSING, ErrorKind.EMPTY)
"""Kinds whose own words speak of the request and the book alone."""

_OUTSIDE = {
    ErrorKind.CONNECTION: "The engine behind this service cannot be reached or does not answer",
    ErrorKind.BUSY: "The index is being written",
    ErrorKind.CONFIGURATION: "This service is not configured rightly for its index",
    ErrorKind.STORAGE: "This service cannot read its index",
    ErrorKind.DAMAGED: "This service's index is damaged",
}
_OPERATOR = "Its operator finds the reason in the log, and with `recto doctor`."


UNEXPECTED = Refusal(500, "Internal server error", _OPERATOR)


def refusal_of(error: RectoError) -> Refusal:
    """Return what the outside may know of an error."""
    status = STATUSES[error.kind]
    headers = (("Retry-After", str(retry_after(error))),) if status == 503 else ()
    if error.kind in _TOLD:
        return Refusal(status, error.message, error.hint, headers)
    return Refusal(status, _OUTSIDE[error.kind], LATER if status == 503 else _OPERATOR, headers)


def unready(error: RectoError) -> Refusal:
    """Return an error as a service that cannot be asked at the moment, whatever the reason: traffic should go elsewhere."""
    refusal = refusal_of(error)
    return refusal if refusal.status == 503 else busy(refusal.error, refusal.hint, RETRY_SECONDS)


def retry_after(error: RectoError) -> int:
    """Return in how many seconds asking again makes sense."""
    if error.kind is ErrorKind.EMPTY:
        return _EMPTY_SECONDS
    asked = getattr(error, "retry_after", None)  # what the service behind us asked for
    return max(RETRY_SECONDS, math.ceil(asked)) if isinstance(asked, int | float) else RETRY_SECONDS


def http_words(status: int, detail: object = None, headers: Mapping[str, str] | None = None) -> Refusal:
    """Return an answer for what the framework refuses by itself."""
    known = {404: "There is nothing at this address", 405: "This method is not allowed here"}
    words = known.get(status) or (detail if isinstance(detail, str) and status < 500 else "The request cannot be answered")
    return Refusal(status, words, "The addresses are listed at /openapi.json." if status in known else "", tuple((headers or {}).items()))

"""One table from kinds of errors to HTTP statuses, and the body that every error has; addresses and paths stay inside."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from recto.errors import ErrorKind, InvalidArgument, RectoError
from recto.server.limits import RETRY_HINT, Refusal, busy

_DIGITS = 18
_SHOWN = 80


class BadBody(InvalidArgument):
    """A body that is not the JSON it claims to be."""


def loads(data: bytes) -> Any:
    """Return the value, or say in one sentence what is wrong with it."""
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_once_each,
            parse_constant=_no_number,
            parse_int=_whole,
            parse_float=_finite,
        )
    except UnicodeDecodeError:
        raise BadBody("The body is not UTF-8", hint="Send JSON in UTF-8.") from None
    except json.JSONDecodeError as error:
        raise BadBody(
            f"The body is not JSON: line {error.lineno}, column {error.colno}", hint=_EXAMPLE
        ) from None
    except RecursionError:
        raise BadBody("The body is nested too deeply", hint=_EXAMPLE) from None


_EXAMPLE = 'Such as {"query": "What is ROS 2?"}.'


def shortened(given: str) -> str:
    """Return a name that was sent as it is repeated in an answer."""
    return given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadBody("A field is given twice", hint="Give every field once.")
    return found


def _no_number(name: str) -> Any:
    raise BadBody(f"{name} is not a number of JSON", hint="Leave the field out.")


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise BadBody("A number is too large", hint="No field takes such a number.")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadBody("A number is too large", hint="No field takes such a number.")
    return number


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
    return Refusal(status, _OUTSIDE[error.kind], RETRY_HINT if status == 503 else _OPERATOR, headers)


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
    words = known.get(status) or (
        detail if isinstance(detail, str) and status < 500 else "The request cannot be answered"
    )
    return Refusal(
        status,
        words,
        "The addresses are listed at /openapi.json." if status in known else "",
        tuple((headers or {}).items()),
    )

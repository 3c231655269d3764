"""Strict JSON parsing, and the HTTP status and message of each kind of error, without internals."""

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
    """A request body that is not valid."""


def loads(data: bytes) -> Any:
    """Parse JSON strictly; raise `BadBody` with one sentence if it is not valid."""
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_fields,
            parse_constant=_reject_constant,
            parse_int=_bounded_int,
            parse_float=_finite_float,
        )
    except UnicodeDecodeError:
        raise BadBody("The body is not UTF-8", hint="Send JSON in UTF-8.") from None
    except json.JSONDecodeError as error:
        raise BadBody(
            f"The body is not JSON: line {error.lineno}, column {error.colno}", hint=_EXAMPLE
        ) from None
    except RecursionError:
        raise BadBody("The body is nested too deeply", hint=_EXAMPLE) from None


_EXAMPLE = 'Example: {"query": "What is ROS 2?"}.'


def shortened(given: str) -> str:
    """Shorten a name that an error message repeats."""
    return given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadBody("A field is given twice", hint="Give every field once.")
    return found


def _reject_constant(name: str) -> Any:
    raise BadBody(f"{name} is not a number in JSON", hint="Omit the field.")


def _bounded_int(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise BadBody("A number is too large", hint="No field accepts such a number.")
    return int(digits)


def _finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadBody("A number is too large", hint="No field accepts such a number.")
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

_PUBLIC = (ErrorKind.ARGUMENT, ErrorKind.MISSING, ErrorKind.EMPTY)
"""Kinds whose messages contain no internals."""

_PUBLIC_MESSAGES = {
    ErrorKind.CONNECTION: "The engine behind this service is unreachable or does not answer",
    ErrorKind.BUSY: "The index is being written",
    ErrorKind.CONFIGURATION: "This service is not configured correctly for its index",
    ErrorKind.STORAGE: "This service cannot read its index",
    ErrorKind.DAMAGED: "This service's index is damaged",
}
_OPERATOR = "The operator finds the reason in the log and with `recto doctor`."


UNEXPECTED = Refusal(500, "Internal server error", _OPERATOR)


def refusal_of(error: RectoError) -> Refusal:
    """Return the response to an error, without internals."""
    status = STATUSES[error.kind]
    headers = (("Retry-After", str(retry_after(error))),) if status == 503 else ()
    if error.kind in _PUBLIC:
        return Refusal(status, error.message, error.hint, headers)
    return Refusal(status, _PUBLIC_MESSAGES[error.kind], RETRY_HINT if status == 503 else _OPERATOR, headers)


def unready(error: RectoError) -> Refusal:
    """Return any error as a 503, so that a load balancer sends no traffic."""
    refusal = refusal_of(error)
    return refusal if refusal.status == 503 else busy(refusal.error, refusal.hint, RETRY_SECONDS)


def retry_after(error: RectoError) -> int:
    """Return after how many seconds to retry."""
    if error.kind is ErrorKind.EMPTY:
        return _EMPTY_SECONDS
    asked = getattr(error, "retry_after", None)
    return max(RETRY_SECONDS, math.ceil(asked)) if isinstance(asked, int | float) else RETRY_SECONDS


def framework_refusal(
    status: int, detail: object = None, headers: Mapping[str, str] | None = None
) -> Refusal:
    """Return an error that FastAPI or Starlette raised, in our format."""
    known = {404: "There is nothing at this path", 405: "This method is not allowed here"}
    message = known.get(status) or (
        detail if isinstance(detail, str) and status < 500 else "The request is not valid"
    )
    return Refusal(
        status,
        message,
        "/openapi.json lists the paths." if status in known else "",
        tuple((headers or {}).items()),
    )

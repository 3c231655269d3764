"""Read JSON bodies strictly: what two readers could understand differently is refused."""

from __future__ import annotations

import json
import math
from typing import Any

from recto.errors import InvalidArgument

_DIGITS = 18
_SHOWN = 80


class BadBody(InvalidArgument):
    """A body that is not the JSON it claims to be."""


def loads(data: bytes) -> Any:
    """Return the value, or say in one sentence what is wrong with it."""
    try:
        return json.loads(
            data.decode("utf-8"), object_pairs_hook=_once_each, parse_constant=_no_number, parse_int=_whole, parse_float=_finite
        )
    except UnicodeDecodeError:
        raise BadBody("The body is not UTF-8", hint="Send JSON in UTF-8.") from None
    except json.JSONDecodeError as error:
        raise BadBody(f"The body is not JSON: line {error.lineno}, column {error.colno}", hint=_EXAMPLE) from None
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

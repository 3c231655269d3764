"""Strict request parsing, and the HTTP status and message of each kind of error, without internals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from recto._util.text import shortened
from recto.errors import ErrorKind, InvalidArgument, RectoError
from recto.server.limits import RETRY_HINT, Refusal

_EXAMPLE = 'Example: {"query": "What is ROS 2?"}.'


class BadBody(InvalidArgument):
    """A request body that is not valid."""


def loads(data: bytes) -> Any:
    """Parse JSON strictly; raise `BadBody` with one sentence if it is not valid."""
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_fields,
            parse_constant=_reject_constant,
            parse_int=_number,
            parse_float=_number,
        )
    except UnicodeDecodeError:
        raise BadBody("The body is not UTF-8", hint="Send JSON in UTF-8.") from None
    except json.JSONDecodeError as error:
        raise BadBody(
            f"The body is not JSON: line {error.lineno}, column {error.colno}", hint=_EXAMPLE
        ) from None
    except RecursionError:
        raise BadBody("The body is nested too deeply", hint=_EXAMPLE) from None


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadBody("A field is given twice", hint="Give every field once.")
    return fields


def _reject_constant(name: str) -> Any:
    raise BadBody(f"{name} is not a number in JSON", hint="Omit the field.")


def _number(digits: str) -> int | float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadBody("A number is too large", hint="No field accepts such a number.")
    return int(digits) if digits.lstrip("-").isdecimal() else number


class _StrictRequest(Request):
    """A request with strict JSON parsing."""

    async def json(self) -> Any:
        """Parse the body; raise `BadBody` if it is not valid JSON."""
        return loads(await self.body())


class StrictRoute(APIRoute):
    """A route that parses bodies strictly and reports errors in our format.

    The docstring of its function is the summary in the OpenAPI description.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.summary = self.summary or self.description

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handler = super().get_route_handler()
        fields = _field_names(self)

        async def handle(request: Request) -> Response:
            try:
                return await handler(_StrictRequest(request.scope, request.receive))
            except RequestValidationError as error:
                return refusal_of(_validation_error(error.errors(), fields)).response()
            except Exception as error:
                # FastAPI wraps exceptions that are raised while it parses a body.
                if isinstance(error.__cause__, BadBody):
                    return refusal_of(error.__cause__).response()
                raise

        return handle


def _field_names(route: APIRoute) -> tuple[str, ...]:
    """Return the fields of the model that a route takes as its body or as its query parameters."""
    taken = (route.body_field, *route.dependant.query_params)
    models = (field.field_info.annotation for field in taken if field is not None)
    return tuple(
        field.alias or name
        for model in models
        if isinstance(model, type) and issubclass(model, BaseModel)
        for name, field in model.model_fields.items()
    )


def _validation_error(errors: Sequence[Any], fields: Sequence[str]) -> BadBody:
    """Describe one error in one sentence, without repeating the input.

    An unknown field comes first: a required field is often missing because its name is misspelled.
    """
    first = min(errors, key=lambda error: error["type"] != "extra_forbidden")
    what = "parameter" if first["loc"][0] == "query" else "field"
    name = ".".join(shortened(str(part)) for part in first["loc"][1:]) or "The body"
    kind, context = first["type"], first.get("ctx", {})
    problems = {
        "missing": "is required",
        "extra_forbidden": f"is not a known {what}",
        "bool_type": "must be true or false",
        "bool_parsing": "must be true or false",
        "int_parsing": "must be a whole number",
        "float_parsing": "must be a number",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "string_type": "must be text",
        "string_pattern_mismatch": "cannot be empty",
        "list_type": "must be a list",
        "model_attributes_type": "must be a JSON object, sent as application/json",
        "too_short": f"must have at least {context.get('min_length')} entries",
        "too_long": f"must have at most {context.get('max_length')} entries",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than_equal": f"must be at most {context.get('le')}",
        "finite_number": "must be a finite number",
        "literal_error": f"must be {context.get('expected')}",
    }
    hints = {
        "extra_forbidden": f"The {what}s are: {', '.join(fields)}.",
        "literal_error": "/openapi.json lists the fields and their values.",
    }
    return BadBody(f"{name} {problems.get(kind, 'is not valid')}", hint=hints.get(kind, ""))


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

ENGINE_MESSAGES = {
    ErrorKind.CONNECTION: "The engine behind this service is unreachable or does not answer",
    ErrorKind.BUSY: "The index is being written",
    ErrorKind.CONFIGURATION: "This service is not configured correctly for its index",
    ErrorKind.STORAGE: "This service cannot read its index",
    ErrorKind.DAMAGED: "This service's index is damaged",
}
"""What clients are told about errors of the engine or the index: their own messages contain internals."""

_OPERATOR = "The operator finds the reason in the log and with `recto doctor`."
UNEXPECTED = Refusal(500, "Internal server error", _OPERATOR)


def refusal_of(error: RectoError) -> Refusal:
    """Return the response to an error, without internals."""
    status = STATUSES[error.kind]
    seconds = _EMPTY_SECONDS if error.kind is ErrorKind.EMPTY else getattr(error, "retry_after", None) or 0
    retry = (("Retry-After", str(max(RETRY_SECONDS, math.ceil(seconds)))),) if status == 503 else ()
    if error.kind not in ENGINE_MESSAGES:
        return Refusal(status, error.message, error.hint, retry)
    return Refusal(status, ENGINE_MESSAGES[error.kind], RETRY_HINT if status == 503 else _OPERATOR, retry)


def framework_refusal(error: HTTPException) -> Refusal:
    """Return an error that FastAPI or Starlette raised, in our format."""
    messages = {404: "There is nothing at this path", 405: "This method is not allowed here"}
    other = error.detail if error.status_code < 500 else "The request is not valid"
    hint = "/openapi.json lists the paths." if error.status_code in messages else ""
    message = messages.get(error.status_code, other)
    return Refusal(error.status_code, message, hint, tuple((error.headers or {}).items()))

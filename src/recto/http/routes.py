"""What the addresses of the service share: strict bodies, described errors, and words for what is wrong with a request."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from recto.http.errors import refusal_of
from recto.http.models import ErrorBody
from recto.http.strict import BadBody, loads, shortened
from recto.http.views import respond_refusal

_DESCRIBED = {
    400: "The request cannot be used; `error` says why.",
    401: "The service wants a key.",
    404: "There is no such collection, module or page.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    429: "Too many requests; Retry-After says when to come back.",
    500: "An internal error.",
    503: "An engine is unreachable, the collection is empty, or there is too much to do; Retry-After says when to come back.",
}
ERRORS: dict[int | str, dict[str, Any]] = {code: {"model": ErrorBody, "description": text} for code, text in _DESCRIBED.items()}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _StrictRequest(Request):
    """A request whose JSON is read strictly."""

    async def json(self) -> Any:
        """Return the body's value, or raise what is wrong with it."""
        return loads(await self.body())


class StrictRoute(APIRoute):
    """An address that reads bodies strictly."""

    def get_route_handler(self) -> Handler:
        """Return what answers a request."""
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(_StrictRequest(request.scope, request.receive))
            except RequestValidationError as error:
                return respond_refusal(refusal_of(_refused(error.errors())))
            except Exception as error:
                # The framework wraps what its own reading of a body raises.
                if isinstance(error.__cause__, BadBody):
                    return respond_refusal(refusal_of(error.__cause__))
                raise

        return answer


def _refused(errors: Sequence[Any]) -> BadBody:
    """Say in one sentence what is wrong first, without repeating what was sent."""
    first = errors[0]
    place = [str(part) for part in first["loc"][1:]]
    name = ".".join(shortened(part) for part in place) or "The body"
    kind, context = first["type"], first.get("ctx", {})
    words = {
        "missing": "is required",
        "extra_forbidden": "is not a field that is known here",
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
    hint = "/openapi.json lists the fields and their values." if kind in ("extra_forbidden", "literal_error") else ""
    return BadBody(f"{name} {words.get(kind, 'cannot be used')}", hint=hint)

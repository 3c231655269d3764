"""The errors that the contract names; each is one of Recto's own too, so that message, hint and kind are the same everywhere."""

from __future__ import annotations

from typing import Any, ClassVar

from recto.errors import ErrorKind, InvalidArgument, InvalidQuery, RectoError


class QueryError(InvalidQuery, ValueError):
    """The query is empty, too long, or no text."""


class ArgumentError(InvalidArgument, ValueError):
    """A number of results or a vector that cannot be searched with."""

    label = ""


class APIError(RectoError):
    """An engine could not do its part; `reason` tells a missing collection from an empty one and from a broken connection."""

    kind = ErrorKind.CONNECTION
    label = ""
    component: ClassVar[str]

    def __init__(self, message: str, *, hint: str = "", reason: ErrorKind = ErrorKind.CONNECTION) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason

    @classmethod
    def of(cls, error: RectoError) -> APIError:
        """Return the contract's error for one of the core's, whose messages never have a key in them."""
        return cls(str(error), hint=error.hint, reason=error.kind)


class CohereAPIError(APIError):
    """The query could not be embedded: by Cohere, or by the local model where that is configured."""

    component = "EMBED"


class QdrantAPIError(APIError):
    """The collection could not be searched: on a Qdrant server, or in the embedded engine where that is configured."""

    component = "SEARCH"


class ResponseError(APIError):
    """What would be answered is not what the contract promises."""

    component = "FORMAT"


def error_document(message: str, hint: str, kind: str, component: str = "CLI") -> dict[str, Any]:
    """Return what is printed instead of results."""
    return {"error": {"kind": kind, "component": component, "message": message, "hint": hint}}


def kind_of(error: RectoError) -> str:
    """Return the kind that a script can act on."""
    return (error.reason if isinstance(error, APIError) else error.kind).value

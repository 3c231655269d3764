"""What agents may pass to the tools; their descriptions are what the agent reads."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from recto.errors import InvalidArgument
from recto.limits import DEFAULT_TOP_K, MAX_QUERY
from recto.types import Filters, Mode

MOST_PASSAGES = 20


def _several(given: Any) -> Any:
    """Take one name, or several in one text, as agents write them now and then."""
    return [part for part in given.split(",") if part.strip()] if isinstance(given, str) else given


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Modules = Annotated[
    list[Name] | None,
    BeforeValidator(_several),
    Field(description="Only these modules, by the names that list_modules gives; leave it out to search the whole book."),
]
SearchMode = Annotated[
    Mode,
    Field(description="hybrid: by meaning and by words. dense: by meaning alone. lexical: by words alone, for exact names and codes."),
]
Limit = Annotated[int, Field(ge=1, le=MOST_PASSAGES, description="How many passages at most.")]


class Arguments(BaseModel):
    """A tool's arguments; names that it does not know are refused, so that no filter is dropped in silence."""

    model_config = ConfigDict(extra="forbid")


class SearchArguments(Arguments):
    """The arguments of `search_book`."""

    query: Annotated[str, Field(description=f"A question or a few words, up to {MAX_QUERY} characters, in the book's language.")]
    limit: Limit = DEFAULT_TOP_K
    modules: Modules = None
    page: Annotated[Name | None, Field(description="Only the page with this address.")] = None
    mode: SearchMode = "hybrid"

    def filters(self) -> Filters:
        """Return what the search is narrowed to."""
        return Filters(tuple(self.modules or ()), self.page)


class RelatedArguments(Arguments):
    """The arguments of `related_passages`."""

    selection: Annotated[str, Field(description="The text that the reader has in front of them, as it is in the book.")]
    question: Annotated[str | None, Field(description="What the reader wants to know about it, if they said so.")] = None
    limit: Limit = DEFAULT_TOP_K
    modules: Modules = None
    mode: SearchMode = "hybrid"

    def filters(self) -> Filters:
        """Return what the search is narrowed to."""
        return Filters(tuple(self.modules or ()))


class PageArguments(Arguments):
    """The arguments of `read_page`."""

    address: Annotated[Name, Field(description="A page's address; with an #anchor behind it, only that section. Take it from a `link`.")]
    part: Annotated[int, Field(ge=1, description="Which part of a long page; the result says how many there are.")] = 1


class NoArguments(Arguments):
    """A tool that needs to know nothing."""


def checked(model: type[Arguments], given: dict[str, Any] | None) -> Any:
    """Return the arguments as a tool wants them, or say in a sentence what is wrong with them."""
    try:
        return model.model_validate(given or {})
    except ValidationError as error:
        faults = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors(include_url=False)]
        names = ", ".join(model.model_fields) or "none"
        raise InvalidArgument("; ".join(faults), hint=f"The arguments are: {names}.") from error

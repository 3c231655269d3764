"""Models of responses: the fields that the HTTP API and the MCP tools share, and the results of the tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    create_model,
)

from recto.contracts.http import to_whole
from recto.search.packing import OMISSION
from recto.types.request import EntryPoint, Operation, Option, options_of
from recto.types.search import HIT_FIELDS, Coverage, Mode, View, fields_of

Model = TypeVar("Model", bound=BaseModel)
_NAME = r"\S"
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_HIT = {field.name: field for field in HIT_FIELDS}


def _described(name: str) -> Any:
    """Return the type of a hit's field, with its description."""
    return Annotated[_HIT[name].type, Field(description=_HIT[name].description or None)]


class ResponseModel(BaseModel):
    """Base of all responses: no unknown fields."""

    model_config = ConfigDict(extra="forbid")


def with_hit_fields(view: View) -> Callable[[type[Model]], type[Model]]:
    """Return a class decorator that adds the fields of a hit that a view shows to a model."""

    def add_fields(model: type[Model]) -> type[Model]:
        fields: dict[str, Any] = {
            field.name: (_described(field.name), ... if field.default is None else field.default)
            for field in fields_of(view)
        }
        return create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
        )

    return add_fields


def option_types(entry_point: EntryPoint, operation: Operation) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default of each search option, for models of requests and tools."""
    return {
        option.name: (_option_type(option, entry_point), option.default)
        for option in options_of(entry_point, operation)
    }


def _option_type(option: Option, entry_point: EntryPoint) -> Any:
    text = option.for_agents if entry_point == "mcp" else option.help
    kind = option.type
    if kind is tuple:
        return _names(text, option.max_length, entry_point)
    if kind is str:
        limits = Field(pattern=_NAME, max_length=option.max_length)
        kind = Name if entry_point == "mcp" else Annotated[str, limits]
    elif kind in (int, float):
        kind = Annotated[kind, Field(ge=option.minimum, le=option.maximum)]
    optional = kind if option.default is not None else kind | None
    if option.type is int and entry_point == "http":
        return Annotated[optional, BeforeValidator(to_whole), Field(description=text)]
    return Annotated[optional, Field(description=text)]


def _names(text: str, most: int | None, entry_point: EntryPoint) -> Any:
    """Return the type of one or more names; agents also send several in one text."""
    if entry_point == "mcp":
        return Annotated[list[Name] | None, BeforeValidator(_split), Field(description=text)]
    name = {"type": "string", "pattern": _NAME}
    names = {"type": "array", "items": name, "maxItems": most}
    return Annotated[
        Annotated[list[Annotated[str, Field(pattern=_NAME)]], Field(max_length=most)] | None,
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
        WithJsonSchema({"anyOf": [name, names, {"type": "null"}], "description": text}),
    ]


def _split(value: Any) -> Any:
    return [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class ResponseFields(ResponseModel):
    """What all searches tell about the query."""

    outcome: Annotated[
        Literal["found", "no_match", "filtered_out"],
        Field(description="found, no_match, or filtered_out: the filters exclude every chunk."),
    ]
    message: Annotated[str, Field(description="What to know before you use the results; may be empty.")]
    collection: str
    mode: Mode
    answerable: Annotated[
        float | None, Field(description="Estimated probability that the book covers the query.")
    ]
    coverage: Annotated[
        Coverage | None,
        Field(
            description="covered, unclear, or not covered; null if it is unknown. A covered query can still "
            "lack an answer: read the text."
        ),
    ]
    corrections: Annotated[
        dict[str, list[str]],
        Field(description="Query words that the book does not have, and what was searched for."),
    ]
    noise_floor: Annotated[
        float | None,
        Field(description="A `score` below this is noise in this book; null if it was not measured."),
    ]
    warnings: list[str]


Notice = Annotated[str, Field(description="How to treat what is quoted from the book.")]


@with_hit_fields("mcp")
class McpHit(ResponseModel):
    """A section of the book, or a chunk, with the score of its best chunk."""


class McpSearchResult(ResponseFields):
    """The results, best first; if there are none, `message` says why."""

    notice: Notice
    results: list[McpHit]
    took_ms: Annotated[float, Field(description="How long the search took, in milliseconds.")]


class McpRelatedResult(McpSearchResult):
    """Hits that are related to a selected text."""

    searched_for: Annotated[str, Field(description="The part of the selection that was searched for.")]
    left_out: Annotated[int, Field(description="Chunks left out because they contain the selection itself.")]


@with_hit_fields("mcp_section")
class McpSection(ResponseModel):
    """A section of the book that has one or more hits; `score` is the score of its best hit."""

    hits: Annotated[int, Field(description="How many chunks of it match the query.")]
    text: Annotated[str, Field(description=f"Markdown; {OMISSION} stands for chunks that did not fit.")]
    tokens: int
    missing: Annotated[
        int, Field(description="Chunks of the section that did not fit; read_page returns all of it.")
    ]
    truncated: Annotated[
        bool, Field(description="True: the text ends after a sentence, because it alone is over max_tokens.")
    ]


class McpContext(ResponseFields):
    """Sections of the book, most relevant first; if there are none, `message` says why."""

    notice: Notice
    page_used: Annotated[
        bool | None, Field(description="Whether sections of `page` come first. Null: `page` was not given.")
    ]
    sections: list[McpSection]
    tokens: Annotated[int, Field(description="The size of all texts together.")]
    max_tokens: int
    left_out: Annotated[
        list[str], Field(description="The URLs of further results that did not fit; read_page returns them.")
    ]
    took_ms: Annotated[float, Field(description="How long the search took, in milliseconds.")]


class McpPage(ResponseModel):
    """A page of the book, or a section of it."""

    notice: Notice
    url: Annotated[str, Field(description="Cite this.")]
    title: str
    module: str
    markdown: str
    part: int
    parts: Annotated[int, Field(description="How many parts there are; ask for the next with `part`.")]
    note: str


class McpModule(ResponseModel):
    """A module of the book."""

    name: str
    title: str
    chunks: int


class McpModules(ResponseModel):
    """The modules of the book; use a `name` to filter a search."""

    notice: Notice
    collection: str
    pages: int
    modules: list[McpModule]


class McpBook(ResponseModel):
    """A book that the server reads."""

    name: Annotated[str, Field(description="What the argument `book` takes.")]
    title: Annotated[str, Field(description="Empty if the book cannot be opened.")]
    pages: int
    error: Annotated[str, Field(description="Why the book cannot be opened; else empty.")]


class McpBooks(ResponseModel):
    """The books of the server; use a `name` as the argument `book`."""

    notice: Notice
    books: list[McpBook]

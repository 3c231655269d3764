"""The MCP tools: their arguments, results and descriptions."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from recto._util.text import plural, with_anchor
from recto.errors import InvalidArgument
from recto.search import display
from recto.search.display import response_words
from recto.search.lexical import QueryWord
from recto.search.query import DEFAULT_TOP_K, MAX_QUERY, MAX_SCORE
from recto.search.retriever import Retriever
from recto.types import HEADING_SEPARATOR, Chunk, Filters, GroupBy, Mode, Outcome, SearchResponse

MAX_TOP_K = 20
_DIGITS = 4


def _split(given: Any) -> Any:
    """Accept one name, or several in one text: agents send both."""
    return [part for part in given.split(",") if part.strip()] if isinstance(given, str) else given


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
ModuleNames = Annotated[
    list[Name] | None,
    BeforeValidator(_split),
    Field(description="Only these modules, by their names in list_modules; omit it to search all."),
]
SearchMode = Annotated[
    Mode,
    Field(description="dense: cosine similarity. lexical: BM25, for exact names and codes. hybrid: both."),
]
TopK = Annotated[int, Field(ge=1, le=MAX_TOP_K, description="The maximum number of results.")]


class ToolArguments(BaseModel):
    """Arguments of a tool; unknown names are errors, so that no filter is ignored silently."""

    model_config = ConfigDict(extra="forbid")


class SearchArguments(ToolArguments):
    """Arguments of `search_book`."""

    query: Annotated[
        str,
        Field(
            description=f"A question or a few words, up to {MAX_QUERY} characters, in the book's language."
        ),
    ]
    top_k: TopK = DEFAULT_TOP_K
    min_score: Annotated[
        float | None,
        Field(ge=-1, le=MAX_SCORE, description="Only results with at least this score; usually omitted."),
    ] = None
    module: ModuleNames = None
    url: Annotated[Name | None, Field(description="Only the page with this URL.")] = None
    mode: SearchMode = "hybrid"
    group_by: Annotated[
        GroupBy | None, Field(description="page: return the best `top_k` pages with all their results.")
    ] = None

    def filters(self) -> Filters:
        """Return the filters of the search."""
        return Filters(tuple(self.module or ()), self.url)


class RelatedArguments(ToolArguments):
    """Arguments of `related_chunks`."""

    selection: Annotated[
        str, Field(description="The text that the reader has in front of them, as it is in the book.")
    ]
    question: Annotated[
        str | None, Field(description="What the reader wants to know about it, if they said so.")
    ] = None
    top_k: TopK = DEFAULT_TOP_K
    module: ModuleNames = None
    mode: SearchMode = "hybrid"

    def filters(self) -> Filters:
        """Return the filters of the search."""
        return Filters(tuple(self.module or ()))


class PageArguments(ToolArguments):
    """Arguments of `read_page`."""

    url: Annotated[
        Name, Field(description="The `url` of a result or a page; with an #anchor, only that section.")
    ]
    part: Annotated[
        int, Field(ge=1, description="Which part of a long page; the result says how many there are.")
    ] = 1


class NoArguments(ToolArguments):
    """A tool without arguments."""


def check_arguments(model: type[ToolArguments], given: dict[str, Any] | None) -> Any:
    """Validate the arguments; raise `InvalidArgument` with all errors in one sentence."""
    try:
        return model.model_validate(given or {})
    except ValidationError as error:
        faults = [
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in error.errors(include_url=False)
        ]
        names = ", ".join(model.model_fields) or "none"
        raise InvalidArgument("; ".join(faults), hint=f"The arguments are: {names}.") from error


class McpHit(BaseModel):
    """A chunk of the book with its score."""

    url: Annotated[str, Field(description="Cite this: it opens the section.")]
    title: Annotated[str, Field(description="The page's title.")]
    section: Annotated[str, Field(description="The heading of the section.")]
    module: str
    module_title: str
    headings: Annotated[list[str], Field(description="The path from the page's title down to the section.")]
    score: Annotated[float, Field(description="Ranks the results; compare it within one response only.")]
    dense: Annotated[float | None, Field(description="Cosine similarity to the query, if it was computed.")]
    lexical: Annotated[
        float | None, Field(description="BM25 score of the query's words, if it was computed.")
    ]
    above_noise: Annotated[
        bool | None, Field(description="False: as unrelated texts score in this book. Null: not measured.")
    ]
    matches: Annotated[
        list[str], Field(description="Words of the text and its headings that match the query.")
    ]
    snippet: Annotated[str, Field(description="The part of the text around the best matches, in one line.")]
    text: str


class McpSearchResult(BaseModel):
    """The hits, best first; if there are none, `message` says why."""

    outcome: Annotated[
        Outcome, Field(description="found, no_match, or filtered_out: the filters exclude every chunk.")
    ]
    message: Annotated[str, Field(description="What to know before you use the results; may be empty.")]
    collection: str
    mode: Mode
    answerable: Annotated[
        float | None,
        Field(description="Probability that the book covers the query; below 0.5 it most likely does not."),
    ]
    corrections: Annotated[
        dict[str, list[str]],
        Field(description="Query words that the book does not have, and what was searched for."),
    ]
    noise_floor: Annotated[
        float | None,
        Field(description="A `dense` below this is noise in this book; null if it was not measured."),
    ]
    results: list[McpHit]
    warnings: list[str]
    took_ms: Annotated[float, Field(description="How long the search took, in milliseconds.")]


class McpRelatedResult(McpSearchResult):
    """Hits that are related to a selected text."""

    searched_for: Annotated[str, Field(description="The part of the selection that was searched for.")]
    left_out: Annotated[int, Field(description="Chunks left out because they contain the selection itself.")]


class McpPage(BaseModel):
    """A page of the book, or a section of it."""

    url: Annotated[str, Field(description="Cite this.")]
    title: str
    module: str
    markdown: str
    part: int
    parts: Annotated[int, Field(description="How many parts there are; ask for the next with `part`.")]
    note: str


class McpModule(BaseModel):
    """A module of the book; use `name` to filter a search."""

    name: str
    title: str
    chunks: int


class McpModules(BaseModel):
    """The modules of the book."""

    collection: str
    pages: int
    modules: list[McpModule]


def search_result(response: SearchResponse, words: Sequence[QueryWord]) -> McpSearchResult:
    """Convert a response into the tool's result."""
    fields = tuple(McpHit.model_fields)
    return McpSearchResult(
        outcome=response.outcome,
        message=_message(response),
        collection=response.collection,
        mode=response.mode,
        answerable=response.answerable,
        corrections={word: list(meant) for word, meant in response.corrections},
        noise_floor=None if response.noise_floor is None else round(response.noise_floor, _DIGITS),
        results=[
            McpHit(**display.pick(display.hit_to_dict(hit, response, words, _DIGITS), fields))
            for hit in response.hits
        ],
        warnings=list(response.warnings),
        took_ms=round(response.timings.total_ms, 2),
    )


def related_result(response: SearchResponse, words: Sequence[QueryWord]) -> McpRelatedResult:
    """Convert the response to a selected text into the tool's result."""
    selection = response.selection
    return McpRelatedResult(
        **dict(search_result(response, words)),
        searched_for=selection.text if selection else response.query,
        left_out=selection.left_out if selection else 0,
    )


def _message(response: SearchResponse) -> str:
    """Return what an agent should know before it reads the results."""
    parts = display.corrections_of(response)
    if response.hits and not display.is_covered(response):
        parts.append(
            f"{display.NOT_COVERED} These are the nearest chunks; most likely none of them answers the query."
        )
    return " ".join((*parts, response.message)).strip()


def search_text(result: McpSearchResult) -> str:
    """Return the hits with their citations as text."""
    blocks = [
        line for line in (result.message, *(f"Warning: {warning}" for warning in result.warnings)) if line
    ]
    blocks += [_hit_text(number, hit) for number, hit in enumerate(result.results, 1)]
    return "\n\n".join(blocks)


def page_text(result: McpPage) -> str:
    """Return a page as text."""
    head = f"{result.title} ({result.module})\n{result.url}"
    return "\n\n".join(block for block in (head, result.markdown, result.note) if block)


def modules_text(result: McpModules) -> str:
    """Return the modules as text, one per line."""
    lines = [f"- {module.name}: {plural(module.chunks, 'chunk')}" for module in result.modules]
    return "\n".join([f"{result.collection}: {plural(result.pages, 'page')}", *lines])


def _hit_text(number: int, hit: McpHit) -> str:
    facts = [f"module {hit.module}", f"score {hit.score:.3f}"]
    facts += ["weak"] if hit.above_noise is False else []
    facts += [f"matches: {', '.join(hit.matches)}"] if hit.matches else []
    path = HEADING_SEPARATOR.join(hit.headings) or hit.title
    return f"[{number}] {path} ({'; '.join(facts)})\n{hit.url}\n\n{hit.text}"


MAX_PART = 20_000  # characters, about 5,000 tokens: every client accepts a tool result of this size


def whole_page(retriever: Retriever, url: str) -> str:
    """Return a page, or the section of its anchor, as Markdown."""
    return retriever.page(url).markdown(url.partition("#")[2])


def page_part(retriever: Retriever, url: str, part: int) -> McpPage:
    """Return one part of a page, or of the section of its anchor."""
    page, anchor = retriever.page(url), url.partition("#")[2]
    parts = _parts(page.section(anchor) if anchor else page.chunks)
    if part > len(parts):
        raise InvalidArgument(
            f"There is no part {part}: {page.url} has {len(parts)}", hint="Parts are counted from 1."
        )
    note = ""
    if part < len(parts):
        note = (
            f"This is part {part} of {len(parts)}. Call read_page with part={part + 1} for the next, "
            "or with an #anchor for one section."
        )
    return McpPage(
        url=with_anchor(page.url, anchor),
        title=page.title,
        module=page.module,
        markdown=replace(page, chunks=parts[part - 1]).markdown(),
        part=part,
        parts=len(parts),
        note=note,
    )


def _parts(chunks: Sequence[Chunk]) -> list[tuple[Chunk, ...]]:
    """Group consecutive chunks into parts of at most `MAX_PART` characters."""
    parts: list[list[Chunk]] = []
    room = 0
    for chunk in _split_long(chunks):
        if not parts or len(chunk.text) > room:
            parts.append([])
            room = MAX_PART
        parts[-1].append(chunk)
        room -= len(chunk.text)
    return [tuple(part) for part in parts]


def _split_long(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    """Split chunks that are longer than a part; only collections of other pipelines have them."""
    for chunk in chunks:
        for start in range(0, max(1, len(chunk.text)), MAX_PART):
            yield replace(chunk, text=chunk.text[start : start + MAX_PART])


INSTRUCTIONS = (
    "This server reads one textbook. Start with search_book. To read more around a result, call read_page "
    "with its `url`. Use related_chunks when the user has selected text. Answer from what the book "
    "says, and cite each statement by the `url` of the result. If `answerable` is below 0.5, say that the "
    "book does not seem to cover the question instead of answering from the results. Scores mean little "
    "by themselves: if `above_noise` is false, the result most likely has nothing to do with the "
    "question."
)


@dataclass(frozen=True, slots=True)
class BookTool:
    """A tool: its name and description, its argument and result models, and its function."""

    name: str
    title: str
    description: str
    arguments: type[ToolArguments]
    result: type[BaseModel]
    run: Callable[[Retriever, Any], Awaitable[BaseModel]]
    text: Callable[[Any], str]


async def search_book(retriever: Retriever, asked: SearchArguments) -> McpSearchResult:
    """Search the book."""
    response = await retriever.asearch(
        asked.query, asked.top_k, asked.filters(), asked.min_score, mode=asked.mode, group_by=asked.group_by
    )
    return search_result(response, await to_thread(response_words, retriever, response))


async def related_chunks(retriever: Retriever, asked: RelatedArguments) -> McpRelatedResult:
    """Find chunks that are related to a selected text."""
    response = await retriever.arelated(
        asked.selection, asked.question, asked.top_k, asked.filters(), mode=asked.mode
    )
    return related_result(response, await to_thread(response_words, retriever, response))


async def read_page(retriever: Retriever, asked: PageArguments) -> McpPage:
    """Return a page, a section, or a part of either."""
    return await to_thread(page_part, retriever, asked.url, asked.part)


async def list_modules(retriever: Retriever, _asked: NoArguments) -> McpModules:
    """List the modules of the book."""
    modules, pages = await to_thread(lambda: (retriever.modules(), retriever.pages()))
    listed = [McpModule(name=module.name, title=module.title, chunks=module.chunks) for module in modules]
    return McpModules(collection=retriever.collection, pages=len(pages), modules=listed)


TOOLS = (
    BookTool(
        "search_book",
        "Search the book",
        "Find the chunks of the textbook that answer a question, best first. Use it first for anything "
        "that the book may cover. Each result has its text, headings, module and a `url`: cite by `url`. "
        "`answerable` below 0.5 means that the book most likely does not cover the question. `message` "
        "says which misspelt words were corrected, and why there are no results: `filtered_out` means "
        "that the filters exclude everything, so try again without them. Use the mode `lexical` to look "
        "up an exact name or code.",
        SearchArguments,
        McpSearchResult,
        search_book,
        search_text,
    ),
    BookTool(
        "read_page",
        "Read a page",
        "Read a page of the textbook as Markdown, or one section of it if the URL has an #anchor, such as "
        "the `url` of a result. Use it when a result is not enough: for the steps around it, a whole "
        "table or listing, or a summary of a page. Long pages come in parts; `note` says how to get the "
        "next.",
        PageArguments,
        McpPage,
        read_page,
        page_text,
    ),
    BookTool(
        "list_modules",
        "List the modules",
        "List the modules of the textbook with their numbers of chunks. Use it to learn what the book is "
        "about, and for the names that the `module` argument of the other tools takes.",
        NoArguments,
        McpModules,
        list_modules,
        modules_text,
    ),
    BookTool(
        "related_chunks",
        "Find chunks related to a selected text",
        "Find chunks of the textbook that complement a text which the reader has selected, with or "
        "without a question about it: prerequisites, details, the same topic elsewhere. The selection "
        "itself and copies of it are left out. Use search_book instead if there is only a question.",
        RelatedArguments,
        McpRelatedResult,
        related_chunks,
        search_text,
    ),
)

"""The tools: what each is for, in words for an agent, and what it does."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from recto.errors import InvalidArgument
from recto.search import display
from recto.search.display import response_words
from recto.search.lexical import QueryWord
from recto.search.query import DEFAULT_TOP_K, MAX_QUERY
from recto.search.retriever import Retriever
from recto.search.snippets import make_snippet
from recto.types import HEADING_SEPARATOR, Chunk, Filters, Hit, Mode, Outcome, SearchResponse

MOST_PASSAGES = 20


def _several(given: Any) -> Any:
    """Take one name, or several in one text, as agents write them now and then."""
    return [part for part in given.split(",") if part.strip()] if isinstance(given, str) else given


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Modules = Annotated[
    list[Name] | None,
    BeforeValidator(_several),
    Field(
        description="Only these modules, by the names that list_modules gives; leave it out to search the whole book."
    ),
]
SearchMode = Annotated[
    Mode,
    Field(
        description="hybrid: by meaning and by words. dense: by meaning alone. lexical: by words alone, for exact names and codes."
    ),
]
Limit = Annotated[int, Field(ge=1, le=MOST_PASSAGES, description="How many passages at most.")]


class Arguments(BaseModel):
    """A tool's arguments; names that it does not know are refused, so that no filter is dropped in silence."""

    model_config = ConfigDict(extra="forbid")


class SearchArguments(Arguments):
    """The arguments of `search_book`."""

    query: Annotated[
        str,
        Field(
            description=f"A question or a few words, up to {MAX_QUERY} characters, in the book's language."
        ),
    ]
    limit: Limit = DEFAULT_TOP_K
    modules: Modules = None
    page: Annotated[Name | None, Field(description="Only the page with this address.")] = None
    mode: SearchMode = "hybrid"

    def filters(self) -> Filters:
        """Return what the search is narrowed to."""
        return Filters(tuple(self.modules or ()), self.page)


class RelatedArguments(Arguments):
    """The arguments of `related_passages`."""

    selection: Annotated[
        str, Field(description="The text that the reader has in front of them, as it is in the book.")
    ]
    question: Annotated[
        str | None, Field(description="What the reader wants to know about it, if they said so.")
    ] = None
    limit: Limit = DEFAULT_TOP_K
    modules: Modules = None
    mode: SearchMode = "hybrid"

    def filters(self) -> Filters:
        """Return what the search is narrowed to."""
        return Filters(tuple(self.modules or ()))


class PageArguments(Arguments):
    """The arguments of `read_page`."""

    address: Annotated[
        Name,
        Field(
            description="A page's address; with an #anchor behind it, only that section. Take it from a `link`."
        ),
    ]
    part: Annotated[
        int, Field(ge=1, description="Which part of a long page; the result says how many there are.")
    ] = 1


class NoArguments(Arguments):
    """A tool that needs to know nothing."""


def checked(model: type[Arguments], given: dict[str, Any] | None) -> Any:
    """Return the arguments as a tool wants them, or say in a sentence what is wrong with them."""
    try:
        return model.model_validate(given or {})
    except ValidationError as error:
        faults = [
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in error.errors(include_url=False)
        ]
        names = ", ".join(model.model_fields) or "none"
        raise InvalidArgument("; ".join(faults), hint=f"The arguments are: {names}.") from error


_DIGITS = 4


class Passage(BaseModel):
    """A passage of the book and where it stands."""

    link: Annotated[str, Field(description="Cite this: the address that opens the section.")]
    title: Annotated[str, Field(description="The page's title.")]
    module: str
    headings: Annotated[list[str], Field(description="The path from the page's title down to the passage.")]
    score: Annotated[float, Field(description="What ranks the passages; compare it within one answer only.")]
    dense: Annotated[float | None, Field(description="Cosine similarity to the query, if it was computed.")]
    lexical: Annotated[
        float | None, Field(description="BM25 score of the query's words, if it was computed.")
    ]
    above_noise: Annotated[
        bool | None, Field(description="False: as unrelated texts score in this book. Null: not measured.")
    ]
    matches: Annotated[
        list[str], Field(description="Words of the passage and its headings that match the query.")
    ]
    snippet: Annotated[str, Field(description="The part of the text around the best matches, in one line.")]
    text: str


class SearchResult(BaseModel):
    """What was found, best first, or why nothing was."""

    outcome: Annotated[
        Outcome,
        Field(description="found, no_match, or filtered_out: the filters leave no passage to search."),
    ]
    message: Annotated[str, Field(description="What to make of the answer, if there is something to say.")]
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
        Field(description="A cosine below this means nothing in this book; null if it was not measured."),
    ]
    passages: list[Passage]
    warnings: list[str]
    took_ms: Annotated[float, Field(description="How long the search took, in milliseconds.")]


class RelatedResult(SearchResult):
    """What goes with a selected text."""

    searched_for: Annotated[str, Field(description="The part of the selection that was searched for.")]
    left_out: Annotated[int, Field(description="Passages left out because they hold the selection itself.")]


class PageResult(BaseModel):
    """A page of the book, or a section of it."""

    link: Annotated[str, Field(description="Cite this.")]
    title: str
    module: str
    markdown: str
    part: int
    parts: Annotated[int, Field(description="How many parts there are; ask for the next with `part`.")]
    note: str


class Module(BaseModel):
    """A part of the book that a search can be narrowed to."""

    name: str
    title: str
    passages: int


class ModulesResult(BaseModel):
    """What the book consists of."""

    collection: str
    pages: int
    modules: list[Module]


def search_result(response: SearchResponse, words: Sequence[QueryWord]) -> SearchResult:
    """Put a response into the tool's words."""
    return SearchResult(
        outcome=response.outcome,
        message=_message(response),
        collection=response.collection,
        mode=response.mode,
        answerable=response.answerable,
        corrections={word: list(meant) for word, meant in response.corrections},
        noise_floor=_rounded(response.noise_floor),
        passages=[_passage(hit, response, words) for hit in response.hits],
        warnings=list(response.warnings),
        took_ms=round(response.timings.total_ms, 2),
    )


def related_result(response: SearchResponse, words: Sequence[QueryWord]) -> RelatedResult:
    """Put the response to a selected text into the tool's words."""
    selection = response.selection
    return RelatedResult(
        **dict(search_result(response, words)),
        searched_for=selection.text if selection else response.query,
        left_out=selection.left_out if selection else 0,
    )


def _passage(hit: Hit, response: SearchResponse, words: Sequence[QueryWord]) -> Passage:
    chunk = hit.chunk
    return Passage(
        link=chunk.link,
        title=chunk.page_title,
        module=chunk.module_name,
        headings=list(chunk.headings),
        score=round(hit.score, _DIGITS),
        dense=_rounded(hit.dense),
        lexical=_rounded(hit.lexical),
        above_noise=display.above_noise(hit, response),
        matches=list(display.chunk_matches(chunk, words)),
        snippet=make_snippet(chunk.text, words).text,
        text=chunk.text,
    )


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, _DIGITS)


def _message(response: SearchResponse) -> str:
    """Say what an agent should know before it reads the passages."""
    said = display.corrections_of(response)
    if response.hits and not display.is_covered(response):
        said.append(
            f"{display.NOT_COVERED} The passages below are the nearest there are; most likely none of them answers the query."
        )
    return " ".join((*said, response.message)).strip()


def search_text(result: SearchResult) -> str:
    """Write passages with their citations."""
    blocks = [
        line for line in (result.message, *(f"Warning: {warning}" for warning in result.warnings)) if line
    ]
    blocks += [_text_passage(number, passage) for number, passage in enumerate(result.passages, 1)]
    return "\n\n".join(blocks)


def page_text(result: PageResult) -> str:
    """Write a page below its title."""
    head = f"{result.title} ({result.module})\n{result.link}"
    return "\n\n".join(block for block in (head, result.markdown, result.note) if block)


def modules_text(result: ModulesResult) -> str:
    """Write one line a module."""
    lines = [f"- {module.name}: {module.passages} passages" for module in result.modules]
    return "\n".join([f"{result.collection}: {result.pages} pages", *lines])


def _text_passage(number: int, passage: Passage) -> str:
    facts = [f"module {passage.module}", f"score {passage.score:.3f}"]
    facts += ["weak"] if passage.above_noise is False else []
    facts += [f"matches: {', '.join(passage.matches)}"] if passage.matches else []
    place = HEADING_SEPARATOR.join(passage.headings) or passage.title
    return f"[{number}] {place} ({'; '.join(facts)})\n{passage.link}\n\n{passage.text}"


LONGEST_PART = (
    20_000  # characters of passages: some five thousand tokens, which every client lets a tool return
)


def whole_page(retriever: Retriever, address: str) -> str:
    """Return a page, or the section that its anchor opens."""
    return retriever.page(address).markdown(address.partition("#")[2])


def page_part(retriever: Retriever, address: str, part: int) -> PageResult:
    """Return one part of a page, or of the section that its anchor opens."""
    page, anchor = retriever.page(address), address.partition("#")[2]
    parts = _parts(page.section(anchor) if anchor else page.chunks)
    if part > len(parts):
        raise InvalidArgument(
            f"There is no part {part}: {page.url} has {len(parts)}", hint="Parts are counted from 1."
        )
    note = ""
    if part < len(parts):
        note = f"This is part {part} of {len(parts)}. Call read_page with part={part + 1} for the next, or with an #anchor for one section."
    return PageResult(
        link=f"{page.url}#{anchor}" if anchor else page.url,
        title=page.title,
        module=page.module,
        markdown=replace(page, chunks=parts[part - 1]).markdown(),
        part=part,
        parts=len(parts),
        note=note,
    )


def _parts(chunks: Sequence[Chunk]) -> list[tuple[Chunk, ...]]:
    """Put as many passages in a row together as may be returned at once."""
    parts: list[list[Chunk]] = []
    room = 0
    for chunk in _bounded(chunks):
        if not parts or len(chunk.text) > room:
            parts.append([])
            room = LONGEST_PART
        parts[-1].append(chunk)
        room -= len(chunk.text)
    return [tuple(part) for part in parts]


def _bounded(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    """Cut passages that are too long by themselves; only collections that others made have them."""
    for chunk in chunks:
        for start in range(0, max(1, len(chunk.text)), LONGEST_PART):
            yield replace(chunk, text=chunk.text[start : start + LONGEST_PART])


INSTRUCTIONS = (
    "This server reads one textbook. Start with search_book; read more around a passage with read_page, passing its `link`; use "
    "related_passages when the user has selected text. Answer from what the book says and cite each statement by the passage's `link`. "
    "If `answerable` is below 0.5, say that the book does not seem to cover the question instead of answering from the passages. "
    "Scores say little by themselves: where `above_noise` is false, the passage most likely has nothing to do with the question."
)


@dataclass(frozen=True, slots=True)
class BookTool:
    """A tool: its name, when to use it, what goes in and out, and how it is done."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    result: type[BaseModel]
    run: Callable[[Retriever, Any], Awaitable[BaseModel]]
    text: Callable[[Any], str]


async def search_book(retriever: Retriever, asked: SearchArguments) -> SearchResult:
    """Answer a question with passages."""
    response = await retriever.asearch(asked.query, asked.limit, asked.filters(), mode=asked.mode)
    return search_result(response, await to_thread(response_words, retriever, response))


async def related_passages(retriever: Retriever, asked: RelatedArguments) -> RelatedResult:
    """Find what goes with a selected text."""
    response = await retriever.arelated(
        asked.selection, asked.question, asked.limit, asked.filters(), mode=asked.mode
    )
    return related_result(response, await to_thread(response_words, retriever, response))


async def read_page(retriever: Retriever, asked: PageArguments) -> PageResult:
    """Return a page, a section, or a part of either."""
    return await to_thread(page_part, retriever, asked.address, asked.part)


async def list_modules(retriever: Retriever, _asked: NoArguments) -> ModulesResult:
    """Say what the book consists of."""
    modules, pages = await to_thread(lambda: (retriever.modules(), retriever.pages()))
    counted = [Module(name=module.name, title=module.title, passages=module.chunks) for module in modules]
    return ModulesResult(collection=retriever.collection, pages=len(pages), modules=counted)


TOOLS = (
    BookTool(
        "search_book",
        "Search the book",
        "Find the passages of the textbook that answer a question, best first. Use it first for anything that the book may cover. Each "
        "passage has its text, headings, module and a `link`: cite by `link`. `answerable` below 0.5 means that the book most likely does "
        "not cover the question. `message` says which misspelt words were corrected, and why an answer is empty: `filtered_out` means "
        "that the filters leave nothing to search, so try again without them. Use the mode `lexical` to look up an exact name or code.",
        SearchArguments,
        SearchResult,
        search_book,
        search_text,
    ),
    BookTool(
        "read_page",
        "Read a page",
        "Read a page of the textbook as Markdown, or one section of it if the address has an #anchor, such as the `link` of a passage. Use "
        "it when a passage is not enough: for the steps around it, a whole table or listing, or a summary of a page. Long pages come in "
        "parts; `note` says how to get the next.",
        PageArguments,
        PageResult,
        read_page,
        page_text,
    ),
    BookTool(
        "list_modules",
        "List the modules",
        "List the modules of the textbook with the number of passages in each. Use it to learn what the book is about, and for the names "
        "that the `modules` argument of the other tools takes.",
        NoArguments,
        ModulesResult,
        list_modules,
        modules_text,
    ),
    BookTool(
        "related_passages",
        "Find passages that go with a selected text",
        "Find passages of the textbook that complement a text which the reader has selected, with or without a question about it: "
        "prerequisites, details, the same thing elsewhere. The selection itself and copies of it are left out. Use search_book instead if "
        "there is only a question.",
        RelatedArguments,
        RelatedResult,
        related_passages,
        search_text,
    ),
)

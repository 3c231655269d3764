"""The MCP tools: their functions and descriptions."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from recto._util.text import plural, with_anchor
from recto.errors import InvalidArgument
from recto.search import display
from recto.search.context import Context
from recto.search.display import response_words
from recto.search.lexical import QueryWord
from recto.search.retriever import Retriever
from recto.server.mcp.schemas import (
    ContextArguments,
    McpContext,
    McpHit,
    McpModule,
    McpModules,
    McpPage,
    McpRelatedResult,
    McpSearchResult,
    McpSection,
    NoArguments,
    PageArguments,
    RelatedArguments,
    SearchArguments,
    ToolArguments,
)
from recto.types import HEADING_SEPARATOR, Chunk, Filters, SearchResponse

_DIGITS = 4


def search_result(response: SearchResponse, words: Sequence[QueryWord]) -> McpSearchResult:
    """Convert a response into the tool's result."""
    fields = tuple(McpHit.model_fields)
    return McpSearchResult(
        **_about(response),
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


def context_result(context: Context) -> McpContext:
    """Convert a context into the tool's result."""
    response = context.response
    about = _about(response)
    left_out = list(dict.fromkeys(hit.chunk.link for hit in context.left_out))
    not_shown = [
        plural(count, what)
        for count, what in ((len(left_out), "further result"), (context.missing, "chunk"))
        if count
    ]
    if not_shown:
        more = f"{' and '.join(not_shown)} did not fit into {context.max_tokens} tokens."
        about["message"] = f"{about['message']} {more}".strip()
    if context.page_message:
        about["message"] = f"{context.page_message} {about['message']}".strip()
    return McpContext(
        **about,
        page_used=context.page_used,
        sections=[
            McpSection(
                url=section.url,
                title=section.hits[0].chunk.page_title,
                headings=list(section.hits[0].chunk.headings),
                module=section.hits[0].chunk.module_name,
                score=round(section.score, _DIGITS),
                above_noise=display.above_noise(section.hits[0], response),
                hits=len(section.hits),
                text=section.text,
                tokens=section.tokens,
                missing=section.missing,
                truncated=section.truncated,
            )
            for section in context.sections
        ],
        tokens=context.tokens,
        max_tokens=context.max_tokens,
        left_out=left_out,
        warnings=list(response.warnings),
        took_ms=round(response.timings.total_ms, 2),
    )


def _about(response: SearchResponse) -> dict[str, Any]:
    """Return the fields of `McpResponse`."""
    return {
        "outcome": response.outcome,
        "message": _message(response),
        "collection": response.collection,
        "mode": response.mode,
        "answerable": response.answerable,
        "coverage": response.coverage,
        "corrections": {word: list(meant) for word, meant in response.corrections},
    }


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
    blocks = _remarks(result)
    blocks += [_hit_text(number, hit) for number, hit in enumerate(result.results, 1)]
    return "\n\n".join(blocks)


def context_text(result: McpContext) -> str:
    """Return the sections with their citations as text."""
    blocks = _remarks(result)
    for number, section in enumerate(result.sections, 1):
        weak = "; weak" if section.above_noise is False else ""
        path = HEADING_SEPARATOR.join(section.headings) or section.title
        blocks.append(f"[{number}] {path} (module {section.module}{weak})\n{section.url}\n\n{section.text}")
    if result.left_out:
        blocks.append("\n".join(("Did not fit:", *result.left_out)))
    return "\n\n".join(blocks)


def _remarks(result: McpSearchResult | McpContext) -> list[str]:
    return [line for line in (result.message, *(f"Warning: {one}" for one in result.warnings)) if line]


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
    "This server reads one textbook. To answer a question, call get_context; pass `page` if you know which "
    "page the user is reading. To find places instead of text to read, call search_book. To read on, call "
    "read_page with a `url`. If the user has selected text, call related_chunks. Answer from what the book "
    "says, and cite each statement by its `url`. If `coverage` is `not covered`, say that the book does not "
    "seem to cover the question instead of answering from the results. If it is `unclear`, or if the text "
    "does not answer the question, say so. Scores mean little by themselves: if `above_noise` is false, the "
    "result most likely has nothing to do with the question."
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


async def get_context(retriever: Retriever, asked: ContextArguments) -> McpContext:
    """Return sections of the book for a query, within a budget of tokens."""
    context = await retriever.acontext(
        asked.query,
        asked.max_tokens,
        asked.top_k,
        Filters(tuple(asked.module or ())),
        mode=asked.mode,
        page=asked.page,
        neighbors=asked.neighbors,
    )
    return context_result(context)


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
        "Return the chunks (short parts of a section) that match a query best, with scores and `url`s. Use "
        "it to find where the book covers something, to compare results, or to look up an exact name with "
        "the mode `lexical`. To answer a question, use get_context instead: it returns whole sections. If "
        "there are no results, `message` says why; with the outcome `filtered_out`, try again without "
        "`module` and `url`.",
        SearchArguments,
        McpSearchResult,
        search_book,
        search_text,
    ),
    BookTool(
        "read_page",
        "Read a page",
        "Return a page as Markdown, or one section of it if the URL has an #anchor. Use it when you have a "
        "`url` and need all of it: every step, a whole table or listing, a summary. Do not use it to look "
        "for something: get_context and search_book find the right page. Long pages come in parts; `note` "
        "says how to get the next.",
        PageArguments,
        McpPage,
        read_page,
        page_text,
    ),
    BookTool(
        "list_modules",
        "List the modules",
        "Return the modules (parts) of the textbook with their sizes. Use it to learn what the book is "
        "about, and for the names that `module` takes. Not needed before a search.",
        NoArguments,
        McpModules,
        list_modules,
        modules_text,
    ),
    BookTool(
        "related_chunks",
        "Find chunks related to a selected text",
        "Return chunks that complement a text which the user has selected: prerequisites, details, the same "
        "topic elsewhere. The selection itself and copies of it are left out. Use it only if there is such a "
        "text; for a question alone, use get_context.",
        RelatedArguments,
        McpRelatedResult,
        related_chunks,
        search_text,
    ),
    BookTool(
        "get_context",
        "Get context for a question",
        "Return the sections of the textbook that answer a question, as Markdown, most relevant first, in at "
        "most `max_tokens`. Use it first for anything that the book may cover. Each section has a `url`: "
        "cite by it. If `coverage` is `not covered`, the book most likely does not cover the question. "
        "`message` says what did not fit, which misspelt words were corrected, and whether `page` was used.",
        ContextArguments,
        McpContext,
        get_context,
        context_text,
    ),
)

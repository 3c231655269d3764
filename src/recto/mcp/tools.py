"""The tools: what each is for, in words for an agent, and what it does."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from recto.mcp.arguments import Arguments, NoArguments, PageArguments, RelatedArguments, SearchArguments
from recto.mcp.pages import page_part
from recto.mcp.results import Module, ModulesResult, PageResult, RelatedResult, SearchResult, related_result, search_result
from recto.mcp.text import modules_text, page_text, search_text
from recto.retriever import Retriever
from recto.search.display import response_words

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
    response = await retriever.arelated(asked.selection, asked.question, asked.limit, asked.filters(), mode=asked.mode)
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

"""The books of an MCP server: the argument that chooses one, and the tool that lists them."""

from __future__ import annotations

import inspect
from asyncio import gather, to_thread
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

from mcp_types import CallToolResult
from pydantic import Field

from recto._util.text import plural, shortened
from recto.errors import InvalidArgument, RectoError
from recto.search.markdown import one_line
from recto.server.mcp_tools import (
    INSTRUCTIONS,
    NOTICE,
    BookFacts,
    BookTools,
    LazyRetriever,
    book_title,
    joined,
    quoted_title,
    read_facts,
    tool_result,
)
from recto.server.schemas import McpBooks

PAGE_SCHEME = "recto://pages/"
_MOST_TITLES = 5  # in the description of each tool, which every prompt contains

_SINGLE = "This server reads one book; the tools say which."
_SEVERAL = (
    "This server reads several books; list_books returns them. Pass the `name` of one as `book` to every "
    "tool: a `url` and a `module` belong to one book."
)


class ServedBooks:
    """The books that a server reads; no other collection can be reached."""

    def __init__(self, books: Sequence[LazyRetriever]) -> None:
        self._books = {book.collection: book for book in books}
        self.books = tuple(self._books.values())
        self.several = len(self.books) > 1
        self.instructions = f"{_SEVERAL if self.several else _SINGLE} {INSTRUCTIONS}"
        self.default_facts = BookFacts("one of the books") if self.several else BookFacts()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Start to open the books, and close this event loop's connections at the end."""
        async with AsyncExitStack() as stack:
            for book in self.books:
                await stack.enter_async_context(book.run())
            yield

    def page_prefix(self, book: LazyRetriever) -> str:
        """Return how the resource URIs of a book's pages begin."""
        return f"{PAGE_SCHEME}{book.collection}/" if self.several else PAGE_SCHEME

    async def facts(self) -> BookFacts:
        """Return what the descriptions of the tools say; of several books, only the first titles."""
        if not self.several:
            return await to_thread(read_facts, await self.books[0].retriever())
        opened = await gather(*(book.retriever() for book in self.books[:_MOST_TITLES]))
        titles = ", ".join(await to_thread(lambda: list(map(quoted_title, opened))))
        more = len(self.books) - len(opened)
        return BookFacts(f"one of the books {titles}{f' and {more} more' if more else ''}")

    def tool(
        self, method: Callable[..., Awaitable[CallToolResult]]
    ) -> Callable[..., Awaitable[CallToolResult]]:
        """Return a tool of `BookTools`; with several books, its argument `book` chooses one."""
        if not self.several:
            return method.__get__(BookTools(self.books[0]))  # type: ignore[no-any-return]
        signature = inspect.signature(method, eval_str=True)

        async def tool(book: str, **arguments: Any) -> CallToolResult:
            return await method(BookTools(self._select(book)), **arguments)

        described = Field(
            description="The name of the book, from list_books.",
            json_schema_extra={"enum": [*self._books]},
        )
        choice = inspect.Parameter("book", inspect.Parameter.KEYWORD_ONLY)
        choice = choice.replace(default=self.books[0].collection, annotation=Annotated[str, described])
        parameters = [*list(signature.parameters.values())[1:], choice]
        tool.__name__, tool.__doc__ = method.__name__, method.__doc__
        tool.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return tool

    def _select(self, name: str) -> LazyRetriever:
        if name not in self._books:
            raise InvalidArgument(
                f"There is no book '{shortened(name)}'", hint=f"The books are: {', '.join(self._books)}."
            )
        return self._books[name]

    async def list_books(self) -> Annotated[CallToolResult, McpBooks]:
        """Return the names and titles of the books, and their sizes.

        Use it to choose the `book` for the other tools.
        """
        books = await gather(*map(_book_data, self.books))
        lines = [
            f"- {book['name']}: {book['error'] or one_line(book['title'])}; {plural(book['pages'], 'page')}"
            for book in books
        ]
        return tool_result({"books": books}, joined(NOTICE, "\n".join(lines)))


async def _book_data(book: LazyRetriever) -> dict[str, Any]:
    """Return the fields of `McpBook`."""
    try:
        retriever = await book.retriever()
        title, pages = await to_thread(lambda: (book_title(retriever), len(retriever.pages())))
        return {"name": book.collection, "title": title, "pages": pages, "error": ""}
    except RectoError as error:
        return {"name": book.collection, "title": "", "pages": 0, "error": str(error)}

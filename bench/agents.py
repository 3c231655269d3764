"""Score the MCP tools: `uv run --group bench python -m bench.agents --sets fastapi,docusaurus`.

The official client asks questions of readers over the protocol, as an agent does that follows the server's
instructions: get_context first, then read_page with the URL of the first section. A task is solved if one of
the two results contains the quote of the answer. Each set gives the same number of tasks, evenly spread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from mcp import Client

from bench.books import make_parser, open_book, parse
from bench.context import has_quote, read_quotes
from recto import Retriever
from recto.server.mcp_server import build_server
from recto.server.mcp_tools import LazyRetriever

TASKS = 30


async def solve(client: Client, query: str, quotes: Sequence[str], *, needs_all: bool) -> tuple[int, int]:
    """Return the call that returned the quote, or 0, and the most tokens of the book in a call."""
    context = await client.call_tool("get_context", {"query": query})
    data: dict[str, Any] = context.structured_content or {}
    if data["tokens"] > data["max_tokens"]:
        raise SystemExit(f"{query!r} got {data['tokens']} of {data['max_tokens']} tokens")
    text = "".join(getattr(part, "text", "") for part in context.content)
    if has_quote(text, quotes, needs_all=needs_all):
        return 1, data["tokens"]
    if data["sections"]:
        page = await client.call_tool("read_page", {"url": data["sections"][0]["url"].partition("#")[0]})
        text += "".join(getattr(part, "text", "") for part in page.content)
    return 2 * has_quote(text, quotes, needs_all=needs_all), data["tokens"]


async def run(
    retriever: Retriever, tasks: Sequence[tuple[str, Sequence[str], bool]]
) -> list[tuple[int, int]]:
    """Solve tasks with one client."""
    server = build_server(LazyRetriever(retriever, retriever.open, print))
    async with Client(server) as client:
        return [await solve(client, query, quotes, needs_all=all_of) for query, quotes, all_of in tasks]


def main(arguments: Sequence[str] | None = None) -> None:
    """Solve the tasks and print how many were solved by the first and by the second call."""
    options, books = parse(make_parser(__doc__, "bench.agents"), arguments)
    results: list[tuple[int, int]] = []
    count = max(1, TASKS // len(books))
    for book in books:
        quotes = read_quotes(options.questions / f"{book.name}.jsonl")
        answered = [number for number, question in enumerate(book.questions) if not question.nothing]
        tasks = []
        for number in dict.fromkeys(answered[len(answered) * task // count] for task in range(count)):
            question = book.questions[number]
            tasks.append((question.query, quotes[number], question.key in book.need_all))
        with open_book(options, book) as retriever:
            solved = asyncio.run(run(retriever, tasks))
        for (query, _, _), (call, tokens) in zip(tasks, solved, strict=True):
            print(f"{book.name}: call {call or '-'}, {tokens} tokens: {query}")
        results += solved
    first, second = (sum(call == number for call, _ in results) for number in (1, 2))
    print(f"{first + second} of {len(results)} tasks solved, {first} of them by the first call")


if __name__ == "__main__":
    main()

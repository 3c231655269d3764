"""Call the MCP server with the official client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from recto.plugins import Notify
from recto.search.retriever import Retriever
from recto.server.mcp_server import BookServer, build_server
from recto.server.mcp_tools import LazyRetriever

Result = TypeVar("Result")


def book_server(
    retriever: Retriever, prepare: Callable[[], object] | None = None, notify: Notify = print, **more: Any
) -> BookServer:
    """Return a server in this process."""
    return build_server(LazyRetriever(retriever, prepare or retriever.open, notify, **more))


def in_memory(retriever: Retriever, work: Callable[[Client], Awaitable[Result]]) -> Result:
    """Connect a client to a server in this process."""
    return connected(book_server(retriever), work)


def connected(server: Any, work: Callable[[Client], Awaitable[Result]], **more: Any) -> Result:
    """Run work with a connected client."""

    async def main() -> Result:
        async with Client(server, **more) as client:
            try:
                return await work(client)
            except MCPError as error:
                refused = error  # raised outside, where it is not wrapped in a group
        raise refused

    return asyncio.run(main())


def call(retriever: Retriever, tool: str, **arguments: Any) -> CallToolResult:
    """Call one tool of a server in this process."""
    return in_memory(retriever, lambda client: client.call_tool(tool, arguments))


def data_of(retriever: Retriever, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the data of a tool that succeeds."""
    data: dict[str, Any] = call(retriever, tool, **arguments).structured_content
    return data


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def failure(result: CallToolResult) -> str:
    """Return the text of a failed call; it has no internals."""
    assert result.is_error
    text = text_of(result)
    assert "Traceback" not in text
    assert ".py" not in text
    return text

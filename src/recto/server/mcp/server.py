"""The MCP server: tools, a resource for each page of the book, and transports (standard input, HTTP)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import stat
import sys
from asyncio import Task, create_task, gather, to_thread, wait
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

import anyio
import mcp_types as wire
from anyio import wait_writable
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError

from recto import __version__
from recto._util.retry import Notify
from recto._util.text import plural
from recto.errors import ErrorKind, PageMissing, RectoError
from recto.search.retriever import Retriever
from recto.server.auth import AdmissionMiddleware, ApiKeys, is_loopback, key_required, local_hosts
from recto.server.limits import AdmissionLimits, Refusal, Refused
from recto.server.mcp.schemas import check_arguments
from recto.server.mcp.tools import INSTRUCTIONS, TOOLS, BookTool, whole_page

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_OPEN_TIMEOUT = 20.0  # seconds; clients wait about a minute, and the first run indexes a book


class StillOpening(RectoError):
    """The book is still being opened or indexed."""

    kind = ErrorKind.BUSY
    label = ""


class LazyRetriever:
    """Opens a retriever in the background; if `prepare` fails, the next request tries again."""

    def __init__(
        self,
        retriever: Retriever,
        prepare: Callable[[], object],
        notify: Notify,
        open_timeout: float = _OPEN_TIMEOUT,
    ) -> None:
        self._retriever = retriever
        self._prepare = prepare
        self._notify = notify
        self._open_timeout = open_timeout
        self._opening: Task[object] | None = None
        self._is_open = False

    async def retriever(self) -> Retriever:
        """Return the retriever; wait until it is open."""
        if not self._is_open:
            await self._open()
        return self._retriever

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Start to open the book, and close this event loop's connections at the end."""
        opening = create_task(self._warm_up())
        try:
            yield
        finally:
            opening.cancel()
            await gather(opening, return_exceptions=True)  # the next request reports the same error
            await self._retriever.aclose()

    async def _warm_up(self) -> None:
        try:
            retriever = await self.retriever()
            await to_thread(retriever.warm_up)
        except StillOpening:
            pass  # it continues, and reports its progress
        except RectoError as error:
            self._notify(f"[WARNING] {error}. {error.hint}".rstrip())

    async def _open(self) -> None:
        """Open the book, or wait until another task has opened it; raise `StillOpening` after the timeout."""
        if self._opening is None or self._opening.done():
            self._opening = create_task(to_thread(self._prepare))
        opening = self._opening
        if not (await wait({opening}, timeout=self._open_timeout))[0]:
            raise StillOpening("The book is still being opened or indexed", hint="Ask again in a minute.")
        opening.result()
        self._is_open = True


PAGE_SCHEME = "recto://pages/"
MARKDOWN = "text/markdown"
LISTED = 200
"""How many pages are listed at once; the cursor gets the next ones."""

_LOG = logging.getLogger("recto.server.mcp")
_READS_ONLY = wire.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_Context = ServerRequestContext[Any]


def build_server(lazy: LazyRetriever) -> Server[None]:
    """Return the MCP server; it opens the book when it runs."""
    tools = {tool.name: tool for tool in TOOLS}
    listed = wire.ListToolsResult(tools=[_listed_tool(tool) for tool in TOOLS])

    async def list_tools(_context: _Context, _params: object) -> wire.ListToolsResult:
        return listed

    async def call_tool(_context: _Context, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        if params.name not in tools:
            raise MCPError(
                wire.INVALID_PARAMS,
                f"There is no tool '{params.name[:80]}'. The tools are: {', '.join(tools)}.",
            )
        return await _call(lazy, tools[params.name], params.arguments)

    async def list_resources(
        _context: _Context, params: wire.PaginatedRequestParams | None
    ) -> wire.ListResourcesResult:
        return await _list_pages(lazy, params.cursor if params else None)

    async def list_templates(_context: _Context, _params: object) -> wire.ListResourceTemplatesResult:
        return wire.ListResourceTemplatesResult(resource_templates=[_template()])

    async def read_resource(
        _context: _Context, params: wire.ReadResourceRequestParams
    ) -> wire.ReadResourceResult:
        return await _read(lazy, params.uri)

    @asynccontextmanager
    async def lifespan(_server: Server[None]) -> AsyncIterator[None]:
        async with lazy.run():
            yield

    return Server(
        "recto",
        title="Recto",
        version=__version__,
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


def page_uri(address: str) -> str:
    """Return the resource URI of a page."""
    return PAGE_SCHEME + quote(address, safe="")


async def _call(lazy: LazyRetriever, tool: BookTool, arguments: dict[str, Any] | None) -> wire.CallToolResult:
    """Call a tool; return errors as results that the agent can act on."""
    try:
        asked = check_arguments(tool.arguments, arguments)
        result = await tool.run(await lazy.retriever(), asked)
    except Exception as error:  # noqa: BLE001 - the agent must see every failure, without internals
        return wire.CallToolResult(content=[wire.TextContent(text=_explained(error))], is_error=True)
    return wire.CallToolResult(
        content=[wire.TextContent(text=tool.text(result))], structured_content=result.model_dump(mode="json")
    )


async def _list_pages(lazy: LazyRetriever, cursor: str | None) -> wire.ListResourcesResult:
    """List the pages after the cursor, which is the last URL of the list before."""
    with _protocol_errors():
        retriever = await lazy.retriever()
        pages = await to_thread(retriever.pages)
    addresses = sorted(pages)
    begin = bisect_right(addresses, cursor) if cursor else 0
    shown = addresses[begin : begin + LISTED]
    resources = [
        wire.Resource(
            uri=page_uri(address),
            name=address,
            description=plural(pages[address], "chunk"),
            mime_type=MARKDOWN,
        )
        for address in shown
    ]
    more = begin + LISTED < len(addresses)
    return wire.ListResourcesResult(resources=resources, next_cursor=shown[-1] if more else None)


async def _read(lazy: LazyRetriever, uri: str) -> wire.ReadResourceResult:
    with _protocol_errors():
        if not uri.startswith(PAGE_SCHEME):
            raise PageMissing(
                f"There is no resource '{uri[:200]}'",
                hint=f"Pages are {PAGE_SCHEME}ADDRESS, percent-encoded.",
            )
        retriever = await lazy.retriever()
        markdown = await to_thread(whole_page, retriever, unquote(uri.removeprefix(PAGE_SCHEME)))
    return wire.ReadResourceResult(
        contents=[wire.TextResourceContents(uri=uri, text=markdown, mime_type=MARKDOWN)]
    )


def _listed_tool(tool: BookTool) -> wire.Tool:
    return wire.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.arguments.model_json_schema(),
        output_schema=_inlined(tool.result.model_json_schema(mode="serialization")),
        annotations=_READS_ONLY,
    )


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace references by their definitions: not every client resolves them."""
    definitions = schema.pop("$defs", {})

    def walked(part: Any) -> Any:
        if isinstance(part, list):
            return [walked(one) for one in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            part = {**definitions[part["$ref"].rpartition("/")[2]], **part}
        return {name: walked(value) for name, value in part.items() if name != "$ref"}

    return cast("dict[str, Any]", walked(schema))


def _template() -> wire.ResourceTemplate:
    return wire.ResourceTemplate(
        uri_template=PAGE_SCHEME + "{address}",
        name="page",
        title="A page of the book",
        description="A page as Markdown, by its URL; with an #anchor, one section of it.",
        mime_type=MARKDOWN,
    )


@contextmanager
def _protocol_errors() -> Iterator[None]:
    """Turn exceptions into protocol errors."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the SDK would send the text of any exception
        is_caller_error = isinstance(error, RectoError) and error.kind in (
            ErrorKind.MISSING,
            ErrorKind.ARGUMENT,
        )
        raise MCPError(
            wire.INVALID_PARAMS if is_caller_error else wire.INTERNAL_ERROR, _explained(error)
        ) from None


def _explained(error: Exception) -> str:
    """Return the message and the hint of an error, without internals."""
    if isinstance(error, RectoError):
        return f"{error}. {error.hint}".strip()
    _LOG.error(
        "Unexpected error: %s",
        type(error).__name__,
        exc_info=error if os.environ.get("RECTO_DEBUG") else None,
    )
    return (
        f"Unexpected error: {type(error).__name__}. This is a bug in Recto; "
        "set RECTO_DEBUG=1 to see the traceback on standard error."
    )


PATH = "/mcp"
_DRAIN = 5.0
_DEADLINE = 60.0  # seconds; long enough for a long page and a slow engine
_NO_STREAM = Refusal(
    405, "This server does not open event streams", "Send each request with POST.", (("Allow", "POST"),)
)
_MAX_MESSAGE = 64 << 20
_LONE_SURROGATE = re.compile(
    r"""\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"""
)


class Outbox:
    """Standard output for protocol messages only; other prints go to standard error."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._descriptor = os.dup(1)
        os.dup2(2, 1)

    async def write(self, text: str) -> None:
        """Write a whole message."""
        rest = memoryview(text.encode())
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # stdin and stdout can be one socket, which reading made non-blocking
                await wait_writable(self._descriptor)

    async def flush(self) -> None:
        """Do nothing: writes are not buffered."""


def inbox() -> AsyncIterator[str] | None:
    """Return standard input as lines, or None if it is not a pipe that the event loop can wait for."""
    if os.name != "posix" or not _is_pipe(os.fstat(0).st_mode):
        return None
    descriptor = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # child processes must not read the protocol's messages
    os.close(null)
    return _lines(os.fdopen(descriptor, "rb", buffering=0))


async def _lines(pipe: IO[bytes]) -> AsyncIterator[str]:
    reader = asyncio.StreamReader(limit=_MAX_MESSAGE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while line := await reader.readline():
            yield replace_lone_surrogates(line.decode("utf-8", "replace"))
    finally:
        transport.close()


def replace_lone_surrogates(line: str) -> str:
    """Replace escaped lone surrogates in a message: the SDK would drop the request without a response.

    JavaScript programs send them when they cut a text in the middle of an emoji.
    """
    if "\\u" not in line:
        return line
    return _LONE_SURROGATE.sub(lambda found: r"\ufffd" if found[1] else found[0], line)


def _is_pipe(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def run_stdio(server: Server[None]) -> None:
    """Serve the parent program until it closes standard input."""
    # Ctrl-C cannot interrupt a thread that reads a line. Exiting at once is safe: nothing is written.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    async def serve() -> None:
        lines, out = cast("anyio.AsyncFile[str] | None", inbox()), cast("anyio.AsyncFile[str]", Outbox())
        async with stdio_server(stdin=lines, stdout=out) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)


def run_http(server: Server[None], host: str, port: int, keys: Sequence[str], notify: Notify) -> None:
    """Serve many clients over HTTP until Ctrl-C."""
    import uvicorn

    from recto.server.listening import base_url, configure_logging, listen, server_config

    app = http_app(server, host, keys)
    configure_logging(keys)
    with listen(host, port) as listener:
        notify(f"Serving the book at {base_url(listener)}{PATH}; press Ctrl-C to stop")
        config = server_config(app, _DRAIN)
        uvicorn.Server(config).run(sockets=[listener])


def http_app(server: Server[None], host: str, keys: Sequence[str]) -> ASGIApp:
    """Return the ASGI application; it is stateless and answers each request with one JSON response."""
    if not is_loopback(host) and not keys:
        raise key_required(host, "or listen on 127.0.0.1")
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        transport_security=_security(host),
        host=host,
    )
    return AdmissionMiddleware(
        _without_streams(app),
        ApiKeys(tuple(keys)),
        AdmissionLimits(deadline=_DEADLINE),
        hosts=local_hosts(host) if is_loopback(host) else (),
    )


def _without_streams(app: ASGIApp) -> ASGIApp:
    """Refuse GET requests, which would open an event stream that nothing is ever sent on."""

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == PATH:
            raise Refused("method", _NO_STREAM)
        await app(scope, receive, send)

    return handle


def _security(host: str) -> TransportSecuritySettings:
    """Allow only local host names on loopback, against DNS rebinding; elsewhere a key is required."""
    if not is_loopback(host):
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    names = local_hosts(host)
    return TransportSecuritySettings(
        allowed_hosts=[pattern for name in names for pattern in (name, f"{name}:*")],
        allowed_origins=[pattern for name in names for pattern in (f"http://{name}", f"http://{name}:*")],
    )

"""`recto serve`, `recto mcp`, `recto keys` with `add`, `list` and `revoke`, and `recto export`."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from recto._util.text import plural
from recto._util.variables import parse_directory
from recto.cli import Exit, confirm_endpoint, echo, echo_json, emit, notify, options, progress_bar, warn
from recto.contracts import DEFAULT_COLLECTIONS
from recto.errors import InvalidArgument, missing_extra
from recto.server.keys import Key, KeyScope, add_key, key_file, read_keys, revoke_key
from recto.settings import Settings, check_collection_name, load_settings

if TYPE_CHECKING:
    from recto.server.semantic_export import Semantic

_NEEDS_KEY = "Addresses other than loopback need RECTO_API_KEY."
_PORT = click.IntRange(0, 65535)
_DIRECTORY: dict[str, Any] = {"type": click.Path(path_type=Path, file_okay=False), "metavar": "DIR"}


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help=f"Address to listen on. {_NEEDS_KEY}",
)
@options.number("--port", _PORT, 8000, "INT", "Port to listen on; 0 chooses a free one.")
@options.number("--workers", click.IntRange(1, 64), 1, "INT", "Number of processes.")
@options.repeated(
    "--collection",
    "collections",
    "NAME",
    "Also serve this collection; the first is the default if COLLECTION_NAME is not set.",
)
@click.option("--allow-public", is_flag=True, help="Listen on a public address without a key.")
@options.repeated("--allowed-host", "hosts", "NAME", "Also accept requests for this host name.")
@options.repeated("--cors-origin", "origins", "ORIGIN", "Accept requests from web pages of this origin.")
@options.repeated(
    "--trusted-proxy", "proxies", "RANGE", "Take visitors' addresses from this proxy's headers: 10.0.0.0/8."
)
@options.value_option(
    "--rate",
    "INT",
    "Requests per minute for each caller: a key, or an address.",
    "no limit",
    type=click.IntRange(0),
)
@options.value_option(
    "--query-log", "DIRECTORY", "Log queries in this directory.", "RECTO_QUERY_LOG, else no log"
)
@options.number("--concurrency", click.IntRange(1), 100, "INT", "Requests at the same time, per worker.")
@options.number("--timeout", click.FloatRange(0.1), 15, "SECONDS", "Time limit of a request.")
@options.number("--drain", click.FloatRange(1), 20, "SECONDS", "Time for running requests after SIGTERM.")
def serve(query_log: str | None, **flags: Any) -> Exit:
    """Serve the HTTP API and the web UI.

    API keys are read from RECTO_API_KEY, separated by commas, and from `recto keys`.
    """
    from recto.server.http import serve_options

    settings = load_settings()
    _report_files(settings)
    confirm_endpoint(settings)
    if query_log is not None:
        directory = parse_directory(query_log, "--query-log")
        settings = replace(settings, query_log=replace(settings.query_log, directory=directory))
    if settings.query_log.directory is not None:
        notify(f"Queries are logged in {settings.query_log.directory}")
    stored = bool(read_keys(settings.key_home))
    serving = serve_options(settings.variables, **flags, has_stored_keys=stored)
    for warning in serving.warnings():
        warn(warning)
    from recto.server.http.serve import serve as run

    run(settings, serving, notify)
    return Exit.OK


def _report_files(settings: Settings) -> None:
    """Say which files the settings come from, and what they cannot set."""
    if settings.variables.files:
        notify(f"Settings were read from {', '.join(settings.variables.files)}")
    for warning in settings.variables.warnings:
        warn(warning)


@click.command()
@click.option("--http", is_flag=True, help="Serve over HTTP at /mcp, not over standard input and output.")
@options.value_option("--host", "ADDRESS", f"With --http: address to listen on. {_NEEDS_KEY}", "127.0.0.1")
@options.value_option("--port", "INT", "With --http: port to listen on.", "8001", type=_PORT)
@options.repeated("--collection", "collections", "NAME", "Serve this collection instead of COLLECTION_NAME.")
def mcp(http: bool, host: str | None, port: int | None, collections: tuple[str, ...]) -> Exit:
    """Serve books to agents over the Model Context Protocol.

    With several collections, each call can choose one; the first is the default.
    """
    if not http and (host is not None or port is not None):
        raise InvalidArgument("--host and --port need --http", hint="Add --http, or leave them out.")
    for name in collections:
        check_collection_name(name, "--collection")
    settings = load_settings()
    try:
        from recto.server.mcp_server import build_server, run_http, run_stdio
        from recto.server.mcp_tools import LazyRetriever
    except ModuleNotFoundError as error:
        raise missing_extra("`recto mcp`", "mcp") from error
    from recto.api import open_collection, open_embedder, open_store
    from recto.indexing import default_collection
    from recto.search.retriever import make_retriever
    from recto.server.auth import api_keys

    confirm_endpoint(settings)
    embedder = open_embedder(settings, notify)
    store = open_store(settings, notify, close_at_exit=True)
    names = tuple(dict.fromkeys(collections)) or (default_collection(settings, store),)

    def lazy(name: str) -> LazyRetriever:
        retriever = make_retriever(settings, embedder, store, name)
        return LazyRetriever(
            retriever,
            lambda: open_collection(settings, embedder, store, name, notify, DEFAULT_COLLECTIONS),
            notify,
        )

    with closing(embedder), closing(store):
        server = build_server(*map(lazy, names))
        if http:
            _report_files(settings)
            keys = api_keys(settings.variables)
            run_http(server, host or "127.0.0.1", 8001 if port is None else port, keys, notify)
            return Exit.OK
        if sys.stdin is not None and sys.stdin.isatty():
            notify("Waiting for an MCP client on standard input. Press Ctrl-C to stop, or use --http.")
        run_stdio(server)
    return Exit.OK


@click.group()
def keys() -> None:
    """Create, list and revoke API keys of the service.

    Running services notice each change at once.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(get_args(KeyScope)),
    default="search",
    show_default=True,
    help="What the key is for: searching and reading some collections, or everything.",
)
@options.repeated("--origin", "origins", "ORIGIN", "Accept the key from web pages of this origin.")
@options.repeated("--collection", "collections", "NAME", "Accept the key for this collection.")
@options.value_option("--expires", "DATE", "Last day on which the key is valid: 2027-12-31.", "never")
@options.as_json
def add(
    name: str,
    scope: KeyScope,
    origins: tuple[str, ...],
    collections: tuple[str, ...],
    expires: str | None,
    as_json: bool,
) -> Exit:
    """Create the key NAME and print it; it is not stored, and cannot be shown again."""
    home = load_settings().key_home
    key, text = add_key(home, name, scope, origins, collections, expires or "")
    if as_json:
        echo_json({**key.to_dict(), "key": text})
        return Exit.OK
    notify(f"Created the {scope} key '{name}'. Its digest is in {key_file(home)}.")
    if scope == "search" and not key.origins:
        notify("Web pages of other origins cannot use it: add --origin for a web page.")
    notify("Store the key now, because it cannot be shown again:")
    echo(text)
    return Exit.OK


@keys.command("list")
@options.as_json
def list_keys(as_json: bool) -> Exit:
    """List the keys, without their texts."""
    stored = read_keys(load_settings().key_home)
    lines = map(_row, stored) if stored else ["There are no keys."]
    emit([key.to_dict() for key in stored], lines, as_json=as_json)
    return Exit.OK


@keys.command()
@click.argument("name")
@options.as_json
def revoke(name: str, as_json: bool) -> Exit:
    """Revoke the key NAME: services refuse it from now on."""
    key = revoke_key(load_settings().key_home, name)
    emit(key.to_dict(), [f"Revoked the key '{name}'."], as_json=as_json)
    return Exit.OK


def _row(key: Key) -> str:
    facts: dict[str, Any] = {
        "origins": ", ".join(key.origins),
        "collections": ", ".join(key.collections),
        "created": key.created_at,
        "expires": key.expires,
        "revoked": key.revoked_at,
    }
    rest = "; ".join(f"{name} {value}" for name, value in facts.items() if value)
    return f"{key.name}: {key.scope}, {key.state}; {rest}"


@click.command()
@click.option(
    "--llms",
    **_DIRECTORY,
    help="Write llms.txt, llms-full.txt, skill.md and each page as Markdown to this directory.",
)
@click.option(
    "--static",
    **_DIRECTORY,
    help="Write the widget and an index that it searches without a server to this directory.",
)
@click.option(
    "--semantic",
    type=click.Choice(["auto", "on", "off"]),
    help="With --static: also search by meaning, which loads 11 MB in the browser after the first search. "
    "Default: auto, which is on for books that the built-in model indexed.",
)
@options.value_option(
    "--site-url",
    "URL",
    "With --llms: write pages at their paths below this URL, such as https://example.org/book/.",
    "the host of each page",
)
@options.collection
@options.as_json
def export(
    llms: Path | None,
    static: Path | None,
    semantic: Semantic | None,
    site_url: str | None,
    collection: str | None,
    as_json: bool,
) -> Exit:
    """Write files to publish with the site of a book: its text for language models, or a static search.

    They are made from the index: the site need not be built.
    """
    directory = llms or static
    if directory is None or (llms and static):
        raise InvalidArgument("State either --llms or --static", hint="Run the command twice to write both.")
    if static and site_url:
        raise InvalidArgument(
            "--site-url needs --llms", hint="--static writes the links that the book was indexed with."
        )
    if llms and semantic:
        raise InvalidArgument("--semantic needs --static", hint="--llms writes texts only.")
    from recto.cli.commands.collections import megabytes, open_configured_store
    from recto.indexing import default_collection
    from recto.search.pages import export_llms
    from recto.server.static_export import export_static

    settings = load_settings()
    store = open_configured_store(settings)
    name = collection or default_collection(settings, store)
    index = store.open(name)
    summary: dict[str, Any] = {"collection": name, "directory": str(directory)}
    if llms:
        folder = f"{site_url.rstrip('/')}/" if site_url else ""
        pages = export_llms(index, name, directory, folder)
        summary |= {"pages": pages}
        text = (
            f"Wrote llms.txt, llms-full.txt, skill.md and {plural(pages, 'page')} of '{name}' to {directory}."
        )
    else:
        with progress_bar("Reading chunks") as progress:
            exported = export_static(index, directory, progress, semantic or "auto", settings.lexical_weight)
        summary |= asdict(exported)
        if exported.unpublished:
            notify(
                f"{plural(exported.unpublished, 'page')} of '{name}' cannot be opened from the results, "
                "because the book was indexed without the address of its site. Index it again with "
                "--site-url URL, or set data-rewrite in the script tag."
            )
        text = (
            f"Wrote {plural(exported.chunks, 'chunk')} of {plural(exported.pages, 'page')} of '{name}' "
            f"to {directory}: {plural(exported.files, 'file')}, {megabytes(exported.bytes)}. "
            f"Search {'by words and by meaning' if exported.semantic else 'by words only'}."
        )
    emit(summary, [text], as_json=as_json)
    return Exit.OK

"""`recto serve` and `recto mcp`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from recto.cli import options
from recto.cli.runner import Exit, notify, warn
from recto.errors import InvalidArgument, missing_extra
from recto.settings import (
    QUERY_COLLECTION,
    Settings,
    check_collection_name,
    load_settings,
    parse_directory,
)

_NEEDS_KEY = "Addresses other than loopback need RECTO_API_KEY."


def _number(
    flag: str, kind: click.ParamType[Any], default: float, metavar: str, help: str
) -> Callable[[options.Command], options.Command]:
    return click.option(flag, type=kind, default=default, show_default=True, metavar=metavar, help=help)


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help=f"Address to listen on. {_NEEDS_KEY}",
)
@_number("--port", click.IntRange(0, 65535), 8000, "INT", "Port to listen on; 0 chooses a free one.")
@_number("--workers", click.IntRange(1, 64), 1, "INT", "Number of processes.")
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
@_number("--concurrency", click.IntRange(1), 100, "INT", "Requests at the same time, per worker.")
@_number("--timeout", click.FloatRange(0.1), 15, "SECONDS", "Time limit of a request.")
@_number("--drain", click.FloatRange(1), 20, "SECONDS", "Time for running requests after SIGTERM.")
def serve(query_log: str | None, **flags: Any) -> Exit:
    """Serve the HTTP API and the web UI.

    API keys are read from RECTO_API_KEY, separated by commas, and from `recto keys`.
    """
    from recto.server.http.options import serve_options
    from recto.server.keys import read_keys

    settings = load_settings()
    _report_files(settings)
    if query_log is not None:
        directory = parse_directory(query_log, "--query-log")
        settings = replace(settings, query_log=replace(settings.query_log, directory=directory))
    if settings.query_log.directory is not None:
        notify(f"Queries are logged in {settings.query_log.directory}")
    stored = bool(read_keys(settings.key_home))
    serving = serve_options(**flags, has_stored_keys=stored, variables=settings.variables)
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
@options.value_option(
    "--port", "INT", "With --http: port to listen on.", "8001", type=click.IntRange(0, 65535)
)
@options.collection
def mcp(http: bool, host: str | None, port: int | None, collection: str | None) -> Exit:
    """Serve a book to agents over the Model Context Protocol."""
    if not http and (host is not None or port is not None):
        raise InvalidArgument("--host and --port need --http", hint="Add --http, or leave them out.")
    if collection is not None:
        check_collection_name(collection, "--collection")
    settings = load_settings()
    try:
        from recto.server.mcp.server import build_server, run_http, run_stdio
        from recto.server.mcp.tools import LazyRetriever
    except ModuleNotFoundError as error:
        raise missing_extra("`recto mcp`", "mcp") from error
    from recto.api import open_collection, open_embedder, open_store
    from recto.search.retriever import make_retriever
    from recto.server.auth import api_keys

    name = collection or settings.collection_or(QUERY_COLLECTION)
    embedder = open_embedder(settings, notify)
    store = open_store(settings, notify, close_at_exit=True)
    with make_retriever(settings, embedder, store, name) as retriever:
        lazy = LazyRetriever(
            retriever,
            lambda: open_collection(settings, retriever.embedder, retriever.store, name, notify),
            notify,
        )
        server = build_server(lazy)
        if http:
            _report_files(settings)
            keys = api_keys(settings.variables)
            run_http(server, host or "127.0.0.1", 8001 if port is None else port, keys, notify)
            return Exit.OK
        if sys.stdin is not None and sys.stdin.isatty():
            notify("Waiting for an MCP client on standard input. Press Ctrl-C to stop, or use --http.")
        run_stdio(server)
    return Exit.OK

"""`recto mcp`: the book for agents."""

from __future__ import annotations

import os
import sys
from typing import Any

from recto.cli.runner import Exit, notify, warn
from recto.errors import missing_extra
from recto.server.auth import api_keys
from recto.server.http.options import serve_options
from recto.settings import (
    QUERY_COLLECTION,
    check_collection_name,
    load_settings,
    read_dotenv,
    working_directory,
)


def serve(**flags: Any) -> Exit:
    """Answer requests until a signal ends it."""
    settings = load_settings()
    options = serve_options(**flags)
    for warning in options.warnings():
        warn(warning)
    from recto.server.http.serve import serve as run

    run(settings, options, notify)
    return Exit.OK


def mcp(collection: str | None, host: str, port: int, *, http: bool) -> Exit:
    """Serve until the client goes or Ctrl-C; only the protocol goes to standard output."""
    if collection is not None:
        check_collection_name(collection, "--collection")
    settings = load_settings()
    try:
        from recto.server.mcp.server import LazyRetriever, build_server, run_http, run_stdio
    except ModuleNotFoundError as error:
        raise missing_extra("`recto mcp`", "mcp") from error
    from recto.api import open_collection, open_embedder, open_store
    from recto.search.retriever import Retriever

    name = collection or settings.collection_or(QUERY_COLLECTION)
    with Retriever(
        open_embedder(settings, notify), open_store(settings, notify, close_at_exit=True), name
    ) as retriever:
        lazy = LazyRetriever(
            retriever,
            lambda: open_collection(settings, retriever.embedder, retriever.store, name, notify),
            notify,
        )
        server = build_server(lazy)
        if http:
            run_http(server, host, port, api_keys({**read_dotenv(working_directory()), **os.environ}), notify)
        else:
            if sys.stdin is not None and sys.stdin.isatty():
                notify(
                    "Waiting for an agent's program on standard input, until Ctrl-C. To serve many: recto mcp --http"
                )
            run_stdio(server)
    return Exit.OK

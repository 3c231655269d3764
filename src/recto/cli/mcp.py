"""`recto mcp`: the book for agents."""

from __future__ import annotations

import os
import sys

from recto.access import api_keys
from recto.cli.running import Exit, tell
from recto.errors import missing_extra
from recto.settings import QUERY_COLLECTION, check_collection_name, load_settings, read_dotenv, working_directory


def mcp(collection: str | None, host: str, port: int, *, http: bool) -> Exit:
    """Serve until the client goes or Ctrl-C; only the protocol goes to standard output."""
    if collection is not None:
        check_collection_name(collection, "--collection")
    settings = load_settings()
    try:
        from recto.mcp.running import run_http, run_stdio
        from recto.mcp.server import build_server
    except ModuleNotFoundError as error:
        raise missing_extra("`recto mcp`", "mcp") from error
    from recto.mcp.desk import Desk
    from recto.retriever import Retriever
    from recto.wiring import connect, open_embedder, open_store

    name = collection or settings.collection_or(QUERY_COLLECTION)
    with Retriever(open_embedder(settings, tell), open_store(settings, tell, last=True), name) as retriever:
        desk = Desk(retriever, lambda: connect(settings, retriever.embedder, retriever.store, name, tell), tell)
        server = build_server(desk)
        if http:
            run_http(server, host, port, api_keys({**read_dotenv(working_directory()), **os.environ}), tell)
        else:
            if sys.stdin is not None and sys.stdin.isatty():
                tell("Waiting for an agent's program on standard input, until Ctrl-C. To serve many: recto mcp --http")
            run_stdio(server)
    return Exit.OK

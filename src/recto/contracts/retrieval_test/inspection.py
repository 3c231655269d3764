"""`check_qdrant.py`: check that the collection exists, is not empty, and fits the query model."""

from __future__ import annotations

from typing import Any

import click

from recto.contracts.retrieval_test.contract import DEFAULT_COLLECTION, SCHEMA_VERSION, QdrantAPIError
from recto.contracts.retrieval_test.program import CommandState, ExitCode, entry, notify
from recto.errors import RectoError
from recto.protocols import Preparable

_EPILOG = """\b
Exit codes: 0 the collection can be searched, 1 invalid arguments, 2 it cannot;
the JSON says why: missing, empty, another model, no connection.
"""


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--collection",
    metavar="NAME",
    default=DEFAULT_COLLECTION,
    show_default=True,
    help="The collection to check.",
)
@click.pass_obj
def command(state: CommandState, collection: str) -> ExitCode:
    """Check the collection, and print JSON."""
    from recto.contracts.retrieval_test.service import Backend

    with Backend(notify=notify) as backend:
        try:
            settings = backend.settings
        except RectoError as error:
            raise QdrantAPIError.of(error) from error
        index = backend.open(collection)
        info = index.info
        made_with: dict[str, Any] | None = None
        if info.fingerprint is not None:
            made_with = {
                "model": info.fingerprint.embedder.model,
                "pages": info.fingerprint.pages,
                "at": info.fingerprint.created_at,
            }
        try:
            modules = index.modules()
        except RectoError as error:
            notify(f"[WARNING] The modules cannot be counted: {error}")
            modules = {}
        state.document = {
            "schema_version": SCHEMA_VERSION,
            "collection": backend.collection(collection),
            "store": settings.qdrant_url if isinstance(backend.store, Preparable) else "embedded",
            "points": info.chunks,
            "dim": info.dim or backend.dim,
            "distance": "cosine",
            "query_model": backend.model,
            "indexed_with": made_with,
            "model_verified": made_with is not None,
            "modules": modules,
            "warnings": list(info.warnings),
        }
    return ExitCode.OK


main = entry(command, "check_qdrant.py")

"""The commands that look after what is indexed: list it, go back."""

from __future__ import annotations

import json
from typing import Any

import click

from recto.api import open_store
from recto.cli.commands.index import counted
from recto.cli.runner import Exit, notify, warn
from recto.errors import InvalidArgument, RectoError
from recto.protocols import Rollback, Store
from recto.settings import load_settings


def collections(*, as_json: bool) -> Exit:
    """List the collections with what is in them."""
    store = open_store(load_settings(), notify)
    rows = [_row(store, name) for name in store.collections()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return Exit.OK
    for row in rows:
        click.echo(row["collection"] + (f" (also {', '.join(row['aliases'])})" if row["aliases"] else ""))
        click.echo(f"    {_row_text(row)}")
        for warning in row.get("warnings", ()):
            warn(warning)
    if not rows:
        click.echo(
            "Nothing is indexed yet. `recto index PATH` indexes a book, `recto index --sample` the sample book."
        )
    return Exit.OK


def _row(store: Store, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "collection": name,
        "aliases": sorted(alias for alias, target in store.aliases().items() if target == name),
    }
    try:
        info = store.open(name).info
    except RectoError as error:
        return row | {"error": str(error)}
    row |= {"generation": info.generation, "chunks": info.chunks}
    if info.warnings:
        row["warnings"] = list(info.warnings)
    if made := info.fingerprint:
        row |= {
            "pages": made.pages,
            "model": made.embedder.model,
            "created_at": made.created_at,
            "source": made.source,
        }
    return row


def _row_text(row: dict[str, Any]) -> str:
    if "error" in row:
        return str(row["error"])
    if "model" not in row:
        return f"{counted(row['chunks'], 'chunk')}; made by another pipeline, so its model cannot be verified"
    pages, chunks = counted(row["pages"], "page"), counted(row["chunks"], "chunk")
    return f"{chunks} of {pages}, {row['model']}, {row['created_at']}"


def rollback(collection: str) -> Exit:
    """Go back one generation."""
    store = open_store(load_settings(), notify)
    if not isinstance(store, Rollback):
        raise InvalidArgument(
            "Only an embedded index can be rolled back", hint="Index the book again instead."
        )
    info = store.rollback(collection)
    click.echo(f"Collection '{info.collection}' answers from {info.generation} again: {info.chunks} chunks.")
    return Exit.OK

"""`recto collections`, `rollback`, `delete`, and for a Qdrant server `promote`, `parity` and `prepare`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from recto._util.text import escape_controls, plural
from recto.cli import options
from recto.cli.output import echo, echo_json
from recto.cli.runner import Exit, close_later, notify, warn
from recto.errors import FingerprintMismatch, InvalidArgument, InvalidOption, RectoError
from recto.indexing.naming import default_collection
from recto.protocols import Deletable, Preparable, Rollback, Store
from recto.search.lexical import other_analyzer
from recto.settings import Settings, load_settings
from recto.types import MODES

_BY_HAND = "Delete it with the tools of the store."
_LOCAL_MODEL = {"RECTO_EMBEDDER": "local", "RECTO_STORE": "server"}


@click.command()
@click.argument("collection", required=False)
@options.as_json
def collections(collection: str | None, as_json: bool) -> Exit:
    """List the collections, with their aliases and what they contain.

    With COLLECTION, list the generations of one collection.
    """
    store = open_configured_store(load_settings())
    if collection is not None:
        return _list_generations(store, collection, as_json=as_json)
    aliases = store.aliases()
    rows = [_row(store, name, aliases) for name in store.collections()]
    if as_json:
        echo_json(rows)
        return Exit.OK
    for row in rows:
        also = f" (also {', '.join(row['aliases'])})" if row["aliases"] else ""
        echo(f"{row['collection']}{also}", f"    {_row_text(row)}")
        for warning in row.get("warnings", ()):
            warn(warning)
    if not rows:
        echo("There are no collections. Run `recto index PATH`, or `recto index --sample`.")
    return Exit.OK


@click.command()
@click.argument("collection")
@options.value_option("--to", "GENERATION", "Restore this generation.", "the previous one", name="generation")
def rollback(collection: str, generation: str | None) -> Exit:
    """Restore the previous index of COLLECTION, or another generation that is kept."""
    info = _rollback_store().rollback(collection, generation)
    echo(f"Restored {info.generation} of '{info.collection}': {plural(info.chunks, 'chunk')}.")
    return Exit.OK


@click.command()
@click.argument("collection")
@click.option("--yes", is_flag=True, help="Delete without confirmation.")
def delete(collection: str, yes: bool) -> Exit:
    """Delete COLLECTION with all its generations and aliases."""
    from recto.evaluation.records import remove_reports
    from recto.indexing.journal import journal_path

    settings = load_settings()
    store = open_configured_store(settings)
    if not isinstance(store, Deletable):
        raise InvalidArgument(f"The store '{settings.store}' cannot delete collections", hint=_BY_HAND)
    chunks = plural(store.open(collection).info.chunks, "chunk")
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise InvalidOption("There is no terminal to confirm the deletion", hint="Pass --yes.")
        if not click.confirm(f"Delete '{escape_controls(collection)}' with {chunks}?", err=True):
            echo("Nothing was deleted.")
            return Exit.OK
    store.delete(collection)
    journal_path(settings.home / "journal", collection).unlink(missing_ok=True)
    remove_reports(settings.home, collection)
    echo(f"Deleted '{collection}' with {chunks}.")
    return Exit.OK


@click.command()
@options.collection
@click.option("--to", metavar="NAME", show_default="the same", help="Name of the collection on the server.")
@options.as_json
def promote(collection: str | None, to: str | None, as_json: bool) -> Exit:
    """Copy an embedded index to the Qdrant server at QDRANT_URL, and compare the results of both."""
    from recto.indexing.promotion import promote as copy

    settings = _server_settings()
    embedded = open_configured_store(replace(settings, store="edge"))
    name = collection or default_collection(settings, embedded)
    target = to or name
    source = embedded.open(name)
    done = copy(
        source,
        open_configured_store(settings),
        target,
        lambda now, total: notify(f"Copied {now} of {plural(total, 'chunk')}"),
    )
    summary = {
        "collection": target,
        "physical": done.info.generation,
        "chunks": done.info.chunks,
        "searches_compared": done.compared,
    }
    searches = plural(done.compared, "search", "searches")
    copied = f"Copied {plural(done.info.chunks, 'chunk')} to '{target}'"
    sentence = f"{copied}; compared with {searches}: the results are the same on both sides."
    if as_json:
        echo_json(summary)
    else:
        echo(sentence)
    return Exit.OK


@click.command()
@options.suite
@options.collection
@options.top_k
@options.as_json
def parity(suite: Path | None, collection: str | None, top_k: int, as_json: bool) -> Exit:
    """Compare the results of the embedded index and of the Qdrant server at QDRANT_URL.

    Exits with 5 if there are differences.
    """
    from recto.api import open_embedder
    from recto.evaluation.baseline import compare_indexes
    from recto.evaluation.suites import documented_suite, load_suite
    from recto.search.retriever import query_embedder

    questions = load_suite(suite) if suite else documented_suite()
    settings = _server_settings()
    embedder = open_embedder(settings, notify)
    close_later(embedder)
    embedded = open_configured_store(replace(settings, store="edge"))
    name = collection or default_collection(settings, embedded)
    left = embedded.open(name)
    right = open_configured_store(settings).open(name)
    embedder, other = (query_embedder(index, embedder) for index in (left, right))
    if other.fingerprint.model != embedder.fingerprint.model:
        raise FingerprintMismatch(
            f"The embedded index was made with {embedder.fingerprint.model}, "
            f"but the one on the server with {other.fingerprint.model}",
            hint=f"Run `recto promote {name}`.",
        )
    differences = compare_indexes(embedder, left, right, questions, top_k)
    total = len(questions.expectations)
    rows = [
        {"mode": mode, "query": query, "difference": what}
        for mode, found in differences.items()
        for query, what in found
    ]
    if as_json:
        echo_json({"queries": total, "modes": list(differences), "differences": rows})
    else:
        for row in rows:
            echo(f'{row["mode"]}: "{row["query"]}": {row["difference"]}')
        for mode, found in differences.items():
            same = total - len(found)
            echo(f"{mode}: the same top {top_k} on both sides for {same} of {plural(total, 'question')}.")
    if len(differences) < len(MODES):
        notify("Only the dense mode was compared, because one side has no lexical vectors.")
    return Exit.VALIDATION_FAILED if rows else Exit.OK


@click.command()
@click.argument("collection", required=False)
def prepare(collection: str | None) -> Exit:
    """Create payload indexes and replicas on the Qdrant server at QDRANT_URL.

    Filters need the indexes. QDRANT_REPLICATION and QDRANT_WRITE_CONSISTENCY say how many nodes may fail.
    """
    settings = _server_settings()
    store = open_configured_store(settings)
    if not isinstance(store, Preparable):
        raise InvalidArgument("This store has no payload indexes", hint="Filters work without them.")
    name = collection or default_collection(settings, store)
    done = store.prepare(name)
    text = "; ".join(done) or "nothing had to be changed"
    echo(f"{text[0].upper()}{text[1:]}.")
    echo(store.redundancy(name))
    return Exit.OK


def _list_generations(store: Store, collection: str, *, as_json: bool) -> Exit:
    if not isinstance(store, Rollback):
        raise _no_generations()
    found = store.generations(collection)
    if as_json:
        echo_json([asdict(one) for one in found])
        return Exit.OK
    for one in found:
        made = one.problem or f"{plural(one.chunks, 'chunk')}, {one.created_at}"
        size = "" if one.bytes is None else f", {megabytes(one.bytes)}"
        echo(f"{one.name}{' (current)' if one.current else ''}", f"    {made}{size}")
    return Exit.OK


def _rollback_store() -> Rollback:
    store = open_configured_store(load_settings())
    if not isinstance(store, Rollback):
        raise _no_generations()
    return store


def _no_generations() -> InvalidArgument:
    return InvalidArgument("This store keeps no earlier generations", hint="Index the book again.")


def megabytes(size: int) -> str:
    """Return a number of bytes for people."""
    return f"{size / 1e6:.1f} MB"


def open_configured_store(settings: Settings) -> Store:
    """Open the configured store until the command ends."""
    from recto.api import open_store

    store = open_store(settings, notify, close_at_exit=True)
    close_later(store)
    return store


def _server_settings() -> Settings:
    """Return settings for a server and the local model, which need no Cohere key."""
    return load_settings({**os.environ, **_LOCAL_MODEL})


def _row(store: Store, name: str, aliases: Mapping[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "collection": name,
        "aliases": sorted(alias for alias, target in aliases.items() if target == name),
    }
    try:
        info = store.open(name).info
    except RectoError as error:
        return row | {"error": f"{error}. {error.hint}" if error.hint else str(error)}
    row |= {"generation": info.generation, "chunks": info.chunks}
    if info.warnings:
        row["warnings"] = list(info.warnings)
    if made := info.fingerprint:
        if message := other_analyzer(info):
            row["warnings"] = [*info.warnings, message]
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
    chunks = plural(row["chunks"], "chunk")
    if "model" not in row:
        return f"{chunks}; made by another pipeline, so its model cannot be verified"
    return f"{chunks} of {plural(row['pages'], 'page')}, {row['model']}, {row['created_at']}"

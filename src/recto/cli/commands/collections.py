"""List and maintain collections: generations, backups, and copies on a Qdrant server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from recto._util.text import escape_controls, plural
from recto.cli import Exit, close_later, confirm_endpoint, echo, emit, notify, options, progress_bar, warn
from recto.errors import FingerprintMismatch, InvalidArgument, RectoError
from recto.indexing import default_collection
from recto.protocols import Store, store_abilities
from recto.search.lexical import other_analyzer
from recto.settings import Settings, load_settings
from recto.types.index import GenerationInfo
from recto.types.search import MODES

_NO_GENERATIONS = "This store keeps no earlier generations"
_LOCAL_MODEL = {"RECTO_EMBEDDER": "local", "RECTO_STORE": "server"}


def open_configured_store(settings: Settings) -> Store:
    """Open the configured store until the command ends."""
    from recto.api import open_store

    store = open_store(settings, notify, close_at_exit=True)
    close_later(store)
    return store


def megabytes(size: int) -> str:
    """Return a number of bytes for people."""
    return f"{size / 1e6:.1f} MB"


@click.command()
@click.argument("collection", required=False)
@options.as_json
def collections(collection: str | None, as_json: bool) -> Exit:
    """List the collections, with their aliases and what they contain.

    With COLLECTION, list the generations of one collection.
    """
    store = open_configured_store(load_settings())
    if collection is not None:
        read_generations = store_abilities(store).generations
        if read_generations is None:
            raise InvalidArgument(_NO_GENERATIONS, hint="Index the book again.")
        generations = read_generations(collection)
        lines = [line for generation in generations for line in _generation_lines(generation)]
        emit([generation._asdict() for generation in generations], lines, as_json=as_json)
        return Exit.OK
    aliases = store.aliases()
    rows = [_row(store, name, aliases) for name in store.collections()]
    empty = ["There are no collections. Run `recto index PATH`, or `recto index --sample`."]
    emit(rows, [line for row in rows for line in _row_lines(row)] or empty, as_json=as_json)
    for row in () if as_json else rows:
        for warning in row.get("warnings", ()):
            warn(warning)
    return Exit.OK


def _generation_lines(generation: GenerationInfo) -> Iterator[str]:
    content = generation.problem or f"{plural(generation.chunks, 'chunk')}, {generation.created_at}"
    size = "" if generation.bytes is None else f", {megabytes(generation.bytes)}"
    yield f"{generation.name}{' (current)' if generation.current else ''}"
    yield f"    {content}{size}"


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
    if fingerprint := info.fingerprint:
        if message := other_analyzer(info):
            row["warnings"] = [*info.warnings, message]
        row |= {
            "pages": fingerprint.pages,
            "model": fingerprint.embedder.model,
            "created_at": fingerprint.created_at,
            "source": fingerprint.source,
        }
    return row


def _row_lines(row: dict[str, Any]) -> Iterator[str]:
    yield row["collection"] + (f" (also {', '.join(row['aliases'])})" if row["aliases"] else "")
    if "error" in row:
        yield f"    {row['error']}"
        return
    chunks = plural(row["chunks"], "chunk")
    if "model" in row:
        yield f"    {chunks} of {plural(row['pages'], 'page')}, {row['model']}, {row['created_at']}"
    else:
        yield f"    {chunks}; made by another pipeline, so its model cannot be verified"


@click.command()
@click.argument("collection")
@options.value_option("--to", "GENERATION", "Restore this generation.", "the previous one", name="generation")
def rollback(collection: str, generation: str | None) -> Exit:
    """Restore the previous index of COLLECTION, or another generation that is kept."""
    restore_generation = store_abilities(open_configured_store(load_settings())).rollback
    if restore_generation is None:
        raise InvalidArgument(_NO_GENERATIONS, hint="Index the book again.")
    info = restore_generation(collection, generation)
    echo(f"Restored {info.generation} of '{info.collection}': {plural(info.chunks, 'chunk')}.")
    return Exit.OK


@click.command()
@click.argument("collection")
@click.option("--yes", is_flag=True, help="Delete without confirmation.")
def delete(collection: str, yes: bool) -> Exit:
    """Delete COLLECTION with all its generations and aliases."""
    from recto.evaluation.report import remove_reports
    from recto.indexing.journal import journal_path

    settings = load_settings()
    store = open_configured_store(settings)
    delete_collection = store_abilities(store).delete
    if delete_collection is None:
        hint = "Delete it with the tools of the store."
        raise InvalidArgument(f"The store '{settings.store}' cannot delete collections", hint=hint)
    chunks = plural(store.open(collection).info.chunks, "chunk")
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise InvalidArgument("There is no terminal to confirm the deletion", hint="Pass --yes.")
        if not click.confirm(f"Delete '{escape_controls(collection)}' with {chunks}?", err=True):
            echo("Nothing was deleted.")
            return Exit.OK
    delete_collection(collection)
    journal_path(settings.home / "journal", collection).unlink(missing_ok=True)
    remove_reports(settings.home, collection)
    echo(f"Deleted '{collection}' with {chunks}.")
    return Exit.OK


@click.command()
@click.argument("collection", required=False)
@options.file_option("--output", "Write to this file.", required=True)
@options.as_json
def backup(collection: str | None, output: Path, as_json: bool) -> Exit:
    """Write the embedded index of COLLECTION into one file, for `recto restore` here or elsewhere."""
    settings = load_settings()
    store = open_configured_store(settings)
    name = collection or default_collection(settings, store)
    write_backup = store_abilities(store).backup
    if write_backup is None:
        raise _no_backups()
    with progress_bar("Writing the backup") as progress:
        written = write_backup(name, output, progress)
    summary = {"collection": name, "generation": written.name, "chunks": written.chunks}
    chunks, size = plural(written.chunks, "chunk"), megabytes(written.bytes or 0)
    line = f"Wrote {written.name} of '{name}' to {output}: {chunks}, {size}."
    emit(summary | {"bytes": written.bytes, "file": str(output)}, [line], as_json=as_json)
    return Exit.OK


@click.command()
@options.file_argument("file")
@options.collection_option("Restore as NAME.", "the name that was backed up")
@click.option("--replace", is_flag=True, help="Replace the index of a collection that exists.")
@options.as_json
def restore(file: Path, collection: str | None, replace: bool, as_json: bool) -> Exit:
    """Restore a collection from FILE, which `recto backup` wrote."""
    read_backup = store_abilities(open_configured_store(load_settings())).restore
    if read_backup is None:
        raise _no_backups()
    with progress_bar("Reading the backup") as progress:
        info = read_backup(file, collection, replace=replace, progress=progress, wait=notify)
    summary = {"collection": info.collection, "generation": info.generation, "chunks": info.chunks}
    chunks = plural(info.chunks, "chunk")
    line = f"Restored '{info.collection}' from {file} as {info.generation}: {chunks}."
    emit(summary | {"file": str(file)}, [line], as_json=as_json)
    return Exit.OK


def _no_backups() -> InvalidArgument:
    return InvalidArgument(
        "This store has no backups",
        hint="Use the tools of the store, such as the snapshots of Qdrant: see docs/how-to/backup.md.",
    )


def _server_settings() -> Settings:
    """Return settings for a server and the local model, which need no Cohere key."""
    return load_settings({**os.environ, **_LOCAL_MODEL})


@click.command()
@options.collection
@options.collection_option("Name of the collection on the server.", "the same", "--to")
@options.as_json
def promote(collection: str | None, to: str | None, as_json: bool) -> Exit:
    """Copy an embedded index to the Qdrant server at QDRANT_URL, and compare the results of both."""
    from recto.indexing.promotion import promote as copy

    settings = _server_settings()
    embedded = open_configured_store(replace(settings, store="edge"))
    name = collection or default_collection(settings, embedded)
    target = to or name
    source = embedded.open(name)
    with progress_bar("Copying chunks") as progress:
        done = copy(source, open_configured_store(settings), target, progress)
    summary = {
        "collection": target,
        "physical": done.info.generation,
        "chunks": done.info.chunks,
        "searches_compared": done.compared,
    }
    copied = f"Copied {plural(done.info.chunks, 'chunk')} to '{target}'"
    searches = plural(done.compared, "search", "searches")
    line = f"{copied}; compared with {searches}: the results are the same on both sides."
    emit(summary, [line], as_json=as_json)
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
    embedded = open_configured_store(replace(settings, store="edge"))
    name = collection or default_collection(settings, embedded)
    confirm_endpoint(settings)
    embedder = open_embedder(settings, notify)
    close_later(embedder)
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
        {"mode": mode, "query": query, "difference": difference}
        for mode, queries in differences.items()
        for query, difference in queries
    ]
    lines = [f'{row["mode"]}: "{row["query"]}": {row["difference"]}' for row in rows]
    for mode, queries in differences.items():
        same = f"{total - len(queries)} of {plural(total, 'question')}"
        lines.append(f"{mode}: the same top {top_k} on both sides for {same}.")
    emit({"queries": total, "modes": list(differences), "differences": rows}, lines, as_json=as_json)
    if len(differences) < len(MODES):
        notify("Only the dense mode was compared, because one side has no lexical vectors.")
    return Exit.VALIDATION_FAILED if rows else Exit.OK


@click.command()
@click.argument("collection", required=False)
def prepare(collection: str | None) -> Exit:
    """Create the payload indexes that filters need on the Qdrant server at QDRANT_URL."""
    settings = _server_settings()
    store = open_configured_store(settings)
    create_indexes = store_abilities(store).prepare
    if create_indexes is None:
        raise InvalidArgument("This store has no payload indexes", hint="Filters work without them.")
    fields = create_indexes(collection or default_collection(settings, store))
    echo(f"Created payload indexes on {', '.join(fields)}." if fields else "Nothing had to be changed.")
    return Exit.OK

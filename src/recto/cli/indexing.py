"""The commands that write: index a book, list collections, roll back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from recto.cli.running import Exit, tell, warn
from recto.errors import InvalidArgument, RectoError
from recto.indexer import IndexProgress, IndexReport, index_book
from recto.protocols import Source, Store
from recto.settings import DEFAULT_COLLECTIONS, QUERY_COLLECTION, SAMPLE_COLLECTION, Settings, check_collection_name, load_settings
from recto.wiring import open_embedder, open_store, sample_source


def index(path: Path | None, collection: str | None, *, sample: bool, rebuild: bool, as_json: bool) -> Exit:
    """Index a book and say what was indexed."""
    if sample == (path is not None):
        raise InvalidArgument("Give either the PATH of a book or --sample", hint="Try `recto index ./docs`.")
    settings = load_settings()
    name = _target(settings, collection, sample=sample)
    source = _source(path)
    store = open_store(settings, tell)
    began = perf_counter()
    with _progress() as progress:
        report = index_book(
            source,
            open_embedder(settings, tell),
            store,
            name,
            journal=settings.home / "journal",
            rebuild=rebuild,
            progress=progress,
        )
    if sample:
        known = store.aliases()  # names that lead to a book of the user's own stay
        store.point([alias for alias in DEFAULT_COLLECTIONS if known.get(alias, name) == name], name)
    elif collection is None and settings.collection is None:
        # The book without a name of its own is the one that every surface's default name means.
        store.point(DEFAULT_COLLECTIONS, name)
    for failure in report.failed:
        warn(f"Left out {failure}")
    seconds = perf_counter() - began
    click.echo(_report_json(report, seconds) if as_json else _report_text(report, seconds))
    return Exit.NO_RESULTS if report.failed else Exit.OK


def collections(*, as_json: bool) -> Exit:
    """List the collections with what is in them."""
    store = open_store(load_settings(), tell)
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
        click.echo("Nothing is indexed yet. `recto index PATH` indexes a book, `recto index --sample` the sample book.")
    return Exit.OK


def _row(store: Store, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"collection": name, "aliases": sorted(alias for alias, target in store.aliases().items() if target == name)}
    try:
        info = store.open(name).info
    except RectoError as error:
        return row | {"error": str(error)}
    row |= {"generation": info.generation, "chunks": info.chunks}
    if info.warnings:
        row["warnings"] = list(info.warnings)
    if made := info.fingerprint:
        row |= {"pages": made.pages, "model": made.embedder.model, "created_at": made.created_at, "source": made.source}
    return row


def _row_text(row: dict[str, Any]) -> str:
    if "error" in row:
        return str(row["error"])
    if "model" not in row:
        return f"{_counted(row['chunks'], 'chunk')}; made by another pipeline, so its model cannot be verified"
    pages, chunks = _counted(row["pages"], "page"), _counted(row["chunks"], "chunk")
    return f"{chunks} of {pages}, {row['model']}, {row['created_at']}"


def rollback(collection: str) -> Exit:
    """Go back one generation."""
    from recto.stores.edge.store import EdgeStore

    store = open_store(load_settings(), tell)
    if not isinstance(store, EdgeStore):
        raise InvalidArgument("Only an embedded index can be rolled back", hint="Index the book again instead.")
    info = store.rollback(collection)
    click.echo(f"Collection '{info.collection}' answers from {info.generation} again: {info.chunks} chunks.")
    return Exit.OK


def _target(settings: Settings, collection: str | None, *, sample: bool) -> str:
    if sample:
        if collection is not None:
            raise InvalidArgument("--sample has a collection of its own", hint="Leave out --collection.")
        return SAMPLE_COLLECTION
    if collection is not None:
        check_collection_name(collection, "--collection")
    return collection or settings.collection_or(QUERY_COLLECTION)


def _source(path: Path | None) -> Source:
    if path is None:
        return sample_source()
    from recto.book.tree import MarkdownTree

    return MarkdownTree(path)


@contextmanager
def _progress() -> Iterator[Callable[[IndexProgress], None] | None]:
    """Show a bar on a terminal and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("passages"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading the book", total=None)

        def update(now: IndexProgress) -> None:
            bar.update(task, description=f"Indexing {now.pages} pages", total=now.chunks, completed=now.done)

        yield update


def _report_text(report: IndexReport, seconds: float) -> str:
    modules = ", ".join(f"{name} {count}" for name, count in report.modules.items())
    return (
        f"Indexed {_counted(report.pages, 'page')} as {_counted(report.info.chunks, 'chunk')} into '{report.info.collection}' "
        f"({report.info.generation}) in {seconds:.1f}s\n  Chunks per module: {modules}"
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _report_json(report: IndexReport, seconds: float) -> str:
    data = {
        "collection": report.info.collection,
        "generation": report.info.generation,
        "pages": report.pages,
        "chunks": report.info.chunks,
        "modules": report.modules,
        "failed": [str(failure) for failure in report.failed],
        "duration_s": round(seconds, 3),
        "fingerprint": report.info.fingerprint.to_dict() if report.info.fingerprint else None,
    }
    return json.dumps(data, indent=2)

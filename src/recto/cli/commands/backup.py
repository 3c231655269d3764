"""`recto backup`, `recto restore` and `recto upgrade`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from recto._util.text import plural
from recto.cli import options
from recto.cli.commands.collections import megabytes, open_configured_store
from recto.cli.output import echo, echo_json
from recto.cli.runner import Exit, notify, warn
from recto.errors import FormatMismatch, InvalidArgument
from recto.protocols import Archivable, Progress, Store, Verifiable
from recto.search.lexical import other_analyzer
from recto.settings import QUERY_COLLECTION, check_collection_name, load_settings


@click.command()
@click.argument("collection", required=False)
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", required=True, help="Write to this file."
)
@options.as_json
def backup(collection: str | None, output: Path, as_json: bool) -> Exit:
    """Write COLLECTION into one file, for `recto restore` on this machine or another one.

    Searching can go on meanwhile, and indexing too, except while a server makes its snapshot.
    """
    settings = load_settings()
    name = collection or settings.collection_or(QUERY_COLLECTION)
    made = _archivable(open_configured_store(settings)).backup(name, output, _quarters("Written"))
    if as_json:
        summary = {"collection": name, "generation": made.name, "chunks": made.chunks, "bytes": made.bytes}
        echo_json({**summary, "file": str(output)})
    else:
        chunks, size = plural(made.chunks, "chunk"), megabytes(made.bytes or 0)
        echo(f"Wrote {made.name} of '{name}' to {output}: {chunks}, {size}.")
    return Exit.OK


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--collection", metavar="NAME", show_default="the name that was backed up", help="Restore as NAME."
)
@click.option("--replace", is_flag=True, help="Replace the index of a collection that exists.")
@options.as_json
def restore(file: Path, collection: str | None, replace: bool, as_json: bool) -> Exit:
    """Restore a collection from FILE, which `recto backup` wrote."""
    if collection is not None:
        check_collection_name(collection, "--collection")
    store = _archivable(open_configured_store(load_settings()))
    info = store.restore(file, collection, replace=replace, progress=_quarters("Read"), wait=notify)
    if as_json:
        names = {"collection": info.collection, "generation": info.generation, "chunks": info.chunks}
        echo_json({**names, "file": str(file)})
    else:
        chunks = plural(info.chunks, "chunk")
        echo(f"Restored '{info.collection}' from {file} as {info.generation}: {chunks}.")
    return Exit.OK


@click.command()
@click.argument("collection", required=False)
@options.as_json
def upgrade(collection: str | None, as_json: bool) -> Exit:
    """Upgrade the index of COLLECTION, or all indexes, to the format of this version.

    Exits with 2 if a book must be indexed again.
    """
    store = open_configured_store(load_settings())
    rows = [_upgrade(store, name) for name in ([collection] if collection else store.collections())]
    if as_json:
        echo_json(rows)
    else:
        for row in rows:
            if row["status"] == "index again":
                warn(f"{row['message']}")
            else:
                echo(f"{row['collection']}: {row['message']}")
        if not rows:
            echo("There are no collections.")
    return Exit.CONFIGURATION if any(row["status"] == "index again" for row in rows) else Exit.OK


def _upgrade(store: Store, name: str) -> dict[str, Any]:
    """Upgrade a collection, and return what was done or is left to do."""
    try:
        upgraded = store.upgrade(name) if isinstance(store, Verifiable) else None
        info = store.open(name).info
    except FormatMismatch as error:
        return {"collection": name, "status": "index again", "message": f"{error.message}. {error.hint}"}
    if message := other_analyzer(info):
        return {"collection": name, "status": "index again", "message": message}
    if upgraded is not None:
        return {"collection": name, "status": "upgraded", "message": f"upgraded as {upgraded.generation}"}
    return {"collection": name, "status": "current", "message": "up to date"}


def _archivable(store: Store) -> Archivable:
    if not isinstance(store, Archivable):
        raise InvalidArgument("This store has no backups", hint="Use the tools of the store.")
    return store


def _quarters(verb: str) -> Progress:
    """Return a function that reports every quarter of a large file."""
    reported = 0

    def progress(done: int, total: int) -> None:
        nonlocal reported
        quarter = 4 * done // max(total, 1)
        if quarter > reported and total >= _LARGE:
            notify(f"{verb} {megabytes(done)} of {megabytes(total)}")
        reported = max(reported, quarter)

    return progress


_LARGE = 64 << 20  # bytes; less is copied at once

"""The commands for a Qdrant server: copy an index there, compare both sides, create the indexes that filters need."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import click

from recto.api import open_embedder, open_store
from recto.cli.runner import Exit, notify
from recto.errors import InvalidArgument
from recto.evaluation.suites import documented_suite, load_suite
from recto.protocols import Preparable, Store
from recto.search.retriever import check_fingerprint
from recto.settings import QUERY_COLLECTION, Settings, load_settings
from recto.types import MODES

_LOCAL_MODEL = {"RECTO_EMBEDDER": "local", "RECTO_STORE": "server"}


def promote(collection: str | None, to: str | None, *, as_json: bool) -> Exit:
    """Copy an embedded index to the server."""
    from recto.indexing.promotion import promote as copy

    settings = _settings()
    name = collection or settings.collection_or(QUERY_COLLECTION)
    source = _embedded(settings).open(name)
    done = copy(
        source,
        open_store(settings, notify),
        to or name,
        lambda now, total: notify(f"Copied {now} of {total} chunks"),
    )
    for note in done.notes:
        notify(f"[WARNING] {note} `recto parity` lists the differences.")
    summary = {
        "collection": to or name,
        "physical": done.info.generation,
        "chunks": done.info.chunks,
        "searches_compared": done.compared,
    }
    searches = f"{done.compared} {'dense ' if done.notes else ''}searches"
    sentence = (
        f"Copied {done.info.chunks} chunks to '{to or name}'; {searches} give the same results on both sides."
    )
    click.echo(json.dumps(summary, indent=2) if as_json else sentence)
    return Exit.OK


def parity(suite_file: Path | None, collection: str | None, top_k: int, *, as_json: bool) -> Exit:
    """Compare the embedded index with the server's, question by question."""
    from recto.evaluation.baseline import compare_indexes

    suite = load_suite(suite_file) if suite_file else documented_suite()
    settings = _settings()
    name = collection or settings.collection_or(QUERY_COLLECTION)
    embedder = open_embedder(settings, notify)
    left, right = _embedded(settings).open(name), open_store(settings, notify).open(name)
    for index in (left, right):
        check_fingerprint(index, embedder)
    differences = compare_indexes(embedder, left, right, suite, top_k)
    total = len(suite.expectations)
    if as_json:
        rows = [
            {"mode": mode, "query": query, "difference": what}
            for mode, found in differences.items()
            for query, what in found
        ]
        click.echo(
            json.dumps(
                {"queries": total, "modes": list(differences), "differences": rows},
                indent=2,
                ensure_ascii=False,
            )
        )
    else:
        for mode, found in differences.items():
            for query, what in found:
                click.echo(f'{mode}: "{query}": {what}')
        for mode, found in differences.items():
            click.echo(
                f"{mode}: {total - len(found)} of {total} questions have the same top {top_k} on both sides."
            )
    if len(differences) < len(MODES):
        notify("Only the dense mode was compared, because one side has no lexical vectors.")
    return Exit.VALIDATION_FAILED if any(differences.values()) else Exit.OK


def prepare(collection: str | None) -> Exit:
    """Create missing payload indexes on a server's collection."""
    settings = _settings()
    store = open_store(settings, notify)
    if not isinstance(store, Preparable):
        raise InvalidArgument("This store needs no payload indexes", hint="There is nothing to do.")
    fields = store.prepare(collection or settings.collection_or(QUERY_COLLECTION))
    click.echo(
        f"Created payload indexes: {', '.join(fields)}." if fields else "All payload indexes are there."
    )
    return Exit.OK


def _settings() -> Settings:
    """These commands need a server and no Cohere key."""
    return load_settings({**os.environ, **_LOCAL_MODEL})


def _embedded(settings: Settings) -> Store:
    return open_store(replace(settings, store="edge"), notify)

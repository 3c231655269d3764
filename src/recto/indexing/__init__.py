"""Index a book: plan, embed, build, verify and publish; here, the collection of a book and its options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from recto._util.text import collection_slug
from recto.book.sources import SourceOptions, open_source
from recto.errors import CollectionMissing, ConfigurationError, InvalidArgument, RectoError
from recto.plugins import Notify
from recto.protocols import Source, Store
from recto.settings import SAMPLE_COLLECTION, Settings, option_flags


def default_collection(settings: Settings, store: Store) -> str:
    """Return COLLECTION_NAME, else the only collection besides the sample book, else the sample book."""
    if settings.collection is not None:
        return settings.collection
    collections = store.collections()
    books = [name for name in collections if name != SAMPLE_COLLECTION]
    if len(books) > 1:
        raise ConfigurationError(
            f"There are {len(books)} collections: {', '.join(books)}",
            hint="Name one of them, for example with --collection, or set COLLECTION_NAME.",
        )
    if not collections and not store.is_local:
        raise CollectionMissing(
            "There is no collection yet",
            hint="Index a book with `recto index PATH`, or the sample book with `recto index --sample`.",
        )
    return books[0] if books else SAMPLE_COLLECTION


def collection_for(source: Source, store: Store) -> str:
    """Return the collection of a book that is indexed without a name: a slug of the book's own name.

    Raise an error if it has another book, which would be replaced. A path that does not exist here is no
    other book: the book was moved, or indexed on another machine.
    """
    name = collection_slug(source.book) or "book"
    try:
        indexed = store.open(name).info.fingerprint
    except RectoError:  # it is missing, or the run repairs it
        return name
    moved = indexed is not None and indexed.book == source.book and not Path(indexed.source).exists()
    if indexed is None or (indexed.source != source.location and not moved):
        raise InvalidArgument(
            f"Collection '{name}' already has another book{f': {indexed.source}' if indexed else ''}",
            hint="Choose another name, for example with --collection.",
        )
    return name


def indexed_collection(source: Source, settings: Settings, store: Store) -> str | None:
    """Return the collection that has this book, under its own name if possible; None if it is not indexed."""
    own = settings.collection or collection_slug(source.book)
    for name in dict.fromkeys((*([own] if own else []), *store.collections())):
        with suppress(RectoError):  # it is missing or damaged
            indexed = store.open(name).info.fingerprint
            if indexed is not None and indexed.source == source.location:
                return name
    return None


def open_as_indexed(
    location: str,
    options: SourceOptions,
    cache: Path | None,
    notify: Notify,
    settings: Settings,
    store: Store,
    find_collection: Callable[[Source], str | None],
) -> Source:
    """Open a book; options that are not stated are the same as when it was indexed last."""
    source, recorded = open_source(location, options, cache, notify, settings), None
    with suppress(RectoError):  # there is no index, or the run repairs it
        if collection := find_collection(source):
            recorded = store.open(collection).info.fingerprint
    if recorded is None or recorded.source != source.location:
        return source
    again = options.repeating(recorded.options)
    if again == options:
        return source
    flags = option_flags([pair for pair in again.stated if pair not in options.stated])
    notify(f"Options of the last run: {' '.join(flags)}")
    return open_source(location, again, cache, notify, settings)

"""Index a book: plan, embed, build, verify and publish; here, the names of collections."""

from __future__ import annotations

from pathlib import Path

from recto._util.text import collection_slug
from recto.errors import CollectionMissing, ConfigurationError, InvalidArgument, RectoError
from recto.protocols import Source, Store
from recto.settings import SAMPLE_COLLECTION, Settings


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

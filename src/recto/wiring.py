"""Choose and connect the parts that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from recto.errors import CollectionMissing, ConfigurationError
from recto.protocols import Embedder, Source, Store
from recto.retriever import Retriever
from recto.settings import BUILT_IN_MODEL, DEFAULT_COLLECTIONS, Settings

SAMPLE_COLLECTION = "recto-sample"

Tell = Callable[[str], None]
"""Shows a person one line of what is going on."""


def open_embedder(settings: Settings) -> Embedder:
    """Make the embedder that the settings name; light, the model is loaded when it is needed."""
    if settings.embedder == "cohere":
        raise _not_in_this_version("Cohere", "RECTO_EMBEDDER=local")
    if settings.model in (BUILT_IN_MODEL, f"ibm-granite/{BUILT_IN_MODEL}"):
        from recto.embedders.granite import granite_embedder

        return granite_embedder(settings.home, settings.threads)
    directory = Path(settings.model).expanduser()
    if directory.is_dir():
        from recto.embedders.directory import directory_embedder

        return directory_embedder(directory, settings.home, settings.threads)
    from recto.embedders.hub import HubEmbedder

    return HubEmbedder(settings.model, settings.threads)


def open_store(settings: Settings) -> Store:
    """Make the store that the settings name; light, nothing is opened yet."""
    if settings.store == "server":
        raise _not_in_this_version("a Qdrant server", "RECTO_STORE=edge")
    from recto.stores.edge.store import EdgeStore

    return EdgeStore(settings.home)


def open_retriever(settings: Settings, default_collection: str, tell: Tell, *, collection: str | None = None) -> Retriever:
    """Connect embedder and store for one collection, and check that it can be searched.

    On the very first run, when nothing is indexed and one of the default names is asked for, the sample book is indexed.
    """
    embedder, store = open_embedder(settings), open_store(settings)
    retriever = Retriever(embedder, store, collection or settings.collection_or(default_collection))
    try:
        retriever.open()
    except CollectionMissing:
        if settings.store != "edge" or retriever.collection not in DEFAULT_COLLECTIONS or set(store.collections()) - {SAMPLE_COLLECTION}:
            raise
        _first_run(settings.home, retriever, embedder, store, tell)
    return retriever


def _first_run(home: Path, retriever: Retriever, embedder: Embedder, store: Store, tell: Tell) -> None:
    """Index the sample book once; whoever comes second waits for the first."""
    from recto.stores.edge.layout import disk_errors
    from recto.stores.lock import WriterLock

    with disk_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        with WriterLock(home / "first-run.lock", "The sample book", wait=tell):
            if SAMPLE_COLLECTION not in store.collections():
                tell("First run: indexing the sample book, once.")
                index_sample(embedder, store, tell)
            store.point(DEFAULT_COLLECTIONS, SAMPLE_COLLECTION)
            retriever.open()


def index_sample(embedder: Embedder, store: Store, tell: Tell) -> None:
    """Index the sample book and tell of every quarter of it."""
    from recto.indexer import IndexProgress, index_book

    told = 0

    def progress(now: IndexProgress) -> None:
        nonlocal told
        quarter = 4 * now.done // now.chunks
        if quarter > told:
            told = quarter
            tell(f"Indexing the sample book: {now.done} of {now.chunks} passages")

    index_book(sample_source(), embedder, store, SAMPLE_COLLECTION, progress=progress, wait=tell)


def sample_source() -> Source:
    """Return the sample book."""
    from recto.book.tree import MarkdownTree

    return MarkdownTree(Path(str(files("recto.sample").joinpath("docs"))), book=SAMPLE_COLLECTION)


def _not_in_this_version(what: str, instead: str) -> ConfigurationError:
    from recto import __version__

    return ConfigurationError(
        f"Recto {__version__} cannot use {what} yet", hint=f"Set {instead}, or RECTO_PROFILE=embedded, or wait for the next version."
    )

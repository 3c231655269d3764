"""Choose and connect the parts that the settings ask for."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recto.errors import CollectionMissing, ConfigurationError, InvalidArgument
from recto.protocols import Embedder, Source, Store
from recto.search.retriever import Retriever
from recto.settings import BUILT_IN_MODEL, DEFAULT_COLLECTIONS, SAMPLE_COLLECTION, Settings

if TYPE_CHECKING:
    from recto._util.retry import Notify


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a caller knows of a book that its own configuration may not tell, and how a website may be read; None is the default."""

    site_url: str | None = None
    route_base_path: str | None = None
    trailing_slash: bool | None = None
    version: str | None = None
    locale: str | None = None
    max_pages: int | None = None
    delay: float | None = None
    allow_private: bool = False

    def unused(self, *, website: bool) -> str:
        """Name the first flag that says nothing of this kind of book."""
        on_disk = ("site_url", "route_base_path", "trailing_slash", "version", "locale")
        for name in on_disk if website else ("max_pages", "delay", "allow_private"):
            if getattr(self, name) is not (False if name == "allow_private" else None):
                return f"--{name.replace('_', '-').replace('version', 'docs-version')}"
        return ""


def open_source(location: str, opening: SourceOptions, cache: Path | None, notify: Notify) -> Source:
    """Return the book at a path or an address; a website's pages are kept in `cache`, if it is given."""
    scheme, separator, _ = location.partition("://")
    website = bool(separator) and scheme.lower() in ("http", "https")
    if unused := opening.unused(website=website):
        raise InvalidArgument(
            f"{unused} is for {'books on disk' if website else 'websites'}",
            hint="Leave it out: it would change nothing here.",
        )
    if website:
        return _open_website(location, opening, cache, notify)
    if separator and not Path(location).exists():
        raise InvalidArgument(
            f"{scheme}:// is not read",
            hint="Give a directory, or an address that begins with http:// or https://.",
        )
    from recto.book.sources.options import SiteOptions
    from recto.book.sources.tree import open_book

    options = SiteOptions(
        opening.site_url or "",
        opening.route_base_path,
        opening.trailing_slash,
        opening.version or "",
        opening.locale or "",
    )
    return open_book(Path(location), options)


def _open_website(url: str, opening: SourceOptions, cache: Path | None, notify: Notify) -> Source:
    from hashlib import sha256

    from recto.book.sources.website.fetch import CrawlOptions
    from recto.book.sources.website.site import WebsiteSource

    usual = CrawlOptions()
    options = replace(
        usual,
        max_pages=usual.max_pages if opening.max_pages is None else opening.max_pages,
        delay=usual.delay if opening.delay is None else opening.delay,
        allow_private=opening.allow_private,
    )
    folder = cache / sha256(url.encode()).hexdigest()[:16] if cache else None
    return WebsiteSource(url, folder, options, notify)


def open_embedder(settings: Settings, notify: Notify, *, single_query: bool = False) -> Embedder:
    """Make the embedder that the settings name; light, the model is loaded when it is needed, in haste if it is for one question."""
    if settings.embedder == "cohere":
        from recto.embedders.cohere import PACES, CohereEmbedder

        return CohereEmbedder(
            settings.cohere_api_key,
            settings.model,
            settings.cohere_api_url,
            PACES[settings.cohere_pace],
            notify,
        )
    if settings.model in (BUILT_IN_MODEL, f"ibm-granite/{BUILT_IN_MODEL}"):
        from recto.embedders.granite.embedder import granite_embedder

        return granite_embedder(
            settings.home, settings.threads, settings.precision, single_query=single_query
        )
    if settings.precision == "int8":
        raise ConfigurationError(
            f"RECTO_PRECISION=int8 is for the built-in model, not for {settings.model}",
            hint="Unset one of the two.",
        )
    directory = Path(settings.model).expanduser()
    if directory.is_dir():
        from recto.embedders.directory import directory_embedder

        return directory_embedder(directory, settings.home, settings.threads)
    if settings.model.startswith((".", "~", "/")) or directory.is_absolute():
        raise ConfigurationError(
            f"RECTO_MODEL: there is no directory {settings.model}", hint="Unset it for the built-in model."
        )
    from recto.embedders.fastembed import HubEmbedder

    return HubEmbedder(settings.model, settings.threads)


def open_store(settings: Settings, notify: Notify, *, close_at_exit: bool = False) -> Store:
    """Make the store that the settings name; light, nothing is opened yet. The `last` is closed when its process ends."""
    if settings.store == "server":
        from recto.stores.qdrant.connection import Connection
        from recto.stores.qdrant.dialects import load_dialect
        from recto.stores.qdrant.store import ServerStore

        connection = Connection(settings.qdrant_url, settings.qdrant_api_key, notify)
        dialect = load_dialect(settings.dialect) if settings.dialect else None
        return ServerStore(connection, settings.home, settings.server, dialect)
    from recto.stores.edge.store import EdgeStore

    return EdgeStore(settings.home, close_at_exit=close_at_exit)


def open_retriever(
    settings: Settings,
    default_collection: str,
    notify: Notify,
    *,
    collection: str | None = None,
    single_query: bool = False,
    close_at_exit: bool = False,
) -> Retriever:
    """Connect embedder and store for one collection, and check that it can be searched.

    `once` is for a single question, `last` for a process that ends when it is closed.

    On the very first run, when nothing is indexed and one of the default names is asked for, the sample book is indexed.
    """
    embedder, store = (
        open_embedder(settings, notify, single_query=single_query),
        open_store(settings, notify, close_at_exit=close_at_exit),
    )
    with ExitStack() as undo:
        undo.callback(embedder.close)
        undo.callback(store.close)
        retriever = connect(
            settings, embedder, store, collection or settings.collection_or(default_collection), notify
        )
        undo.pop_all()
    return retriever


def connect(
    settings: Settings, embedder: Embedder, store: Store, collection: str, notify: Notify
) -> Retriever:
    """Make a retriever of parts that are there, and check that its collection can be searched; see `open_retriever`."""
    retriever = Retriever(embedder, store, collection)
    try:
        retriever.open()
    except CollectionMissing:
        if not is_first_run(settings, retriever.collection, store):
            raise
        _first_run(settings.home, retriever, embedder, store, notify)
    return retriever


def is_first_run(settings: Settings, collection: str, store: Store) -> bool:
    """Return whether nothing is indexed and a default collection is requested."""
    return (
        settings.store == "edge"
        and collection in DEFAULT_COLLECTIONS
        and not set(store.collections()) - {SAMPLE_COLLECTION}
    )


def _first_run(home: Path, retriever: Retriever, embedder: Embedder, store: Store, notify: Notify) -> None:
    """Index the sample book once; whoever comes second waits for the first."""
    from recto.stores.edge.layout import disk_errors
    from recto.stores.lock import WriterLock

    with disk_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        with WriterLock(home / "first-run.lock", "The sample book", wait=notify):
            if SAMPLE_COLLECTION not in store.collections():
                notify("First run: indexing the sample book, once.")
                index_sample(embedder, store, home / "journal", notify)
            store.set_aliases(DEFAULT_COLLECTIONS, SAMPLE_COLLECTION)
            retriever.open()


def index_sample(embedder: Embedder, store: Store, journal: Path, notify: Notify) -> None:
    """Index the sample book and tell of every quarter of it."""
    from recto.indexing.indexer import IndexJob, IndexProgress, index_book

    told = 0

    def progress(now: IndexProgress) -> None:
        nonlocal told
        quarter = 4 * now.done // now.chunks if now.plan else 0
        if quarter > told:
            told = quarter
            notify(f"Indexing the sample book: {now.done} of {now.chunks} passages")

    index_book(
        IndexJob(sample_source(), embedder),
        store,
        SAMPLE_COLLECTION,
        journal=journal,
        progress=progress,
        wait=notify,
    )


def sample_source() -> Source:
    """Return the sample book."""
    from recto.book.sources.tree import MarkdownTree

    return MarkdownTree(Path(__file__).parent / "sample" / "docs", book=SAMPLE_COLLECTION)

"""The public functions: connect to an index, index a book, evaluate an index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from recto import plugins
from recto._util.text import plural
from recto.book.sources import SourceOptions, open_source, sample_source
from recto.errors import CollectionMissing, InvalidArgument
from recto.indexing import collection_for, default_collection, open_as_indexed
from recto.plugins import Notify
from recto.protocols import Embedder, Source, Store
from recto.search.query import check_mode, check_top_k
from recto.search.retriever import Retriever, make_retriever
from recto.settings import SAMPLE_COLLECTION, Settings, check_collection_name, load_settings
from recto.types.index import IndexInfo
from recto.types.search import Mode

if TYPE_CHECKING:
    from recto.evaluation.runs import Run
    from recto.evaluation.suites import Suite
    from recto.indexing.indexer import IndexJob, IndexProgress, IndexReport, ProgressCallback
    from recto.indexing.planner import Plan

__all__ = [
    "SourceOptions",
    "aconnect",
    "aevaluate",
    "aindex",
    "connect",
    "evaluate",
    "index",
    "open_source",
    "sample_source",
]


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _log(message: str) -> None:
    import logging  # not at the top: it takes half as long as `import recto`

    logging.getLogger("recto").info(message)


def connect(collection: str | None = None, *, settings: Settings | None = None) -> Retriever:
    """Open a collection for searching.

    `collection` defaults to COLLECTION_NAME, else to the only collection, else to the sample book. `settings`
    defaults to the environment and `.env`. Raises `RectoError` if the collection does not exist, is empty, or
    was indexed with another embedding model.
    """
    if collection is not None:
        check_collection_name(collection, "collection")
    return open_retriever(settings or load_settings(), _log, collection=collection)


def index(
    location: str | Path | Source,
    collection: str | None = None,
    *,
    progress: ProgressCallback | None = None,
    dry_run: bool = False,
    rebuild: bool = False,
    new_urls: bool = False,
    options: SourceOptions | None = None,
    settings: Settings | None = None,
) -> IndexReport:
    """Index the book at a path or URL and return what was done.

    Only text that is new to the collection is embedded. `dry_run` writes nothing and returns the plan, with
    an `info` that has no generation; `rebuild` embeds everything again. `collection` defaults to
    COLLECTION_NAME, else to a name that is made from the directory or the address of the book. Options that
    are not stated are the same as in the last run; a run that would give most pages other URLs is an error
    without `new_urls`.
    """
    from recto.indexing.indexer import IndexReport

    if collection is not None:
        check_collection_name(collection, "collection")
    settings = settings or load_settings()
    on_disk = isinstance(location, str | Path)
    if options is not None and not on_disk:
        raise InvalidArgument("options are for a path or a URL", hint="Configure the Source itself.")
    if not on_disk and not hasattr(location, "pages"):
        raise InvalidArgument(
            f"location must be a path, a URL or a Source, not {type(location).__name__}",
            hint='Such as "path/to/docs".',
        )
    with ExitStack() as stack:
        embedder, store = plugins.open_embedder(settings, _log), plugins.open_store(settings, _log)
        stack.callback(embedder.close)
        stack.callback(store.close)
        runner = IndexRunner(
            settings, embedder, store, collection, rebuild=rebuild, new_urls=new_urls, wait=_log
        )
        source: Source
        if isinstance(location, str | Path):
            source = runner.open(str(location), options or SourceOptions(), _log, cached=not dry_run)
        else:
            source = location
        if not dry_run:
            return runner.run(source, progress)
        plan = runner.plan(source, progress)
        return IndexReport(IndexInfo(runner.collection(source), "", plan.chunks, None), plan, published=False)


def evaluate(
    suite: str | Path | Suite,
    *,
    collection: str | None = None,
    top_k: int = 5,
    mode: Mode = "hybrid",
    measures: Sequence[str] = (),
    retriever: Retriever | None = None,
    settings: Settings | None = None,
) -> Run:
    """Ask the questions of a suite and return the run with its measures.

    `suite` is a file (JSON or JSON Lines) or a `Suite`. Pass either a `retriever`, or the `collection`
    and the `settings` to connect to. `measures` are names such as `nDCG@10`; without any, the default
    measures are computed.
    """
    from recto.evaluation.measures import DEFAULT_MEASURES, parse_measure
    from recto.evaluation.runs import Options, run_suite
    from recto.evaluation.suites import Suite, load_suite

    check_mode(mode)
    check_top_k(top_k)
    if retriever is not None and (collection is not None or settings is not None):
        raise InvalidArgument(
            "retriever cannot be combined with collection or settings",
            hint="The retriever already has a collection and settings.",
        )
    questions = suite if isinstance(suite, Suite) else load_suite(suite)
    chosen = tuple(parse_measure(name) for name in measures) or DEFAULT_MEASURES
    with ExitStack() as stack:
        opened = retriever or stack.enter_context(connect(collection, settings=settings))
        return run_suite(opened, questions, Options(top_k=top_k, measures=chosen, mode=mode))


def in_thread(function: Callable[_P, _T]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Return a function that can be awaited: it runs in a thread, and does not block the event loop."""

    @wraps(function)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        from asyncio import to_thread

        return await to_thread(function, *args, **kwargs)

    return run


aconnect = in_thread(connect)
aindex = in_thread(index)
aevaluate = in_thread(evaluate)


@dataclass(frozen=True, slots=True)
class IndexRunner:
    """Plans and runs the indexing of books into one collection, with an embedder and a store that are open.

    `name` defaults to the configured collection, else to the book's own name; a `sample` has its own, and
    gets those of `sample_names` as aliases that no other book has. `wait` is called if another process is
    writing; without it, that is an error.
    """

    settings: Settings
    embedder: Embedder
    store: Store
    name: str | None = None
    modules: tuple[str, ...] = ()
    sample: bool = False
    sample_names: Collection[str] = ()
    rebuild: bool = False
    new_urls: bool = False
    wait: Notify | None = None

    def open(self, location: str, options: SourceOptions, notify: Notify, *, cached: bool = True) -> Source:
        """Open a book; options that are not stated are the same as when it was indexed last."""
        cache = self.settings.home / "websites" if cached else None
        return open_as_indexed(
            location, options, cache, notify, self.settings, self.store, find_collection=self.collection
        )

    def collection(self, source: Source) -> str:
        """Return the collection that a book is indexed into."""
        if self.sample:
            return SAMPLE_COLLECTION
        return self.name or self.settings.collection or collection_for(source, self.store)

    @property
    def _journal(self) -> Path:
        return self.settings.home / "journal"

    def plan(self, source: Source, progress: ProgressCallback | None = None) -> Plan:
        """Return what a run would do; write nothing."""
        from recto.indexing.indexer import plan_book

        job = self._job(source)
        return plan_book(job, self.store, self.collection(source), journal=self._journal, progress=progress)

    def run(self, source: Source, progress: ProgressCallback | None = None) -> IndexReport:
        """Index a book, and set the aliases of the collection."""
        from recto.indexing.indexer import index_book

        job, store, name = self._job(source), self.store, self.collection(source)
        report = index_book(job, store, name, journal=self._journal, progress=progress, wait=self.wait)
        if self.sample:  # aliases of the user's own book are kept
            taken = store.aliases()
            store.set_aliases([alias for alias in self.sample_names if taken.get(alias, name) == name], name)
        return report

    def _job(self, source: Source) -> IndexJob:
        from recto.book.chunking import ChunkSize
        from recto.evaluation.calibration import calibrate
        from recto.indexing.indexer import IndexJob

        return IndexJob(
            source,
            self.embedder,
            ChunkSize(self.settings.chunk_tokens),
            modules=self.modules,
            rebuild=self.rebuild,
            calibrate=calibrate,
            processes=self.settings.threads - 1,
            new_urls=self.new_urls,
        )


def open_embedder(settings: Settings, notify: Notify, *, single_query: bool = False) -> Embedder:
    """Return the embedder that the settings name; `single_query` prefers a fast start to fast batches."""
    return plugins.open_embedder(replace(settings, single_query=single_query), notify)


def open_store(settings: Settings, notify: Notify, *, close_at_exit: bool = False) -> Store:
    """Return the store that the settings name; `close_at_exit` closes it when the process ends."""
    return plugins.open_store(replace(settings, close_at_exit=close_at_exit), notify)


def open_retriever(
    settings: Settings,
    notify: Notify,
    *,
    collection: str | None = None,
    sample_names: Collection[str] = (),
    single_query: bool = False,
    close_at_exit: bool = False,
) -> Retriever:
    """Open a collection, by default `default_collection`, with the parts that the settings name.

    If nothing is indexed yet and the sample book or one of `sample_names` is asked for, the sample book is
    indexed first.
    """
    embedder = open_embedder(settings, notify, single_query=single_query)
    store = open_store(settings, notify, close_at_exit=close_at_exit)
    with ExitStack() as undo:
        undo.callback(embedder.close)
        undo.callback(store.close)
        name = collection or default_collection(settings, store)
        retriever = open_collection(settings, embedder, store, name, notify, sample_names)
        undo.pop_all()
    return retriever


def open_collection(
    settings: Settings,
    embedder: Embedder,
    store: Store,
    collection: str,
    notify: Notify,
    sample_names: Collection[str] = (),
) -> Retriever:
    """Return a retriever of an embedder and a store that are open already; see `open_retriever`."""
    retriever = make_retriever(settings, embedder, store, collection)
    try:
        retriever.open()
    except CollectionMissing:
        asks_for_sample = collection == SAMPLE_COLLECTION or collection in sample_names
        if not asks_for_sample or not store.is_local or set(store.collections()) - {SAMPLE_COLLECTION}:
            raise
        _first_run(settings, embedder, store, notify, sample_names)
        retriever.open()
    return retriever


def _first_run(
    settings: Settings, embedder: Embedder, store: Store, notify: Notify, sample_names: Collection[str]
) -> None:
    """Index the sample book once. A second process waits for the first."""
    from recto._util.files import WriterLock, disk_errors, make_private

    home = settings.home
    with disk_errors(home):
        make_private(home)
        with WriterLock(home / "first-run.lock", "The sample book", wait=notify):
            if SAMPLE_COLLECTION not in store.collections():
                notify("First run: indexing the sample book, once.")
                index_sample(settings, embedder, store, notify)
            store.set_aliases(sample_names, SAMPLE_COLLECTION)


class LazyConnection:
    """Opens the embedder, the store and collections on first use, and again after `close`; thread-safe."""

    def __init__(self, settings: Settings | None, notify: Notify, sample_names: Collection[str] = ()) -> None:
        self.notify = notify
        self._given = settings
        self._sample_names = sample_names
        self._parts: tuple[Settings, Embedder, Store] | None = None
        self._retrievers: dict[str, Retriever] = {}
        self._opening = threading.RLock()

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self._open()[0]

    @property
    def embedder(self) -> Embedder:
        """The embedder that the settings name."""
        return self._open()[1]

    def retriever(self, collection: str) -> Retriever:
        """Return the retriever of a collection; see `open_retriever`."""
        with self._opening:
            if collection not in self._retrievers:
                parts = self._open()
                opened = open_collection(*parts, collection, self.notify, self._sample_names)
                self._retrievers[collection] = opened
            return self._retrievers[collection]

    def close(self) -> None:
        """Close everything; the next call loads the settings and opens it again."""
        with self._opening:
            if self._parts is not None:
                for part in self._parts[1:]:
                    part.close()
            self._parts = None
            self._retrievers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> tuple[Settings, Embedder, Store]:
        with self._opening:
            if self._parts is None:
                settings = self._given or load_settings()
                embedder = open_embedder(settings, self.notify)
                self._parts = settings, embedder, open_store(settings, self.notify)
            return self._parts


def index_sample(settings: Settings, embedder: Embedder, store: Store, notify: Notify) -> None:
    """Index the sample book and report every quarter of it."""
    reported = 0

    def progress(now: IndexProgress) -> None:
        nonlocal reported
        quarter = 4 * now.done // now.chunks if now.plan else 0
        if quarter > reported:
            reported = quarter
            notify(f"Indexing the sample book: {now.done} of {plural(now.chunks, 'chunk')}")

    IndexRunner(settings, embedder, store, sample=True, wait=notify).run(sample_source(), progress)

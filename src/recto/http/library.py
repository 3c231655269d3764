"""The collections that the service answers from: opened when they can be, asked in threads or awaited, never named beyond the list."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple, TypeVar

from recto.errors import CollectionMissing, ErrorKind, InvalidArgument
from recto.http.batching import MOST, BatchingEmbedder
from recto.http.breaker import Breaker
from recto.http.options import DEFAULT_COLLECTION, ServeOptions
from recto.http.outline import Outline, outline_of
from recto.pages import BookPage
from recto.protocols import AsyncEmbedder
from recto.remote import Tell, redacted
from recto.retriever import Retriever
from recto.search.display import response_words
from recto.search.lexical import QueryWord
from recto.settings import Settings
from recto.types import NO_FILTERS, Filters, GroupBy, IndexInfo, Mode, SearchResponse
from recto.wiring import connect, open_embedder, open_store

Result = TypeVar("Result")


class Found(NamedTuple):
    """A response, and the words of its query to mark in the hits."""

    response: SearchResponse
    words: tuple[QueryWord, ...]


class Library:
    """What is served; opening it is light, `start` is heavy. Searches that are under way at once share the model's work."""

    def __init__(
        self, settings: Settings, options: ServeOptions, tell: Tell, batched: Callable[[int], None] = lambda _: None, *, last: bool = False
    ) -> None:
        self.settings = settings
        self.default = settings.collection_or(options.default)
        self.names = tuple(dict.fromkeys((self.default, *options.collections)))
        self._tell = tell
        embedder = open_embedder(settings, tell)
        self._awaited = isinstance(embedder, AsyncEmbedder)
        self._embedder = embedder if self._awaited else BatchingEmbedder(embedder, batched)
        self._store = open_store(settings, tell, last=last)
        self._retrievers: dict[str, Retriever] = {}
        self._breakers: dict[str, Breaker] = {}
        self._outlines: dict[str, tuple[IndexInfo, Outline]] = {}
        self._pool = ThreadPoolExecutor(MOST, thread_name_prefix="recto-search")

    def start(self) -> None:
        """Open the default collection, index the sample book if it is the very first run, and load the model."""
        connect(self.settings, self._embedder, self._store, self.default, self._tell)
        self._embedder.warm_up()

    async def close(self) -> None:
        """Let go of everything."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        any_retriever = self.retriever(self.default)
        await any_retriever.aclose()
        any_retriever.close()

    def name(self, asked: str | None) -> str:
        """Return the collection that a request means, or refuse one that is not served."""
        if asked is None:
            return self.default
        if asked in self.names:
            return asked
        if asked == DEFAULT_COLLECTION:  # the contract's own name stands for whatever is configured in its place
            return self.default
        if asked in self._further_names():
            return asked
        raise CollectionMissing("There is no such collection here", hint="GET /v1/collections lists what there is.")

    def retriever(self, name: str) -> Retriever:
        """Return what searches a collection; nothing is opened yet."""
        if name not in self._retrievers:
            self._retrievers[name] = Retriever(self._embedder, self._store, name)
        return self._retrievers[name]

    async def info(self, name: str) -> IndexInfo:
        """Return what the collection's index is, checked against the model."""
        return await self.ask(name, lambda retriever: retriever.open().info)

    async def stored_info(self, name: str) -> IndexInfo:
        """Return what is stored under a name, whether or not it can be searched."""
        return await self.ask(name, lambda _: self._store.open(name).info)

    async def search(self, name: str, query: str, limit: int, mode: Mode) -> SearchResponse:
        """Search one collection."""
        if self._awaited:
            return await self._await(name, lambda retriever: retriever.asearch(query, limit, mode=mode))
        return await self.ask(name, lambda retriever: retriever.search(query, limit, mode=mode))

    async def find(
        self,
        name: str,
        queries: Sequence[str],
        limit: int,
        filters: Filters = NO_FILTERS,
        min_score: float | None = None,
        *,
        mode: Mode = "hybrid",
        group_by: GroupBy | None = None,
    ) -> list[Found]:
        """Search for several queries, all in one state of the collection, and say which of their words to mark."""

        def search(retriever: Retriever) -> list[Found]:
            _check_mode(retriever, mode)
            return _found(retriever, retriever.search_batch(queries, limit, filters, min_score, mode=mode, group_by=group_by))

        async def asearch(retriever: Retriever) -> list[Found]:
            await asyncio.to_thread(_check_mode, retriever, mode)
            responses = await retriever.asearch_batch(queries, limit, filters, min_score, mode=mode, group_by=group_by)
            return await asyncio.to_thread(_found, retriever, responses)

        return await (self._await(name, asearch) if self._awaited else self.ask(name, search))

    async def related(self, name: str, selection: str, question: str | None, limit: int, filters: Filters, mode: Mode = "hybrid") -> Found:
        """Find what goes with a selected text."""

        def search(retriever: Retriever) -> Found:
            _check_mode(retriever, mode)
            return _found(retriever, [retriever.related(selection, question, limit, filters, mode=mode)])[0]

        async def asearch(retriever: Retriever) -> Found:
            await asyncio.to_thread(_check_mode, retriever, mode)
            response = await retriever.arelated(selection, question, limit, filters, mode=mode)
            return (await asyncio.to_thread(_found, retriever, [response]))[0]

        return await (self._await(name, asearch) if self._awaited else self.ask(name, search))

    async def page(self, name: str, url: str) -> BookPage:
        """Return a page as it is indexed."""
        return await self.ask(name, lambda retriever: retriever.page(url))

    async def outline(self, name: str) -> Outline:
        """Return the pages of a collection; read once for each published state."""

        def read(retriever: Retriever) -> Outline:
            index = retriever.open()
            state = replace(index.info, warnings=(), calibration=None)
            known = self._outlines.get(name)
            if known is None or known[0] != state:
                self._outlines[name] = known = (
                    state,
                    outline_of(index.scroll(), index.info.fingerprint.modules if index.info.fingerprint else ()),
                )
            return known[1]

        return await self.ask(name, read)

    async def ask(self, name: str, call: Callable[[Retriever], Result]) -> Result:
        """Ask a collection something in a thread of the pool."""
        retriever = self.retriever(name)
        with self._watched(name), _named(name):
            return await asyncio.get_running_loop().run_in_executor(self._pool, call, retriever)

    async def _await(self, name: str, call: Callable[[Retriever], Awaitable[Result]]) -> Result:
        """Ask services without a thread for each question."""
        with self._watched(name), _named(name):
            return await call(self.retriever(name))

    def outward(self, warnings: Sequence[str]) -> tuple[str, ...]:
        """Return warnings without the paths and addresses that they may name."""
        inside = (str(self.settings.home), self.settings.qdrant_url, self.settings.cohere_api_url)
        return tuple(redacted(warning, *inside) for warning in warnings)

    @property
    def embedded(self) -> bool:
        """Whether all engines are in this process."""
        return self.settings.store == "edge" and self.settings.embedder == "local"

    def _watched(self, name: str) -> AbstractContextManager[None]:
        """Spare services that are down; an engine of our own is never away, and what takes it too long says nothing of other questions."""
        return nullcontext() if self.embedded else self._breakers.setdefault(name, Breaker()).watch()

    def _further_names(self) -> set[str]:
        """Other names of the default collection, where looking them up costs nothing."""
        if self.settings.store != "edge":
            return set()
        aliases = self._store.aliases()
        behind = aliases.get(self.default, self.default)
        return {behind, *(alias for alias, target in aliases.items() if target == behind)}


def _found(retriever: Retriever, responses: Sequence[SearchResponse]) -> list[Found]:
    return [Found(response, response_words(retriever, response)) for response in responses]


def _check_mode(retriever: Retriever, mode: Mode) -> None:
    """Refuse a lexical search of a collection that cannot be searched so, as the caller's mistake."""
    if mode == "lexical" and retriever.analyze(mode) is None:
        raise InvalidArgument("This collection has no lexical vectors", hint='Use the mode "hybrid" or "dense".')


class _named:  # noqa: N801 - used as a function
    """Tell of a missing collection in words that name it alone: the store's own have its address and all other names in them."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Put our words in place of the store's."""
        if isinstance(error, CollectionMissing) and error.kind is ErrorKind.MISSING:
            raise CollectionMissing(
                f"Collection '{self._name}' does not exist", hint=f"Index a book with `recto index PATH --collection {self._name}`."
            ) from error

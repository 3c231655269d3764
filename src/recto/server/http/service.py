"""Searches of the served collections."""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from recto._util.retry import redacted
from recto.api import open_collection, open_embedder, open_store
from recto.contracts import DEFAULT_COLLECTIONS, HTTP_COLLECTION
from recto.errors import CollectionMissing, InvalidArgument
from recto.plugins import Notify
from recto.protocols import embedder_abilities, store_abilities
from recto.search.context import Context
from recto.search.display import response_words
from recto.search.lexical import QueryWord
from recto.search.pages import Outline, read_outline
from recto.search.query_log import QueryLog, Via, open_query_log
from recto.search.retriever import Retriever, make_retriever
from recto.server.http import ServeOptions
from recto.server.http.answers import Answers
from recto.server.http.batching import MAX_BATCH, BatchingEmbedder, CircuitBreaker
from recto.server.http.monitoring import Metrics, Readiness
from recto.server.limits import Refusal, Refused, current_request
from recto.settings import Settings
from recto.types.index import IndexInfo, StoreProblem
from recto.types.request import SearchRequest
from recto.types.search import Mode, SearchResponse

_ADDRESS = re.compile(r"https?://\S+")

MarkedResponse = tuple[SearchResponse, tuple[QueryWord, ...]]
"""A response, and the query words to mark in the hits."""
Argument = TypeVar("Argument")
Result = TypeVar("Result")


class SearchService:
    """Searches the served collections; `start` opens them. Concurrent searches share model calls."""

    def __init__(
        self,
        settings: Settings,
        options: ServeOptions,
        notify: Notify,
        metrics: Metrics | None = None,
        *,
        close_at_exit: bool = False,
    ) -> None:
        self.settings = settings
        self.metrics = metrics or Metrics()
        self.readiness = Readiness(lambda: self.info(self.default))
        self.default = settings.collection_or(options.default)
        self.names = tuple(dict.fromkeys((self.default, *options.collections)))
        self._notify = notify
        embedder = open_embedder(settings, notify)
        self._awaited = embedder_abilities(embedder).aembed_queries is not None
        self._embedder = (
            embedder if self._awaited else BatchingEmbedder(embedder, self.metrics.batches.observe)
        )
        self._store = open_store(settings, notify, close_at_exit=close_at_exit)
        self._retrievers: dict[str, Retriever] = {}
        self._breakers: dict[tuple[str, bool], CircuitBreaker] = {}
        self._outlines: dict[str, tuple[IndexInfo, Outline]] = {}
        self._query_log: QueryLog | None = None
        self.answers = Answers(settings) if settings.answer.url else None
        self._pool = ThreadPoolExecutor(MAX_BATCH, thread_name_prefix="recto-search")

    def start(self) -> None:
        """Open the default collection, index the sample book on the first run, and load the model."""
        self._query_log = open_query_log(self.settings, self.metrics.dropped.inc)
        open_collection(
            self.settings, self._embedder, self._store, self.default, self._notify, DEFAULT_COLLECTIONS
        )
        self._embedder.warm_up()

    async def close(self) -> None:
        """Close everything."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._query_log is not None:
            await asyncio.to_thread(self._query_log.close)
        if self.answers is not None:
            await self.answers.close()
        any_retriever = self.retriever(self.default)
        await any_retriever.aclose()
        any_retriever.close()

    @property
    def has_log(self) -> bool:
        """Whether queries are logged."""
        return self._query_log is not None

    def record(self, response: SearchResponse, via: Via | None) -> None:
        """Count a search; if `via` is given, also add it to the query log, if there is one."""
        self.metrics.record_search(response.timings)
        if self._query_log is not None and via is not None:
            self._query_log.add(response, via)

    def report(self, query: str, collection: str, **report: Any) -> None:
        """Add what a reader did to the query log, if there is one."""
        if self._query_log is not None:
            self._query_log.add_report(query, collection, **report)

    @property
    def may_ask(self) -> bool:
        """Whether there are answers, and the key of the current request is for them."""
        is_search_key = bool(current_request().collections)
        return self.answers is not None and not (is_search_key and self.settings.answer.scope == "admin")

    @property
    def visible(self) -> tuple[str, ...]:
        """The collections that the current request may use, its default first."""
        allowed = current_request().collections
        return tuple(name for name in allowed if name in self.names) if allowed else self.names

    def name(self, requested: str | None) -> str:
        """Return the collection of a request.

        Raise `Refused` if its key is not for the collection, `CollectionMissing` if it is not served.
        """
        if allowed := current_request().collections:
            requested = (*self.visible, *allowed)[0] if requested is None else requested
            if requested not in allowed:  # the same error whether it exists or not
                hint = f"It is for: {', '.join(allowed)}."
                raise Refused("collection", Refusal(403, "This API key is not for that collection", hint))
        if requested in self.names:
            return requested
        if requested in (None, HTTP_COLLECTION):  # the contract's name means the configured collection
            return self.default
        if requested in self._aliases():
            return requested
        raise CollectionMissing(
            "There is no such collection here", hint="GET /v1/collections lists the collections."
        )

    def retriever(self, name: str) -> Retriever:
        """Return the retriever of a collection, without opening it."""
        if name not in self._retrievers:
            self._retrievers[name] = make_retriever(self.settings, self._embedder, self._store, name)
        return self._retrievers[name]

    async def info(self, name: str) -> IndexInfo:
        """Return the collection's index, checked against the model."""
        return await self.run(name, lambda retriever: retriever.open().info)

    async def stored_info(self, name: str) -> IndexInfo:
        """Return the stored index, even if it cannot be searched."""
        return await self.run(name, lambda _: self._store.open(name).info)

    async def problems(self, name: str) -> tuple[StoreProblem, ...]:
        """Return what is wrong with the servers of a collection, without their addresses."""
        read_problems = store_abilities(self._store).problems
        if read_problems is None:
            return ()
        problems = await self.run(name, lambda _: read_problems(name))
        return tuple(problem._replace(message=_ADDRESS.sub("***", problem.message)) for problem in problems)

    async def search(self, name: str, request: SearchRequest) -> SearchResponse:
        """Search one collection."""
        if self._awaited:
            return await self._await(name, request.mode, lambda retriever: retriever.asearch(request))
        return await self.run(name, lambda retriever: retriever.search(request))

    async def context(
        self,
        name: str,
        request: SearchRequest,
        max_tokens: int,
        *,
        page: str | None = None,
        neighbors: int = 0,
    ) -> Context:
        """Return the sections of a collection for a question."""
        if self._awaited:
            return await self._await(
                name,
                request.mode,
                lambda retriever: retriever.acontext(request, max_tokens, page=page, neighbors=neighbors),
            )
        return await self.run(
            name, lambda retriever: retriever.context(request, max_tokens, page=page, neighbors=neighbors)
        )

    async def find(
        self,
        name: str,
        texts: Sequence[str],
        mode: Mode,
        convert: Callable[[list[MarkedResponse]], Result],
        call: Callable[[Retriever], list[SearchResponse]],
        acall: Callable[[Retriever], Awaitable[list[SearchResponse]]],
    ) -> Result:
        """Search for texts in a thread with `call`, or with awaited engines and `acall`.

        `convert` gets the responses with the query words to mark, and runs in a thread, too.
        """
        current_request().charge(len(texts) - 1)  # the first is counted already, long ones by their bytes

        def check(retriever: Retriever) -> None:
            if mode == "lexical" and retriever.analyze(mode) is None:
                raise InvalidArgument(
                    "This collection has no lexical vectors", hint='Use the mode "hybrid" or "dense".'
                )

        def with_words(retriever: Retriever, responses: list[SearchResponse]) -> Result:
            return convert([(response, response_words(retriever, response)) for response in responses])

        def search(retriever: Retriever) -> Result:
            check(retriever)
            return with_words(retriever, call(retriever))

        async def asearch(retriever: Retriever) -> Result:
            await asyncio.to_thread(check, retriever)
            return await self.in_thread(partial(with_words, retriever), await acall(retriever))

        return await (self._await(name, mode, asearch) if self._awaited else self.run(name, search))

    async def outline(self, name: str) -> Outline:
        """Return the pages of a collection; cached for each generation."""

        def read(retriever: Retriever) -> Outline:
            index = retriever.open()
            state = replace(index.info, warnings=(), calibration=None)
            cached = self._outlines.get(name)
            if cached is None or cached[0] != state:
                self._outlines[name] = cached = (state, read_outline(index))
            return cached[1]

        return await self.run(name, read)

    async def run(self, name: str, call: Callable[[Retriever], Result]) -> Result:
        """Call a retriever in a thread of the pool."""
        with self._guarded(name):
            return await self.in_thread(call, self.retriever(name))

    async def in_thread(self, call: Callable[[Argument], Result], argument: Argument) -> Result:
        """Call a function in a thread of the pool; a cancelled request that still waits for one gets none."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, context.run, call, argument)

    async def _await(self, name: str, mode: Mode, call: Callable[[Retriever], Awaitable[Result]]) -> Result:
        """Await a retriever, without a thread for each query."""
        with self._guarded(name, embeds=mode != "lexical"):
            return await call(self.retriever(name))

    @contextmanager
    def _guarded(self, name: str, *, embeds: bool = False) -> Iterator[None]:
        """Apply the circuit breaker of remote engines; report a missing collection without internals.

        Searches that call a remote embedder have a breaker of their own: without it, all others still work.
        """
        if not self.embedded and (name, embeds) not in self._breakers:
            self._breakers[name, embeds] = CircuitBreaker(on_change=self.metrics.circuits.inc)
        breaker = self._breakers.get((name, embeds))
        try:
            with breaker.watch() if breaker else nullcontext():
                yield
        except CollectionMissing as error:
            raise CollectionMissing(
                f"Collection '{name}' does not exist",
                hint=f"Index a book with `recto index PATH --collection {name}`.",
            ) from error

    def redact(self, warnings: Sequence[str]) -> tuple[str, ...]:
        """Return warnings without paths and addresses."""
        internals = (str(self.settings.home), *self.settings.addresses)
        return tuple(redacted(warning, *internals) for warning in warnings)

    @property
    def embedded(self) -> bool:
        """Whether all engines run in this process."""
        return not self._awaited and self._store.is_local

    def _aliases(self) -> set[str]:
        """Return the other names of the default collection, if looking them up is cheap."""
        if not self._store.is_local:
            return set()
        aliases = self._store.aliases()
        target = aliases.get(self.default, self.default)
        return {target, *(alias for alias, name in aliases.items() if name == target)}

"""Searches of the served collections, with a circuit breaker and batched query embedding."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
import time
from bisect import insort
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import NamedTuple, TypeVar

from recto._util.retry import Notify, redacted
from recto.api import open_collection, open_embedder, open_store
from recto.errors import CollectionMissing, ErrorKind, InvalidArgument, RectoError, Unreachable
from recto.protocols import AsyncEmbedder, AsyncStore, Embedder, Preparable, Progress
from recto.search.display import response_words, words_to_match
from recto.search.lexical import QueryWord
from recto.search.pages import BookPage
from recto.search.query import MAX_QUERY
from recto.search.retriever import Retriever
from recto.server.http.options import DEFAULT_COLLECTION, ServeOptions
from recto.server.http.views import Outline, outline_of
from recto.server.limits import (
    CallCancelled,
    CurrentRequest,
    FairSlots,
    Refusal,
    Refused,
    current_request,
)
from recto.settings import Settings, split_addresses
from recto.types import (
    NO_FILTERS,
    EmbedderFingerprint,
    Filters,
    GroupBy,
    IndexInfo,
    Mode,
    SearchResponse,
    StoreProblem,
    Vector,
)

_ADDRESS = re.compile(r"https?://\S+")
_PAUSE = 1.0  # seconds
_MAX_PAUSE = 5.0


class CircuitBreaker:
    """Fails fast while an engine is down; use it from one event loop."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, on_change: Callable[[int], None] = lambda _: None
    ) -> None:
        """Take a clock, and what is called with 1 when the circuit opens and with -1 when it closes."""
        self._clock = clock
        self._on_change = on_change
        self._error: RectoError | None = None
        self._until = 0.0
        self._probing = False

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Call the engine, or raise the last error at once."""
        if self._error is not None:
            if self._probing or self._clock() < self._until:
                raise self._error.with_traceback(None)
            self._probing = True
        try:
            yield
        except Unreachable as error:
            # Only a transient error is about the engine; others are about one query.
            self._note(error if hasattr(error, "retry_after") else None)
            raise
        except asyncio.CancelledError:
            if current_request().disconnected.is_set():  # says nothing about the engine
                self._probing = False
            else:
                self._note(Unreachable("The engine did not answer in time"))
            raise
        except RectoError as error:
            if error.kind is ErrorKind.ARGUMENT:  # the engine was not called
                self._probing = False
            else:
                self._note(None)
            raise
        except BaseException:  # a bug says nothing about the engine: let the next request try
            self._probing = False
            raise
        else:
            self._note(None)

    def _note(self, error: RectoError | None) -> None:
        self._probing = False
        if (error is None) != (self._error is None):
            self._on_change(-1 if error is None else 1)
        self._error = error
        if error is not None:
            asked = getattr(error, "retry_after", None)
            self._until = self._clock() + min(_MAX_PAUSE, max(_PAUSE, asked or 0))


MAX_BATCH = 16
_THREADS_PER_CALLER = 5  # more would slow others down, because threads of Python take turns
_MAX_CHARACTERS = 8_000  # about a second of work on a small machine
_CHARACTERS_PER_TOKEN = 4  # an estimate: the tokenizer would cost more than it saves
_MAX_TOKENS = 512  # larger batches are not faster, and each query waits for the whole batch
_MAX_CALLERS = 10_000
_CHARGED_CHARACTERS = 500  # of a query that counts as one request for the rate limit
_CALL_COST = 3.5  # overhead of a model call, in tokens; padding costs as much as text


class _Waiting:
    """A text in the queue; its lock is released when it has a result, or when its thread must lead.

    `turn` orders the queue: what its caller has queued before it, in tokens.
    """

    __slots__ = ("error", "lock", "request", "text", "tokens", "turn", "vector")

    def __init__(self, text: str, tokens: float, turn: float, request: CurrentRequest) -> None:
        self.text = text
        self.tokens = tokens
        self.turn = turn
        self.request = request
        self.vector: Vector | None = None
        self.error: BaseException | None = None
        self.lock = threading.Lock()
        self.lock.acquire()


class BatchingEmbedder:
    """Batches the queries of many threads without a timer: one thread embeds for those that wait.

    Callers share the model by tokens, as in fair queueing: a caller with much text does not delay others. The
    texts of cancelled requests are dropped.
    """

    def __init__(self, inner: Embedder, on_batch: Callable[[int], None] = lambda _: None) -> None:
        self._inner = inner
        self._on_batch = on_batch
        self._lock = threading.Lock()
        self._queue: list[_Waiting] = []
        self._turns: dict[str, float] = {}  # of each caller's next text
        self._served = 0.0  # the turn that is being served
        self._has_leader = False

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """The fingerprint of the vectors."""
        return self._inner.fingerprint

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return self._inner.dim

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of a text."""
        return self._inner.max_tokens

    def warm_up(self) -> None:
        """Load the model."""
        self._inner.warm_up()

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""
        return self._inner.count_tokens(text)

    def embed_query(self, text: str) -> Vector:
        """Embed one query, together with those of other threads."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries, together with those of other threads."""
        request, vectors = current_request(), []
        for batch in _split_batches(texts):
            request.check()
            vectors += self._embed_together(batch, request)
        return vectors

    def _embed_together(self, texts: list[str], request: CurrentRequest) -> list[Vector]:
        with self._lock:
            mine = [self._enqueue(text, request) for text in texts]
            if not self._has_leader:  # the queue was empty, so the first text is ours
                self._has_leader = True
                mine[0].lock.release()
        for one in mine:
            while one.vector is None and one.error is None:
                one.lock.acquire()  # released with a result, or because this thread must lead
                if one.vector is None and one.error is None:
                    self._lead()
        return [_vector(one) for one in mine]

    def _enqueue(self, text: str, request: CurrentRequest) -> _Waiting:
        tokens = 2 + len(text) / _CHARACTERS_PER_TOKEN
        turn = max(self._served, self._turns.get(request.caller, 0.0))
        self._turns[request.caller] = turn + tokens
        waiting = _Waiting(text, tokens, turn, request)
        insort(self._queue, waiting, key=lambda one: one.turn)
        return waiting

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed documents."""
        return self._inner.embed_documents(texts, progress)

    def close(self) -> None:
        """Close connections."""
        self._inner.close()

    def _lead(self) -> None:
        """Embed the first text in the queue and those that fit to it, then let the next thread lead."""
        with self._lock:
            cancelled = [one for one in self._queue if one.request.cancelled.is_set()]
            for one in cancelled:
                one.error = CallCancelled()
            self._queue = [one for one in self._queue if one.error is None]
            batch = _best_batch(self._queue[:MAX_BATCH])
            self._queue = [one for one in self._queue if one not in batch]
            if batch:
                self._served = max(self._served, batch[0].turn)
        if batch:
            self._embed(batch)
        with self._lock:
            following = self._queue[0] if self._queue else None
            self._has_leader = following is not None
            if not self._has_leader or len(self._turns) > _MAX_CALLERS:
                self._turns = {name: turn for name, turn in self._turns.items() if turn > self._served}
        for one in (*batch, *cancelled):
            one.lock.release()
        if following is not None:
            following.lock.release()

    def _embed(self, batch: list[_Waiting]) -> None:
        """Give every text its vector or its error; raise nothing, because other threads wait."""
        try:
            self._on_batch(len(batch))
            vectors = self._inner.embed_queries([one.text for one in batch])
            for one, vector in zip(batch, vectors, strict=True):
                one.vector = vector
        except BaseException as error:  # noqa: BLE001 - each thread raises it for itself
            if isinstance(error, RectoError) and len(batch) > 1:
                for one in batch:  # one bad text must not fail the others
                    self._embed([one])
                return
            for one in batch:
                one.error = error


def _vector(one: _Waiting) -> Vector:
    if one.error is not None:
        raise one.error
    return one.vector or []


def _best_batch(waiting: list[_Waiting]) -> list[_Waiting]:
    """Split the queue into the cheapest batches, and return the one with its first text.

    All texts of a batch are padded to the longest: a short query is expensive next to a long one.
    """
    if len(waiting) <= 1:
        return waiting
    ordered = sorted(waiting, key=lambda one: one.tokens)
    costs, begins = [0.0], [0]
    for end in range(1, len(ordered) + 1):
        longest = ordered[end - 1].tokens
        cost, begin = min(
            (costs[begin] + _CALL_COST + longest * (end - begin), begin)
            for begin in range(end)
            if begin == end - 1 or longest * (end - begin) <= _MAX_TOKENS
        )
        costs.append(cost)
        begins.append(begin)
    end = len(ordered)
    while waiting[0] not in (batch := ordered[begins[end] : end]):
        end = begins[end]
    return batch


def _split_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Split one caller's texts, so that other threads need not wait for all of them."""
    batch: list[str] = []
    room = _MAX_CHARACTERS
    for text in texts:
        if batch and (len(batch) == MAX_BATCH or len(text) > room):
            yield batch
            batch, room = [], _MAX_CHARACTERS
        batch.append(text)
        room -= len(text)
    if batch:
        yield batch


Argument = TypeVar("Argument")
Result = TypeVar("Result")


class SearchFound(NamedTuple):
    """A response, and the query words to mark in the hits."""

    response: SearchResponse
    words: tuple[QueryWord, ...]


class SearchService:
    """Searches the served collections; `start` opens them. Concurrent searches share model calls."""

    def __init__(
        self,
        settings: Settings,
        options: ServeOptions,
        notify: Notify,
        on_batch: Callable[[int], None] = lambda _: None,
        on_circuit: Callable[[int], None] = lambda _: None,
        *,
        close_at_exit: bool = False,
    ) -> None:
        self.settings = settings
        self.default = settings.collection_or(options.default)
        self.names = tuple(dict.fromkeys((self.default, *options.collections)))
        self._notify = notify
        embedder = open_embedder(settings, notify)
        self._awaited = isinstance(embedder, AsyncEmbedder)
        self._embedder = embedder if self._awaited else BatchingEmbedder(embedder, on_batch)
        self._store = open_store(settings, notify, close_at_exit=close_at_exit)
        self._local_store = not isinstance(self._store, AsyncStore)
        self._retrievers: dict[str, Retriever] = {}
        self._on_circuit = on_circuit
        self._breakers: dict[str, CircuitBreaker] = {}
        self._outlines: dict[str, tuple[IndexInfo, Outline]] = {}
        self._pool = ThreadPoolExecutor(MAX_BATCH, thread_name_prefix="recto-search")
        self._threads = FairSlots(MAX_BATCH, _THREADS_PER_CALLER)

    def start(self) -> None:
        """Open the default collection, index the sample book on the first run, and load the model."""
        open_collection(self.settings, self._embedder, self._store, self.default, self._notify)
        self._embedder.warm_up()

    async def close(self) -> None:
        """Close everything."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        any_retriever = self.retriever(self.default)
        await any_retriever.aclose()
        any_retriever.close()

    @property
    def visible(self) -> tuple[str, ...]:
        """The collections that the current request may use, its default first."""
        allowed = current_request().collections
        return tuple(name for name in allowed if name in self.names) if allowed else self.names

    def name(self, asked: str | None) -> str:
        """Return the collection of a request.

        Raise `Refused` if its key is not for the collection, `CollectionMissing` if it is not served.
        """
        if allowed := current_request().collections:
            asked = (*self.visible, *allowed)[0] if asked is None else asked
            if asked not in allowed:  # the same error whether it exists or not
                raise Refused("collection", _wrong_collection(allowed))
        if asked is None:
            return self.default
        if asked in self.names:
            return asked
        if asked == DEFAULT_COLLECTION:  # the contract's name means the configured collection
            return self.default
        if asked in self._aliases():
            return asked
        raise CollectionMissing(
            "There is no such collection here", hint="GET /v1/collections lists the collections."
        )

    def retriever(self, name: str) -> Retriever:
        """Return the retriever of a collection, without opening it."""
        if name not in self._retrievers:
            self._retrievers[name] = Retriever(self._embedder, self._store, name)
        return self._retrievers[name]

    async def info(self, name: str) -> IndexInfo:
        """Return the collection's index, checked against the model."""
        return await self.run(name, lambda retriever: retriever.open().info)

    async def stored_info(self, name: str) -> IndexInfo:
        """Return the stored index, even if it cannot be searched."""
        return await self.run(name, lambda _: self._store.open(name).info)

    async def problems(self, name: str) -> tuple[StoreProblem, ...]:
        """Return what is wrong with the servers of a collection, without their addresses."""
        store = self._store
        if not isinstance(store, Preparable):
            return ()
        found = await self.run(name, lambda _: store.problems(name))
        return tuple(replace(one, message=_ADDRESS.sub("***", one.message)) for one in found)

    async def search(self, name: str, query: str, top_k: int, mode: Mode) -> SearchResponse:
        """Search one collection."""
        _charge([query])
        if self._awaited:
            return await self._await(name, lambda retriever: retriever.asearch(query, top_k, mode=mode))
        return await self.run(name, lambda retriever: retriever.search(query, top_k, mode=mode))

    async def find(
        self,
        name: str,
        queries: Sequence[str],
        top_k: int,
        filters: Filters = NO_FILTERS,
        min_score: float | None = None,
        *,
        mode: Mode = "hybrid",
        group_by: GroupBy | None = None,
        convert: Callable[[list[SearchFound]], Result],
    ) -> Result:
        """Search for several queries in one generation of the collection; convert the results in a thread."""
        _charge(queries)
        return await self._find(
            name,
            mode,
            convert,
            lambda retriever: retriever.search_batch(
                queries, top_k, filters, min_score, mode=mode, group_by=group_by
            ),
            lambda retriever: retriever.asearch_batch(
                queries, top_k, filters, min_score, mode=mode, group_by=group_by
            ),
        )

    async def related(
        self,
        name: str,
        selection: str,
        question: str | None,
        top_k: int,
        filters: Filters,
        mode: Mode,
        convert: Callable[[list[SearchFound]], Result],
    ) -> Result:
        """Find chunks that are related to a selected text; convert the result in a thread."""
        _charge([selection])

        async def arelated(retriever: Retriever) -> list[SearchResponse]:
            return [await retriever.arelated(selection, question, top_k, filters, mode=mode)]

        return await self._find(
            name,
            mode,
            convert,
            lambda retriever: [retriever.related(selection, question, top_k, filters, mode=mode)],
            arelated,
        )

    async def _find(
        self,
        name: str,
        mode: Mode,
        convert: Callable[[list[SearchFound]], Result],
        call: Callable[[Retriever], list[SearchResponse]],
        acall: Callable[[Retriever], Awaitable[list[SearchResponse]]],
    ) -> Result:
        """Search in a thread, or with awaited engines; add the query words to mark."""

        def search(retriever: Retriever) -> Result:
            _check_mode(retriever, mode)
            return convert(_with_words(retriever, call(retriever)))

        async def asearch(retriever: Retriever) -> Result:
            await asyncio.to_thread(_check_mode, retriever, mode)
            responses = await acall(retriever)
            return await self.in_thread(lambda found: convert(_with_words(retriever, found)), responses)

        return await (self._await(name, asearch) if self._awaited else self.run(name, search))

    async def page(self, name: str, url: str, query: str = "") -> tuple[BookPage, tuple[QueryWord, ...]]:
        """Return a page, and the words of a query to mark in it."""

        def read(retriever: Retriever) -> tuple[BookPage, tuple[QueryWord, ...]]:
            asked = query[:MAX_QUERY].strip()
            return retriever.page(url), words_to_match(asked, retriever.analyze(asked)) if asked else ()

        return await self.run(name, read)

    async def outline(self, name: str) -> Outline:
        """Return the pages of a collection; cached for each generation."""

        def read(retriever: Retriever) -> Outline:
            index = retriever.open()
            state = replace(index.info, warnings=(), calibration=None)
            known = self._outlines.get(name)
            if known is None or known[0] != state:
                modules = index.info.fingerprint.modules if index.info.fingerprint else ()
                self._outlines[name] = known = (state, outline_of(index.scroll(), modules))
            return known[1]

        return await self.run(name, read)

    async def run(self, name: str, call: Callable[[Retriever], Result]) -> Result:
        """Call a retriever in a thread of the pool."""
        with self._guarded(name):
            return await self.in_thread(call, self.retriever(name))

    async def in_thread(self, call: Callable[[Argument], Result], argument: Argument) -> Result:
        """Call a function in a thread of the pool; callers take turns.

        A thread whose request was cancelled keeps its slot until it ends.
        """
        caller, context = current_request().caller, contextvars.copy_context()
        await self._threads.acquire(caller)
        running = asyncio.get_running_loop().run_in_executor(self._pool, context.run, call, argument)

        def ended(done: asyncio.Future[Result]) -> None:
            self._threads.release(caller)
            if not done.cancelled():
                done.exception()  # if the request was cancelled, nobody else retrieves it

        running.add_done_callback(ended)
        return await asyncio.shield(running)

    async def _await(self, name: str, call: Callable[[Retriever], Awaitable[Result]]) -> Result:
        """Await a retriever, without a thread for each query."""
        with self._guarded(name):
            return await call(self.retriever(name))

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Apply the circuit breaker of remote engines; report a missing collection without internals."""
        breaker = None if self.embedded else self._breaker(name)
        try:
            with breaker.watch() if breaker else nullcontext():
                yield
        except CollectionMissing as error:
            raise CollectionMissing(
                f"Collection '{name}' does not exist",
                hint=f"Index a book with `recto index PATH --collection {name}`.",
            ) from error

    def _breaker(self, name: str) -> CircuitBreaker:
        if name not in self._breakers:
            self._breakers[name] = CircuitBreaker(on_change=self._on_circuit)
        return self._breakers[name]

    def redact(self, warnings: Sequence[str]) -> tuple[str, ...]:
        """Return warnings without paths and addresses."""
        urls = split_addresses(self.settings.qdrant_url)
        internals = (str(self.settings.home), *urls, self.settings.cohere_api_url)
        return tuple(redacted(warning, *internals) for warning in warnings)

    @property
    def embedded(self) -> bool:
        """Whether all engines run in this process."""
        return not self._awaited and not isinstance(self._store, AsyncStore)

    def _aliases(self) -> set[str]:
        """Return the other names of the default collection, if looking them up is cheap."""
        if isinstance(self._store, AsyncStore):
            return set()
        aliases = self._store.aliases()
        target = aliases.get(self.default, self.default)
        return {target, *(alias for alias, name in aliases.items() if name == target)}


def _wrong_collection(allowed: Sequence[str]) -> Refusal:
    return Refusal(403, "This API key is not for that collection", f"It is for: {', '.join(allowed)}.")


def _charge(texts: Sequence[str]) -> None:
    """Count several or long texts as several requests; the first is counted already."""
    cost = sum(1 + len(text) // _CHARGED_CHARACTERS for text in texts) - 1
    if cost:
        current_request().charge(cost)


def _with_words(retriever: Retriever, responses: Sequence[SearchResponse]) -> list[SearchFound]:
    return [SearchFound(response, response_words(retriever, response)) for response in responses]


def _check_mode(retriever: Retriever, mode: Mode) -> None:
    """Refuse a lexical search of a collection without lexical vectors."""
    if mode == "lexical" and retriever.analyze(mode) is None:
        raise InvalidArgument(
            "This collection has no lexical vectors", hint='Use the mode "hybrid" or "dense".'
        )

"""The collections that the service answers from: opened when they can be, asked in threads or awaited, never named beyond the list."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import NamedTuple, TypeVar

from recto._util.retry import Notify, redacted
from recto.api import connect, open_embedder, open_store
from recto.errors import CollectionMissing, ErrorKind, InvalidArgument, RectoError, Unreachable
from recto.protocols import AsyncEmbedder, Embedder, Progress
from recto.search.display import response_words
from recto.search.lexical import QueryWord
from recto.search.pages import BookPage
from recto.search.retriever import Retriever
from recto.server.http.options import DEFAULT_COLLECTION, ServeOptions
from recto.server.http.views import Outline, outline_of
from recto.settings import Settings
from recto.types import (
    NO_FILTERS,
    EmbedderFingerprint,
    Filters,
    GroupBy,
    IndexInfo,
    Mode,
    SearchResponse,
    Vector,
)

PAUSE = 1.0
_LONGEST = 5.0


class Breaker:
    """Lets calls through while they succeed; used from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._error: RectoError | None = None
        self._until = 0.0
        self._probing = False

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Run a call of the engine, or raise at once what the last one raised."""
        if self._error is not None:
            if self._probing or self._clock() < self._until:
                raise self._error.with_traceback(None)
            self._probing = True
        try:
            yield
        except Unreachable as error:
            # Only what may pass by itself speaks of the engine; the rest speaks of one question.
            self._note(error if hasattr(error, "retry_after") else None)
            raise
        except asyncio.CancelledError:  # the request's time was over
            self._note(Unreachable("The engine did not answer in time"))
            raise
        except RectoError as error:
            if error.kind is ErrorKind.ARGUMENT:  # the engine was not asked
                self._probing = False
            else:
                self._note(None)
            raise
        except (
            BaseException
        ):  # a fault of ours says nothing of the engine: it is raised, and the next request may try
            self._probing = False
            raise
        else:
            self._note(None)

    def _note(self, error: RectoError | None) -> None:
        self._probing = False
        self._error = error
        if error is not None:
            asked = getattr(error, "retry_after", None)
            self._until = self._clock() + min(_LONGEST, max(PAUSE, asked or 0))


MOST = 16
_MOST_CHARACTERS = 8_000  # a second's work for a model on a small machine
_CHARACTERS = 4  # of a token, about: counting them would need the tokenizer, which plain questions do without
_MOST_TOKENS = 512  # more at once is not faster, and who is in a batch waits for all of it
_CALL = 3.5  # what a call of the model costs by itself, in tokens; what is filled up in a batch costs as much as if it said something


class _Waiting:
    """One text, and what has come of it; who opens the gate has set a vector or an error, or wants its caller to lead."""

    __slots__ = ("error", "gate", "text", "tokens", "vector")

    def __init__(self, text: str, tokens: float) -> None:
        self.text = text
        self.tokens = tokens
        self.vector: Vector | None = None
        self.error: BaseException | None = None
        self.gate = threading.Lock()
        self.gate.acquire()


class BatchingEmbedder:
    """An embedder for many threads: the first caller embeds for others who wait, then hands over; nobody waits for a clock."""

    def __init__(self, inner: Embedder, told: Callable[[int], None] = lambda _: None) -> None:
        self._inner = inner
        self._told = told
        self._lock = threading.Lock()
        self._queue: list[_Waiting] = []
        self._led = False

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """What identifies the vectors."""
        return self._inner.fingerprint

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return self._inner.dim

    @property
    def max_tokens(self) -> int:
        """The longest text that the model reads whole."""
        return self._inner.max_tokens

    def warm_up(self) -> None:
        """Load the model."""
        self._inner.warm_up()

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""
        return self._inner.count_tokens(text)

    def embed_query(self, text: str) -> Vector:
        """Embed one question, together with those of other threads."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several questions, together with those of other threads; many of them in turns, so that nobody waits for them all."""
        return [vector for turn in _turns(texts) for vector in self._embed_together(turn)]

    def _embed_together(self, texts: list[str]) -> list[Vector]:
        mine = [_Waiting(text, 2 + len(text) / _CHARACTERS) for text in texts]
        with self._lock:
            self._queue += mine
            if not self._led:  # then nobody was waiting, and the first in the queue is ours
                self._led = True
                mine[0].gate.release()
        for one in mine:
            one.gate.acquire()  # opened with a result, or because it is this caller's turn to lead
            if one.vector is None and one.error is None:
                self._lead()
        return [_vector(one) for one in mine]

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed passages; they are many by themselves."""
        return self._inner.embed_documents(texts, progress)

    def close(self) -> None:
        """Let go of connections."""
        self._inner.close()

    def _lead(self) -> None:
        """Embed the first in the queue and who goes with it, then let the next one lead."""
        with self._lock:
            batch = _alike(self._queue[:MOST])
            self._queue = [one for one in self._queue if one not in batch]
        self._embed(batch)
        with self._lock:
            heir = self._queue[0] if self._queue else None
            self._led = heir is not None
        for one in batch:
            one.gate.release()
        if heir is not None:
            heir.gate.release()

    def _embed(self, batch: list[_Waiting]) -> None:
        """Give every text of a batch its vector or its error; nothing is raised here, as others wait for who leads."""
        try:
            self._told(len(batch))
            vectors = self._inner.embed_queries([one.text for one in batch])
            for one, vector in zip(batch, vectors, strict=True):
                one.vector = vector
        except BaseException as error:  # noqa: BLE001 - each caller raises it for itself
            if isinstance(error, RectoError) and len(batch) > 1:
                for one in batch:  # one text that the model cannot read is not the others' fault
                    self._embed([one])
                return
            for one in batch:
                one.error = error


def _vector(one: _Waiting) -> Vector:
    if one.error is not None:
        raise one.error
    return one.vector or []


def _alike(waiting: list[_Waiting]) -> list[_Waiting]:
    """Share those who wait out to batches that cost least together, and return the one that the first of them is in.

    All texts of a batch are filled up to the longest: a short question beside a long one costs more than by itself.
    """
    if len(waiting) == 1:
        return waiting
    ordered = sorted(waiting, key=lambda one: one.tokens)
    costs, begins = [0.0], [0]
    for end in range(1, len(ordered) + 1):
        longest = ordered[end - 1].tokens
        cost, begin = min(
            (costs[begin] + _CALL + longest * (end - begin), begin)
            for begin in range(end)
            if begin == end - 1 or longest * (end - begin) <= _MOST_TOKENS
        )
        costs.append(cost)
        begins.append(begin)
    end = len(ordered)
    while waiting[0] not in (batch := ordered[begins[end] : end]):
        end = begins[end]
    return batch


def _turns(texts: Sequence[str]) -> Iterator[list[str]]:
    """Share one caller's texts out to what waits at once."""
    turn: list[str] = []
    room = _MOST_CHARACTERS
    for text in texts:
        if turn and (len(turn) == MOST or len(text) > room):
            yield turn
            turn, room = [], _MOST_CHARACTERS
        turn.append(text)
        room -= len(text)
    if turn:
        yield turn


Result = TypeVar("Result")


class SearchFound(NamedTuple):
    """A response, and the words of its query to mark in the hits."""

    response: SearchResponse
    words: tuple[QueryWord, ...]


class Library:
    """What is served; opening it is light, `start` is heavy. Searches that are under way at once share the model's work."""

    def __init__(
        self,
        settings: Settings,
        options: ServeOptions,
        notify: Notify,
        batched: Callable[[int], None] = lambda _: None,
        *,
        close_at_exit: bool = False,
    ) -> None:
        self.settings = settings
        self.default = settings.collection_or(options.default)
        self.names = tuple(dict.fromkeys((self.default, *options.collections)))
        self._notify = notify
        embedder = open_embedder(settings, notify)
        self._awaited = isinstance(embedder, AsyncEmbedder)
        self._embedder = embedder if self._awaited else BatchingEmbedder(embedder, batched)
        self._store = open_store(settings, notify, close_at_exit=close_at_exit)
        self._retrievers: dict[str, Retriever] = {}
        self._breakers: dict[str, Breaker] = {}
        self._outlines: dict[str, tuple[IndexInfo, Outline]] = {}
        self._pool = ThreadPoolExecutor(MOST, thread_name_prefix="recto-search")

    def start(self) -> None:
        """Open the default collection, index the sample book if it is the very first run, and load the model."""
        connect(self.settings, self._embedder, self._store, self.default, self._notify)
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
        if (
            asked == DEFAULT_COLLECTION
        ):  # the contract's own name stands for whatever is configured in its place
            return self.default
        if asked in self._further_names():
            return asked
        raise CollectionMissing(
            "There is no such collection here", hint="GET /v1/collections lists what there is."
        )

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

    async def search(self, name: str, query: str, top_k: int, mode: Mode) -> SearchResponse:
        """Search one collection."""
        if self._awaited:
            return await self._await(name, lambda retriever: retriever.asearch(query, top_k, mode=mode))
        return await self.ask(name, lambda retriever: retriever.search(query, top_k, mode=mode))

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
    ) -> list[SearchFound]:
        """Search for several queries, all in one state of the collection, and say which of their words to mark."""

        def search(retriever: Retriever) -> list[SearchFound]:
            _check_mode(retriever, mode)
            return _found(
                retriever,
                retriever.search_batch(queries, top_k, filters, min_score, mode=mode, group_by=group_by),
            )

        async def asearch(retriever: Retriever) -> list[SearchFound]:
            await asyncio.to_thread(_check_mode, retriever, mode)
            responses = await retriever.asearch_batch(
                queries, top_k, filters, min_score, mode=mode, group_by=group_by
            )
            return await asyncio.to_thread(_found, retriever, responses)

        return await (self._await(name, asearch) if self._awaited else self.ask(name, search))

    async def related(
        self,
        name: str,
        selection: str,
        question: str | None,
        top_k: int,
        filters: Filters,
        mode: Mode = "hybrid",
    ) -> SearchFound:
        """Find what goes with a selected text."""

        def search(retriever: Retriever) -> SearchFound:
            _check_mode(retriever, mode)
            return _found(retriever, [retriever.related(selection, question, top_k, filters, mode=mode)])[0]

        async def asearch(retriever: Retriever) -> SearchFound:
            await asyncio.to_thread(_check_mode, retriever, mode)
            response = await retriever.arelated(selection, question, top_k, filters, mode=mode)
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
                    outline_of(
                        index.scroll(), index.info.fingerprint.modules if index.info.fingerprint else ()
                    ),
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


def _found(retriever: Retriever, responses: Sequence[SearchResponse]) -> list[SearchFound]:
    return [SearchFound(response, response_words(retriever, response)) for response in responses]


def _check_mode(retriever: Retriever, mode: Mode) -> None:
    """Refuse a lexical search of a collection that cannot be searched so, as the caller's mistake."""
    if mode == "lexical" and retriever.analyze(mode) is None:
        raise InvalidArgument(
            "This collection has no lexical vectors", hint='Use the mode "hybrid" or "dense".'
        )


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
                f"Collection '{self._name}' does not exist",
                hint=f"Index a book with `recto index PATH --collection {self._name}`.",
            ) from error

"""Share engines among requests: batch the queries of many threads, and fail fast while an engine is down."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice

from recto.errors import ErrorKind, RectoError, Unreachable
from recto.protocols import Embedder, embedder_abilities
from recto.server.limits import CallCancelled, CurrentRequest, current_request
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector

_PAUSE = 1.0  # seconds before the engine is called again
_MAX_PAUSE = 5.0  # a service that asks for more is tried earlier, so that users do not wait for minutes


class CircuitBreaker:
    """Fails fast while an engine is down; use it from one event loop."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, on_change: Callable[[int], None] = lambda _: None
    ) -> None:
        """Take a clock, and what is called with 1 when the circuit opens and with -1 when it closes."""
        self._clock = clock
        self._on_change = on_change
        self._error: Unreachable | None = None
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
        except BaseException as error:
            self._note(error)
            raise
        self._note(None)

    def _note(self, error: BaseException | None) -> None:
        """Open the circuit, close it, or leave it as it is: most errors say nothing about the engine."""
        self._probing = False
        if isinstance(error, asyncio.CancelledError) and not current_request().disconnected.is_set():
            self._set(Unreachable("The engine did not answer in time"))
        elif isinstance(error, Unreachable) and hasattr(error, "retry_after"):  # a transient error
            self._set(error)
        elif error is None or (isinstance(error, RectoError) and error.kind is not ErrorKind.ARGUMENT):
            self._set(None)

    def _set(self, error: Unreachable | None) -> None:
        if (error is None) != (self._error is None):
            self._on_change(-1 if error is None else 1)
        self._error = error
        if error is not None:
            seconds = getattr(error, "retry_after", None) or 0
            self._until = self._clock() + min(_MAX_PAUSE, max(_PAUSE, seconds))


MAX_BATCH = 16
_CHARACTERS_PER_TOKEN = 4  # an estimate: the tokenizer would cost more than it saves
_PROMPT_TOKENS = 16  # before the query of a context
_MAX_TOKENS = 512  # larger batches are not faster, and each query waits for the whole batch
_CALL_COST = 3.5  # overhead of a model call, in tokens; padding costs as much as text


@dataclass(eq=False, slots=True)
class _QueuedText:
    """A text that waits for the model."""

    text: str
    for_context: bool
    request: CurrentRequest
    vector: Future[Vector] = field(default_factory=Future)

    @property
    def tokens(self) -> float:
        """The estimated number of tokens."""
        return 2 + len(self.text) / _CHARACTERS_PER_TOKEN + (_PROMPT_TOKENS if self.for_context else 0)


class BatchingEmbedder:
    """Batches the queries of many threads without a timer: what arrives during a call is the next batch.

    The texts of cancelled requests are dropped.
    """

    def __init__(self, inner: Embedder, on_batch: Callable[[int], None] = lambda _: None) -> None:
        self._inner = inner
        self.warm_up, self.count_tokens = inner.warm_up, inner.count_tokens
        self.embed_documents = inner.embed_documents
        self._on_batch = on_batch
        self._model_thread = ThreadPoolExecutor(1, thread_name_prefix="recto-model")
        self._lock = threading.Lock()
        self._queue: list[_QueuedText] = []
        self._others: dict[str, BatchingEmbedder] = {}
        has = embedder_abilities(inner)
        self.abilities = replace(
            has,
            embed_context_queries=self._embed_context_queries if has.embed_context_queries else None,
            for_index=self._for_index if has.for_index else None,
        )

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

    def _for_index(self, fingerprint: EmbedderFingerprint) -> Embedder | None:
        """Return the embedder of the model that made an index, which batches, too."""
        for_index = embedder_abilities(self._inner).for_index
        other = for_index(fingerprint) if for_index else None
        if other is None:
            return None
        with self._lock:
            return self._others.setdefault(fingerprint.model, BatchingEmbedder(other, self._on_batch))

    def embed_query(self, text: str) -> Vector:
        """Embed one query, together with queries of other threads."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries, together with queries of other threads."""
        return self._wait(texts, for_context=False)

    def _embed_context_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries of contexts, together with queries of other threads."""
        return self._wait(texts, for_context=True)

    def close(self) -> None:
        """Close connections."""
        self._model_thread.shutdown(wait=False)
        self._inner.close()

    def _wait(self, texts: Sequence[str], *, for_context: bool) -> list[Vector]:
        queued = [_QueuedText(text, for_context, current_request()) for text in texts]
        with self._lock:
            self._queue += queued
        self._model_thread.submit(self._embed_queue)
        return [text.vector.result() for text in queued]

    def _embed_queue(self) -> None:
        """Embed what waits, batch by batch."""
        while batch := self._next_batch():
            self._embed(batch)

    def _next_batch(self) -> list[_QueuedText]:
        """Take the first text of the queue and texts that fit to it; drop cancelled requests."""
        with self._lock:
            for text in self._queue:
                if text.request.cancelled.is_set():
                    text.vector.set_exception(CallCancelled())
            waiting = [text for text in self._queue if not text.vector.done()]
            batch = _best_batch(waiting)
            rest = [text for text in waiting if text not in batch]
            # Requests take turns: other texts of this request wait, so that a long batch delays nobody.
            self._queue = sorted(rest, key=lambda text: text.request is batch[0].request)
            return batch

    def _embed(self, batch: list[_QueuedText]) -> None:
        """Give every text its vector or its error; raise nothing, because other threads wait."""
        try:
            self._on_batch(len(batch))
            vectors = self._inner_call(for_context=batch[0].for_context)([text.text for text in batch])
            for text, vector in list(zip(batch, vectors, strict=True)):
                text.vector.set_result(vector)
        except BaseException as error:  # noqa: BLE001 - each thread raises it for itself
            for text in batch:
                if isinstance(error, RectoError) and len(batch) > 1:  # a bad text must not fail the others
                    self._embed([text])
                else:
                    text.vector.set_exception(error)

    def _inner_call(self, *, for_context: bool) -> Callable[[Sequence[str]], list[Vector]]:
        """Return the method of the model for one kind of queries."""
        for_contexts = embedder_abilities(self._inner).embed_context_queries if for_context else None
        return for_contexts or self._inner.embed_queries


def _best_batch(waiting: list[_QueuedText]) -> list[_QueuedText]:
    """Return the first text and others of its kind that cost less beside it than in a call of their own.

    All texts of a batch are padded to the longest: a short query is expensive next to a long one.
    """
    if not waiting:
        return []
    same = (text for text in waiting if text.for_context == waiting[0].for_context)
    first, *others = islice(same, MAX_BATCH)
    batch, longest = [first], first.tokens
    for text in sorted(others, key=lambda other: abs(other.tokens - first.tokens)):
        padded = max(longest, text.tokens)
        added = padded * (len(batch) + 1) - longest * len(batch)
        if added <= _CALL_COST + text.tokens and padded * (len(batch) + 1) <= _MAX_TOKENS:
            batch.append(text)
            longest = padded
    return batch

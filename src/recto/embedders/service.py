"""What embedders of services share: batches, deadlines, retries, and connections per thread or event loop."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from recto._util.retry import (
    ClientPerLoop,
    DeadlineExceeded,
    Result,
    Steps,
    TransientEmbeddingError,
    arun,
    document_backoff,
    retried,
    retry_within,
    run,
)
from recto.errors import EmbeddingError, RectoError
from recto.plugins import Notify
from recto.protocols import Progress
from recto.types.search import Vector

QUERY, DOCUMENT = 0, 1
"""The kinds of texts; `OpenAIOptions.input_types` has this order."""


class ServiceClient(NamedTuple):
    """An HTTP client, and the function that calls the service with it; `sdk` is the official client."""

    client: Any
    send: Callable[..., Any]
    sdk: Any = None


class ServiceEmbedder(ABC):
    """Calls a service in batches: queries fail fast, documents are retried with backoff.

    A subclass connects to the service (`_connect`) and embeds one batch (`_embed_batch`).
    """

    batch_size: int
    document_seconds: float

    def __init__(self, notify: Notify, sleep: Callable[[float], None]) -> None:
        self._notify = notify
        self._sleep = sleep
        self._lock = threading.RLock()
        self._connection: ServiceClient | None = None
        self._async_connections = ClientPerLoop(partial(self._connect, is_async=True))

    @property
    @abstractmethod
    def query_seconds(self) -> float:
        """The seconds in which a call for queries must return."""

    def warm_up(self) -> None:
        """Import the HTTP client."""
        self._connected()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._connection is not None:
                self._connection.client.close()
                self._connection = None

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        connection = self._async_connections.pop()
        if connection is not None:
            await connection.client.aclose()

    def embed_query(self, text: str) -> Vector:
        """Embed one query."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries; retry only if the service asks for a wait that fits into the deadline."""
        self.warm_up()
        return self._run(self._embed_queries(texts))

    async def aembed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries without blocking the event loop; see `embed_queries`."""
        from asyncio import to_thread

        await to_thread(self.warm_up)
        return await arun(self._embed_queries(texts), self._async_connections.get().send)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks; retry transient errors."""
        self.warm_up()
        return self._run(self._embed_documents(texts, progress))

    @abstractmethod
    def _connect(self, *, is_async: bool = False) -> ServiceClient:
        """Open a client."""

    @abstractmethod
    def _embed_batch(self, texts: Sequence[str], kind: int, deadline: float) -> Steps[list[Vector]]:
        """Embed at most `batch_size` texts."""

    def _wait_for_turn(self, texts: Sequence[str]) -> None:  # noqa: B027 - not every service needs it
        """Wait until documents may be sent."""

    def _batches(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        size = self.batch_size
        return (texts[start : start + size] for start in range(0, len(texts), size))

    def _embed_queries(self, texts: Sequence[str]) -> Steps[list[Vector]]:
        deadline = time.monotonic() + self.query_seconds
        vectors: list[Vector] = []
        for batch in self._batches(texts):
            embed = partial(self._embed_batch, batch, QUERY, deadline)
            vectors += yield from retried(embed, retry_within(deadline))
        return vectors

    def _embed_documents(self, texts: Sequence[str], progress: Progress | None) -> Steps[list[Vector]]:
        vectors: list[Vector] = []
        for batch in self._batches(texts):

            def embed(batch: Sequence[str] = batch) -> Steps[list[Vector]]:
                self._wait_for_turn(batch)
                return self._embed_batch(batch, DOCUMENT, time.monotonic() + self.document_seconds)

            vectors += yield from retried(embed, document_backoff(self._notify))
            if progress:
                progress(len(vectors), len(texts))
        return vectors

    def _connected(self) -> ServiceClient:
        with self._lock:
            self._connection = self._connection or self._connect()
            return self._connection

    def _run(self, steps: Steps[Result]) -> Result:
        return run(steps, self._connected().send, self._sleep)


def connection_error(service: str, error: Exception, hint: str) -> RectoError:
    """Return Recto's error for an error of the HTTP client."""
    name = type(error).__name__
    if isinstance(error, DeadlineExceeded) or "Timeout" in name:
        return TransientEmbeddingError(f"{service} did not answer in time", hint=hint)
    if name == "ResponseTooLarge":
        return EmbeddingError(f"{service} sends more than the vectors that were asked for", hint=hint)
    return TransientEmbeddingError(f"Cannot connect to {service}", hint=hint)

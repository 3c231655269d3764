"""Embed with Cohere's API through the official SDK, with Recto's own deadlines, retries and checks."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from recto._util.retry import (
    Call,
    ClientPerLoop,
    DeadlineExceeded,
    Steps,
    TransientEmbeddingError,
    arun,
    document_backoff,
    redacted,
    retried,
    retry_after,
    retry_within,
    run,
)
from recto.embedders import normalize_vectors
from recto.errors import ConfigurationError, EmbeddingError, RectoError, missing_extra
from recto.plugins import Notify
from recto.protocols import Progress
from recto.settings import Settings
from recto.types.index import CostEstimate, EmbedderFingerprint
from recto.types.search import Vector

if TYPE_CHECKING:
    import cohere

_NOTIFY_FROM = 2.0  # seconds; shorter waits are not worth a message
_BATCH = 96  # the most texts that a call may have
_LARGEST_RESPONSE = 8 << 20  # bytes: 96 vectors of 1536 numbers take less than 4 MiB
_QUERY_SECONDS = 10.0
_DOCUMENT_SECONDS = 60.0
_WORD = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")
_LATER = "Try again in a moment; https://status.cohere.com shows whether the service has a problem."


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What a key may send in a number of seconds."""

    calls: float = math.inf
    inputs: float = math.inf
    tokens: float = math.inf
    seconds: float = 60.0


PACES = {
    "trial": RateLimit(calls=100, inputs=2000, tokens=100_000),
    "production": RateLimit(calls=2000, inputs=2000),
    "off": RateLimit(),
}
"""The rate limits by the values of COHERE_PACE."""


@dataclass(frozen=True, slots=True)
class CohereModel:
    """Properties of a model, which the API does not report."""

    dim: int
    max_tokens: int
    dollars: float | None = None  # per million tokens, as listed in 2026


MODELS = {
    "embed-english-v3.0": CohereModel(1024, 512, 0.10),
    "embed-multilingual-v3.0": CohereModel(1024, 512, 0.10),
    "embed-english-light-v3.0": CohereModel(384, 512, 0.10),
    "embed-multilingual-light-v3.0": CohereModel(384, 512, 0.10),
    "embed-v4.0": CohereModel(1536, 128_000, 0.12),
}


class Throttle:
    """Delays calls so that they stay within a rate limit, whenever its seconds begin."""

    def __init__(
        self,
        limit: RateLimit,
        notify: Notify,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit = limit
        self._notify = notify
        self._clock = clock
        self._sleep = sleep
        self._sent: deque[tuple[float, int, int]] = deque()

    def wait(self, inputs: int, tokens: int) -> None:
        """Wait until a call of this size is allowed, and record it."""
        pause = self._pause(inputs, tokens)
        if pause >= _NOTIFY_FROM:
            self._notify(f"Waiting {math.ceil(pause)} s for the rate limit of the key")
        if pause > 0:
            self._sleep(pause)
        self._sent.append((self._clock(), inputs, tokens))

    def _pause(self, inputs: int, tokens: int) -> float:
        now, limit, pause = self._clock(), self._limit, 0.0
        while self._sent and now - self._sent[0][0] >= limit.seconds:
            self._sent.popleft()
        calls = len(self._sent) + 1
        inputs += sum(sent[1] for sent in self._sent)
        tokens += sum(sent[2] for sent in self._sent)
        for when, old_inputs, old_tokens in self._sent:
            if calls <= limit.calls and inputs <= limit.inputs and tokens <= limit.tokens:
                break
            calls, inputs, tokens = calls - 1, inputs - old_inputs, tokens - old_tokens
            pause = when + limit.seconds - now
        return pause


def open_cohere(settings: Settings, notify: Notify) -> CohereEmbedder:
    """Return the Cohere embedder that the settings describe."""
    return CohereEmbedder(
        settings.cohere_api_key, settings.model, settings.cohere_api_url, PACES[settings.cohere_pace], notify
    )


class CohereEmbedder:
    """Embeds with Cohere: queries fail fast, documents keep the rate limit and are retried with backoff."""

    def __init__(
        self,
        api_key: str,
        model: str,
        url: str,
        limit: RateLimit,
        notify: Notify,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if model not in MODELS:
            raise ConfigurationError(
                f"RECTO_MODEL={model} is not a Cohere model that Recto supports",
                hint=f"Supported: {', '.join(MODELS)}.",
            )
        self.dim, self.max_tokens = MODELS[model].dim, MODELS[model].max_tokens
        # Cohere's models have no revisions.
        self.fingerprint = EmbedderFingerprint(f"cohere/{model}", "1", self.dim, variant="float")
        self._api_key = api_key
        self._model = model
        self._url = url
        self._notify = notify
        self._sleep = sleep
        self._throttle = Throttle(limit, notify, sleep=sleep)
        self._client: cohere.ClientV2 | None = None
        self._async_clients = ClientPerLoop(self._async_client)
        self._connecting = threading.Lock()

    def estimate(self, texts: int, tokens: int) -> CostEstimate:
        """Estimate calls, minutes with a trial key, and cost."""
        calls, trial = math.ceil(texts / _BATCH), PACES["trial"]
        minutes = max(calls / trial.calls, texts / trial.inputs, tokens / trial.tokens)
        price = MODELS[self._model].dollars
        cost = None if price is None else round(price * tokens / 1e6, 6)
        return CostEstimate(calls, round(minutes, 2), cost)

    @property
    def client(self) -> cohere.ClientV2:
        """The SDK's client, with its own retries off."""
        with self._connecting:
            if self._client is None:
                try:
                    from cohere import ClientV2
                except ImportError as error:
                    raise missing_extra("Cohere", "cloud") from error
                import httpx

                from recto._util.http import bounded

                client = httpx.Client(**bounded(_LARGEST_RESPONSE, _DOCUMENT_SECONDS))
                self._client = ClientV2(
                    self._api_key, base_url=self._url or None, max_retries=0, httpx_client=client
                )
            return self._client

    def warm_up(self) -> None:
        """Import the SDK."""
        _ = self.client

    def close(self) -> None:
        """Close the connections."""
        with self._connecting:
            if self._client is not None:
                self._client.__exit__(None, None, None)  # type: ignore[no-untyped-call]
                self._client = None

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._async_clients.pop()
        if client is not None:
            await client.__aexit__(None, None, None)  # type: ignore[no-untyped-call]

    def count_tokens(self, text: str) -> int:
        """Return an upper bound of a text's tokens: Cohere's tokenizer cannot be used offline."""
        return 2 + sum(
            (len(piece) + 3) // 4 if piece.isascii() else len(piece.encode()) for piece in _WORD.findall(text)
        )

    def embed_query(self, text: str) -> Vector:
        """Embed one query."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries; retry only if the service asks for a wait that fits into the deadline."""
        return run(self._embed_queries(texts), self.client.embed, self._sleep)

    async def aembed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries without blocking the event loop; see `embed_queries`."""
        return await arun(self._embed_queries(texts), self._async_clients.get().embed)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks within the rate limit; retry transient errors."""
        return run(self._embed_documents(texts, progress), self.client.embed, self._sleep)

    def _embed_queries(self, texts: Sequence[str]) -> Steps[list[Vector]]:
        deadline = time.monotonic() + _QUERY_SECONDS
        vectors: list[Vector] = []
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            embed = partial(self._embed, batch, "search_query", "END", deadline)
            vectors += yield from retried(embed, retry_within(deadline))
        return vectors

    def _embed_documents(self, texts: Sequence[str], progress: Progress | None) -> Steps[list[Vector]]:
        vectors: list[Vector] = []
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]

            def embed(batch: Sequence[str] = batch) -> Steps[list[Vector]]:
                self._throttle.wait(len(batch), sum(map(self.count_tokens, batch)))
                return self._embed(batch, "search_document", "NONE", time.monotonic() + _DOCUMENT_SECONDS)

            vectors += yield from retried(embed, document_backoff(self._notify))
            if progress:
                progress(len(vectors), len(texts))
        return vectors

    def _embed(self, texts: Sequence[str], kind: str, truncate: str, deadline: float) -> Steps[list[Vector]]:
        seconds = deadline - time.monotonic()
        arguments = {
            "texts": list(texts),
            "model": self._model,
            "input_type": kind,
            "embedding_types": ["float"],
            "truncate": truncate,
            "request_options": {"timeout_in_seconds": max(1, int(seconds + 0.5)), "max_retries": 0},
        }
        answer = yield Call(arguments, seconds)
        if isinstance(answer, Exception):
            raise self._translated(answer) from None  # the SDK's message contains all headers
        return self._vectors(answer, len(texts))

    def _async_client(self) -> cohere.AsyncClientV2:
        self.warm_up()  # names the missing extra
        import httpx
        from cohere import AsyncClientV2

        from recto._util.http import bounded

        client = httpx.AsyncClient(**bounded(_LARGEST_RESPONSE, _DOCUMENT_SECONDS, is_async=True))
        return AsyncClientV2(self._api_key, base_url=self._url or None, max_retries=0, httpx_client=client)

    def _vectors(self, answer: Any, count: int) -> list[Vector]:
        """Return the vectors of a response, which the SDK does not check."""
        rows = getattr(getattr(answer, "embeddings", None), "float_", None)
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise TransientEmbeddingError("Cohere's response has no vectors", hint=_LATER)
        try:
            return normalize_vectors(rows, count, self.dim)
        except (ValueError, TypeError, OverflowError) as error:
            raise TransientEmbeddingError("Cohere's response has no usable vectors", hint=_LATER) from error

    def _translated(self, error: Exception) -> RectoError:  # noqa: PLR0911 - a table
        """Return Recto's error for one of the SDK, with the service's own message but no request data."""
        status = getattr(error, "status_code", None)
        if isinstance(error, DeadlineExceeded) or "Timeout" in type(error).__name__:
            return TransientEmbeddingError("Cohere did not answer in time", hint=_LATER)
        if type(error).__name__ == "ResponseTooLarge":
            return EmbeddingError(
                "Cohere sends more than the vectors that were asked for", hint="Check COHERE_API_URL."
            )
        if status in (401, 403, 498):
            return ConfigurationError(
                "Cohere refuses the key in COHERE_API_KEY",
                hint="Check the key at https://dashboard.cohere.com/api-keys.",
            )
        if status == 429:
            pause = retry_after(getattr(error, "headers", None) or {})
            when = "in a minute, or use a production key" if pause is None else f"in {pause:.0f} s"
            return TransientEmbeddingError(
                "Cohere's rate limit is reached", hint=f"Try again {when}.", retry_after=pause
            )
        if isinstance(status, int) and 400 <= status < 500:
            message = redacted(_message(getattr(error, "body", None)), self._api_key)
            return EmbeddingError(
                f"Cohere refuses the request ({status}): {message}", hint="Check RECTO_MODEL and the texts."
            )
        if isinstance(status, int) and status >= 500:
            return TransientEmbeddingError(f"Cohere is not available ({status})", hint=_LATER)
        if isinstance(status, int) or isinstance(error, ValueError | RecursionError):
            return TransientEmbeddingError(
                "Cohere's response cannot be parsed",
                hint="Check COHERE_API_URL; a proxy may have replaced the response.",
            )
        where = self._url or "https://api.cohere.com"
        return TransientEmbeddingError(
            f"Cannot connect to Cohere at {where}", hint="Check the network, then try again."
        )


def _message(body: Any) -> str:
    text = body.get("message") if isinstance(body, dict) else body
    return str(text)[:300] if text else "no reason given"

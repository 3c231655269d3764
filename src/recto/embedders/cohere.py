"""Embed with Cohere's API through the official SDK, with Recto's own deadlines, retries and checks."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recto._util.retry import Call, Steps, TransientEmbeddingError, redacted, retry_after
from recto.embedders import normalize_vectors
from recto.embedders.model_cards import model_languages
from recto.embedders.service import QUERY, ServiceClient, ServiceEmbedder, connection_error
from recto.errors import ConfigurationError, EmbeddingError, RectoError, missing_extra
from recto.plugins import Notify
from recto.settings import Settings
from recto.types.index import CostEstimate, EmbedderFingerprint
from recto.types.search import Vector

if TYPE_CHECKING:
    import cohere

_NOTIFY_FROM = 2.0  # seconds; shorter waits are not worth a message
_LARGEST_RESPONSE = 8 << 20  # bytes: 96 vectors of 1536 numbers take less than 4 MiB
_QUERY_SECONDS = 10.0  # a reader waits for them
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


class CohereEmbedder(ServiceEmbedder):
    """Embeds with Cohere, and keeps the rate limit of the key."""

    batch_size = 96  # the most texts that a call may have
    document_seconds = 60.0

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
        super().__init__(notify, sleep)
        self.dim, self.max_tokens = MODELS[model].dim, MODELS[model].max_tokens
        # Cohere's models have no revisions.
        self.languages = model_languages(model)
        self.fingerprint = EmbedderFingerprint(f"cohere/{model}", "1", self.dim, variant="float")
        self._api_key = api_key
        self._model = model
        self._url = url
        self._throttle = Throttle(limit, notify, sleep=sleep)

    @property
    def query_seconds(self) -> float:
        """The seconds in which a call for queries must return."""
        return _QUERY_SECONDS

    def estimate(self, texts: int, tokens: int) -> CostEstimate:
        """Estimate calls, minutes with a trial key, and cost."""
        calls, trial = math.ceil(texts / self.batch_size), PACES["trial"]
        minutes = max(calls / trial.calls, texts / trial.inputs, tokens / trial.tokens)
        price = MODELS[self._model].dollars
        cost = None if price is None else round(price * tokens / 1e6, 6)
        return CostEstimate(calls, round(minutes, 2), cost)

    def count_tokens(self, text: str) -> int:
        """Return an upper bound of a text's tokens: Cohere's tokenizer cannot be used offline."""
        return 2 + sum(
            (len(piece) + 3) // 4 if piece.isascii() else len(piece.encode()) for piece in _WORD.findall(text)
        )

    @property
    def client(self) -> cohere.ClientV2:
        """The SDK's client."""
        client: cohere.ClientV2 = self._connected().sdk
        return client

    def _connect(self, *, is_async: bool = False) -> ServiceClient:
        """Open the SDK's client, with its own retries off."""
        try:
            from cohere import AsyncClientV2, ClientV2
        except ImportError as error:
            raise missing_extra("Cohere", "cloud") from error
        import httpx

        from recto._util.http import bounded

        options = bounded(_LARGEST_RESPONSE, self.document_seconds, is_async=is_async)
        client: Any = httpx.AsyncClient(**options) if is_async else httpx.Client(**options)
        new_sdk: Any = AsyncClientV2 if is_async else ClientV2
        sdk = new_sdk(self._api_key, base_url=self._url or None, max_retries=0, httpx_client=client)
        return ServiceClient(client, sdk.embed, sdk)

    def _wait_for_turn(self, texts: Sequence[str]) -> None:
        self._throttle.wait(len(texts), sum(map(self.count_tokens, texts)))

    def _embed_batch(self, texts: Sequence[str], kind: int, deadline: float) -> Steps[list[Vector]]:
        seconds = deadline - time.monotonic()
        arguments = {
            "texts": list(texts),
            "model": self._model,
            "input_type": "search_query" if kind == QUERY else "search_document",
            "embedding_types": ["float"],
            "truncate": "END" if kind == QUERY else "NONE",
            "request_options": {"timeout_in_seconds": max(1, int(seconds + 0.5)), "max_retries": 0},
        }
        answer = yield Call(arguments, seconds)
        if isinstance(answer, Exception):
            raise self._translated(answer) from None  # the SDK's message contains all headers
        return self._vectors(answer, len(texts))

    def _vectors(self, answer: Any, count: int) -> list[Vector]:
        """Return the vectors of a response, which the SDK does not check."""
        rows = getattr(getattr(answer, "embeddings", None), "float_", None)
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise TransientEmbeddingError("Cohere's response has no vectors", hint=_LATER)
        try:
            return normalize_vectors(rows, count, self.dim)
        except (ValueError, TypeError, OverflowError) as error:
            raise TransientEmbeddingError("Cohere's response has no usable vectors", hint=_LATER) from error

    def _translated(self, error: Exception) -> RectoError:
        """Return Recto's error for one of the SDK, with the service's own message but no request data."""
        status = getattr(error, "status_code", None)
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
        return connection_error("Cohere", error, f"Check the network and COHERE_API_URL. {_LATER}")


def _message(body: Any) -> str:
    text = body.get("message") if isinstance(body, dict) else body
    return str(text)[:300] if text else "no reason given"

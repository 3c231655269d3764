"""Cohere's embedding service through its official SDK, with our own deadline, retries and checks."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recto._util.retry import (
    ClientPerLoop,
    DeadlineExceeded,
    Notify,
    aretry,
    awith_timeout,
    redacted,
    retry,
    with_timeout,
)
from recto.embedders.vectors import checked
from recto.errors import ConfigurationError, EmbeddingError, RectoError, missing_extra
from recto.protocols import Progress
from recto.settings import Settings
from recto.types import CostEstimate, EmbedderFingerprint, Vector

_MINUTE = 60.0
_WORTH_TELLING = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Pace:
    """What a key may do within a minute."""

    calls: float = math.inf
    inputs: float = math.inf
    tokens: float = math.inf


TRIAL = Pace(calls=100, inputs=2000, tokens=100_000)
PRODUCTION = Pace(calls=2000, inputs=2000)
PACES = {"trial": TRIAL, "production": PRODUCTION, "off": Pace()}


class Pacer:
    """Waits before a call that would go beyond the pace of the last sixty seconds."""

    def __init__(
        self,
        pace: Pace,
        notify: Notify,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pace = pace
        self._notify = notify
        self._clock = clock
        self._sleep = sleep
        self._sent: deque[tuple[float, int, int]] = deque()

    def wait(self, inputs: int, tokens: int) -> None:
        """Wait until a call with so many inputs and tokens is allowed, and note it."""
        pause = self._pause(inputs, tokens)
        if pause >= _WORTH_TELLING:
            self._notify(f"Keeping to the key's limits per minute: waiting {math.ceil(pause)} s")
        if pause > 0:
            self._sleep(pause)
        self._sent.append((self._clock(), inputs, tokens))

    def _pause(self, inputs: int, tokens: int) -> float:
        now, pace = self._clock(), self._pace
        while self._sent and now - self._sent[0][0] >= _MINUTE:
            self._sent.popleft()
        calls, all_inputs, all_tokens, pause = (
            len(self._sent),
            sum(sent[1] for sent in self._sent),
            sum(sent[2] for sent in self._sent),
            0.0,
        )
        for when, old_inputs, old_tokens in self._sent:
            if (
                calls + 1 <= pace.calls
                and all_inputs + inputs <= pace.inputs
                and all_tokens + tokens <= pace.tokens
            ):
                break
            calls, all_inputs, all_tokens = calls - 1, all_inputs - old_inputs, all_tokens - old_tokens
            pause = when + _MINUTE - now
        return pause


if TYPE_CHECKING:
    import cohere

DEFAULT_MODEL = "embed-english-v3.0"
_BATCH = 96
_QUERY_SECONDS = 10.0
_QUERY_TRIES = 3
_DOCUMENT_SECONDS = 60.0
_DOCUMENT_TRIES = 6
_LONGEST_WAIT = 60.0
_WORD = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")
_LATER = "Try again in a moment; https://status.cohere.com tells whether the service has a problem."


@dataclass(frozen=True, slots=True)
class CohereModel:
    """What must be known of a model beforehand."""

    dim: int
    max_tokens: int
    dollars: float | None = None  # per million tokens, as listed in 2026; a price may have changed since


MODELS = {
    "embed-english-v3.0": CohereModel(1024, 512, 0.10),
    "embed-multilingual-v3.0": CohereModel(1024, 512, 0.10),
    "embed-english-light-v3.0": CohereModel(384, 512, 0.10),
    "embed-multilingual-light-v3.0": CohereModel(384, 512, 0.10),
    "embed-v4.0": CohereModel(1536, 128_000, 0.12),
}


def open_cohere(settings: Settings, notify: Notify) -> CohereEmbedder:
    """Return the Cohere embedder that the settings describe."""
    return CohereEmbedder(
        settings.cohere_api_key, settings.model, settings.cohere_api_url, PACES[settings.cohere_pace], notify
    )


class CohereEmbedder:
    """Asks the service; a question is asked once and quickly, passages are sent patiently and at the key's pace."""

    def __init__(
        self,
        api_key: str,
        model: str,
        url: str,
        pace: Pace,
        notify: Notify,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if model not in MODELS:
            raise ConfigurationError(
                f"RECTO_MODEL={model} is not a Cohere model that Recto knows",
                hint=f"Known: {', '.join(MODELS)}.",
            )
        self._api_key = api_key
        self._model = model
        self._url = url
        self._notify = notify
        self._sleep = sleep
        self._pacer = Pacer(pace, notify, sleep=sleep)
        self._client: cohere.ClientV2 | None = None
        self._async_clients = ClientPerLoop(self._async_client)
        self._connecting = threading.Lock()

    def estimate(self, texts: int, tokens: int) -> CostEstimate:
        """Say what embedding so many passages will take."""
        calls = math.ceil(texts / _BATCH)
        minutes = max(calls / TRIAL.calls, texts / TRIAL.inputs, tokens / TRIAL.tokens)
        price = MODELS[self._model].dollars
        return CostEstimate(
            calls, round(minutes, 2), None if price is None else round(price * tokens / 1e6, 6)
        )

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """What identifies the vectors; Cohere's models have no revisions."""
        return EmbedderFingerprint(f"cohere/{self._model}", "1", self.dim, variant="float")

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return MODELS[self._model].dim

    @property
    def max_tokens(self) -> int:
        """The longest text that the model reads whole."""
        return MODELS[self._model].max_tokens

    @property
    def client(self) -> cohere.ClientV2:
        """The SDK's client, with its own retries off."""
        with self._connecting:
            if self._client is None:
                try:
                    from cohere import ClientV2
                except ImportError as error:
                    raise missing_extra("Cohere", "cloud") from error
                self._client = ClientV2(self._api_key, base_url=self._url or None, max_retries=0)
            return self._client

    def warm_up(self) -> None:
        """Load the SDK."""
        _ = self.client

    def close(self) -> None:
        """Let go of the connections."""
        with self._connecting:
            if self._client is not None:
                self._client.__exit__(None, None, None)  # type: ignore[no-untyped-call]
                self._client = None

    async def aclose(self) -> None:
        """Let go of the running event loop's connections."""
        client = self._async_clients.pop()
        if client is not None:
            await client.__aexit__(None, None, None)  # type: ignore[no-untyped-call]

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens of a text from above: the service's tokenizer cannot be had without a network."""
        return 2 + sum(
            (len(piece) + 3) // 4 if piece.isascii() else len(piece.encode()) for piece in _WORD.findall(text)
        )

    def embed_query(self, text: str) -> Vector:
        """Embed one question."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several questions; a failure is told at once, only a short wait that the service asks for is granted."""
        deadline = time.monotonic() + _QUERY_SECONDS
        wait_for = _until(deadline)
        vectors: list[Vector] = []
        for batch in _batches(texts):
            vectors += retry(
                lambda batch=batch: self._ask(batch, "search_query", "END", deadline),  # type: ignore[misc]
                wait_for,
                self._sleep,
            )
        return vectors

    async def aembed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several questions without holding up the event loop; see `embed_queries`."""
        deadline = time.monotonic() + _QUERY_SECONDS
        wait_for = _until(deadline)
        vectors: list[Vector] = []
        for batch in _batches(texts):
            vectors += await aretry(lambda batch=batch: self._aask(batch, deadline), wait_for)  # type: ignore[misc]
        return vectors

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed passages at the key's pace; passing troubles are waited for."""
        vectors: list[Vector] = []
        for batch in _batches(texts):
            tokens = sum(self.count_tokens(text) for text in batch)

            def send(batch: Sequence[str] = batch, tokens: int = tokens) -> list[Vector]:
                self._pacer.wait(len(batch), tokens)
                return self._ask(batch, "search_document", "NONE", time.monotonic() + _DOCUMENT_SECONDS)

            vectors += retry(send, self._patience, self._sleep)
            if progress:
                progress(len(vectors), len(texts))
        return vectors

    def _patience(self, failures: int, error: Exception) -> float | None:
        if not isinstance(error, _Passing) or failures >= _DOCUMENT_TRIES:
            return None
        pause = min(
            _LONGEST_WAIT, error.retry_after if error.retry_after is not None else 2.0 ** (failures - 1)
        )
        self._notify(f"{error.message}: waiting {pause:.0f} s (try {failures + 1} of {_DOCUMENT_TRIES})")
        return pause

    def _ask(self, texts: Sequence[str], input_type: str, truncate: str, deadline: float) -> list[Vector]:
        remaining = deadline - time.monotonic()
        client = self.client
        try:
            answer = with_timeout(
                lambda: client.embed(**self._request(texts, input_type, truncate, remaining)), remaining
            )
        except Exception as error:  # noqa: BLE001 - every failure of the SDK becomes one of ours
            raise self._translated(error) from None  # the SDK's own text has all headers in it
        return self._vectors(answer, len(texts))

    async def _aask(self, texts: Sequence[str], deadline: float) -> list[Vector]:
        remaining = deadline - time.monotonic()
        client = self._async_clients.get()
        try:
            answer = await awith_timeout(
                client.embed(**self._request(texts, "search_query", "END", remaining)), remaining
            )
        except Exception as error:  # noqa: BLE001 - every failure of the SDK becomes one of ours
            raise self._translated(error) from None
        return self._vectors(answer, len(texts))

    def _request(
        self, texts: Sequence[str], input_type: str, truncate: str, seconds: float
    ) -> dict[str, Any]:
        return {
            "texts": list(texts),
            "model": self._model,
            "input_type": input_type,
            "embedding_types": ["float"],
            "truncate": truncate,
            "request_options": {"timeout_in_seconds": max(1, int(seconds + 0.5)), "max_retries": 0},
        }

    def _async_client(self) -> cohere.AsyncClientV2:
        self.warm_up()  # says which extra is missing
        from cohere import AsyncClientV2

        return AsyncClientV2(self._api_key, base_url=self._url or None, max_retries=0)

    def _vectors(self, answer: Any, count: int) -> list[Vector]:
        """Check everything that came back: the SDK checks nothing."""
        found = getattr(getattr(answer, "embeddings", None), "float_", None)
        if not isinstance(found, list) or not all(isinstance(row, list) for row in found):
            raise _Passing("Cohere's answer has no vectors in it", hint=_LATER)
        try:
            return checked(found, count, self.dim)
        except (ValueError, TypeError) as error:
            raise _Passing("Cohere's answer has no usable vectors in it", hint=_LATER) from error

    def _translated(self, error: Exception) -> RectoError:  # noqa: PLR0911 - a table
        """Return our error for the SDK's; its text never contains more than the service's own message."""
        status = getattr(error, "status_code", None)
        if isinstance(error, DeadlineExceeded) or "Timeout" in type(error).__name__:
            return _Passing("Cohere did not answer in time", hint=_LATER)
        if status in (401, 403, 498):
            return ConfigurationError(
                "Cohere refuses the key in COHERE_API_KEY",
                hint="Check the key at https://dashboard.cohere.com/api-keys.",
            )
        if status == 429:
            pause = _retry_after(getattr(error, "headers", None))
            hint = (
                f"Try again in {pause:.0f} s."
                if pause is not None
                else "Try again in a minute, or use a production key."
            )
            return _Passing("Cohere's rate limit is reached", hint=hint, retry_after=pause)
        if isinstance(status, int) and 400 <= status < 500:
            message = redacted(_message(getattr(error, "body", None)), self._api_key)
            return EmbeddingError(
                f"Cohere refuses the request ({status}): {message}", hint="Check RECTO_MODEL and the texts."
            )
        if isinstance(status, int) and status >= 500:
            return _Passing(f"Cohere is not available ({status})", hint=_LATER)
        if isinstance(status, int):
            return _Passing(
                "Cohere's answer cannot be understood",
                hint="Check COHERE_API_URL; a proxy may be in the way.",
            )
        where = self._url or "https://api.cohere.com"
        return _Passing(f"Cannot connect to Cohere at {where}", hint="Check the network, then try again.")


class _Passing(EmbeddingError):
    """A trouble that may be gone at the next try; `retry_after` is what the service asked for."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


def _until(deadline: float) -> Callable[[int, Exception], float | None]:
    """Grant a question the waits that the service asks for, as long as they fit."""

    def wait_for(failures: int, error: Exception) -> float | None:
        pause = getattr(error, "retry_after", None)
        granted = pause is not None and failures < _QUERY_TRIES and time.monotonic() + pause < deadline
        return pause if granted else None

    return wait_for


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), _BATCH):
        yield texts[start : start + _BATCH]


def _retry_after(headers: Any) -> float | None:
    value = headers.get("retry-after") if isinstance(headers, dict) else None
    try:
        return max(0.0, float(value)) if value is not None else None
    except ValueError:
        return None


def _message(body: Any) -> str:
    text = body.get("message") if isinstance(body, dict) else body
    return str(text)[:300] if text else "no reason given"

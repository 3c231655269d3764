"""Embed with a server that has OpenAI's embeddings API, such as Ollama, vLLM, OpenAI or Azure.

Such a server says little about its model, and some of them hide problems. Before the first use, the embedder
asks for the vectors of two fixed texts: they give the dimension, and the fingerprint by which another model
of the same name is noticed. Before the first documents, it checks that the server reads texts to their end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from math import hypot, inf
from typing import TYPE_CHECKING, Any, NamedTuple

from recto._util import PROBE_TEXTS, cosine, probe_revision
from recto._util.retry import ClientPerLoop, Result, Steps, arun, document_backoff, retried, retry_within, run
from recto.embedders import text_too_long
from recto.embedders.openai_wire import (
    DOCUMENT,
    QUERY,
    Endpoint,
    InputTooLarge,
    KnownModel,
    ModelMissing,
    count_tokens,
    known_model,
    to_vectors,
)
from recto.errors import ConfigurationError, EmbeddingError, FingerprintMismatch, missing_extra
from recto.plugins import Notify
from recto.protocols import Progress
from recto.settings import OpenAIOptions, Settings
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector

if TYPE_CHECKING:
    import httpx

_QUERY_SECONDS = 30.0  # a local server may have to load the model first
_DOCUMENT_SECONDS = 120.0
_PROBE_SECONDS = 60.0
_PROBE_TRIES = 30
_CHECK_AGAIN = 1.0
"""Seconds after which a query also asks for the vector of a probe, to notice that the model was replaced.

A server can be restarted with another model between two calls without any error of a connection. Calls for
documents always ask for it, so that an index never gets vectors of two models.
"""
_BROKEN = ("ReadError", "RemoteProtocolError", "WriteError")
"""Errors of a connection that the server has closed; a new connection is tried once.

vLLM often closes a connection after it has refused a request, without saying so.
"""
_DEFAULT_MAX_TOKENS = 512
_SHORT = 100  # tokens that every model reads
_STEP = 64  # lengths are checked in steps of so many tokens
_SAME_TEXT = 0.99999  # the least cosine of one text with itself
_SAME_MODEL = 0.999
_FILLER = ("the", "soil", "and", "the", "rain", "feed", "a", "tree", "in", "the", "old", "park")


class Probe(NamedTuple):
    """What the server returns for the fixed texts, and whether it had normalised the vectors.

    `references` are the vectors of the first text as a query and as a document.
    """

    references: tuple[Vector, Vector]
    revision: str
    normalised: bool
    dim: int


def open_openai(settings: Settings, notify: Notify) -> OpenAIEmbedder:
    """Return the embedder of the endpoint that the settings describe."""
    return OpenAIEmbedder(settings.openai, settings.model, notify)


class OpenAIEmbedder:
    """Embeds with a server: queries fail fast, documents are retried, and what comes back is checked."""

    def __init__(
        self, options: OpenAIOptions, model: str, notify: Notify, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        card = known_model(model)
        self._options = options
        self._model = model
        self._query_prefix = card.query if options.query_prefix is None else options.query_prefix
        self._document_prefix = card.document if options.document_prefix is None else options.document_prefix
        self.max_tokens = options.max_tokens or card.max_tokens or _DEFAULT_MAX_TOKENS
        self._endpoint = Endpoint(options, model)
        self._notify = notify
        self._sleep = sleep
        self._batch = options.batch_size
        self._client: httpx.Client | None = None
        self._async_clients: ClientPerLoop[httpx.AsyncClient] = ClientPerLoop(
            lambda: _httpx().AsyncClient(**self._endpoint.client_options(is_async=True))
        )
        self._lock = threading.RLock()
        self._probe: Probe | None = None
        self._checked_at = -inf
        self._read_length = 0  # tokens up to which the server is known to read texts

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """The name of the model and its vectors of two fixed texts; the first use calls the server."""
        probe = self._probed()
        variant = f"prefix {self._document_prefix!r}" if self._document_prefix else "no prefix"
        return EmbedderFingerprint(
            f"openai/{self._model.removesuffix(':latest')}", probe.revision, probe.dim, variant
        )

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return self._probed().dim

    @property
    def batch_size(self) -> int:
        """The number of texts per call, without the probe."""
        return max(1, self._batch - 1)

    def warm_up(self) -> None:
        """Connect, and let the server load the model."""
        self._probed()

    def describe(self) -> tuple[str, ...]:
        """Return what is known about the endpoint and its model, and check that it reads a long text."""
        probe, card = self._probed(), known_model(self._model)
        self._check_length(min(self.max_tokens, 3 * _STEP))
        length_origin = "says the model card" if card.max_tokens else "assumed: set RECTO_OPENAI_MAX_TOKENS"
        if self._options.max_tokens:
            length_origin = "RECTO_OPENAI_MAX_TOKENS"
        is_known = card != KnownModel()
        origin = "of the model card" if is_known else "the model is not known: check its model card"
        return (
            f"Endpoint: {self._endpoint.shown}",
            f"Dimension {probe.dim}, {'normalised' if probe.normalised else 'not normalised: Recto does it'}",
            f"Reads {self.max_tokens} tokens ({length_origin}); "
            f"texts of {self._read_length} tokens are read to their end",
            f"Prefix of queries {self._query_prefix!r}, of documents {self._document_prefix!r} ({origin})",
        )

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._async_clients.pop()
        if client is not None:
            await client.aclose()

    def count_tokens(self, text: str) -> int:
        """Return an upper estimate of the tokens of a document: the server's tokenizer cannot be used."""
        return count_tokens(self._document_prefix, text)

    def token_counter(self) -> Callable[[str], int]:
        """Return what counts the tokens of documents in other processes."""
        return partial(count_tokens, self._document_prefix)

    def embed_query(self, text: str) -> Vector:
        """Embed one query."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries; retry only if the server asks for a wait that fits into the deadline."""
        self._probed()
        return self._run(self._embed(self._with_prefix(texts), QUERY))

    async def aembed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries without blocking the event loop; see `embed_queries`."""
        if self._probe is None:
            from asyncio import to_thread

            await to_thread(self._probed)
        return await arun(self._embed(self._with_prefix(texts), QUERY), self._async_clients.get().request)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks; retry transient errors, and split batches that are too large for the server."""
        lengths = [self.count_tokens(text) for text in texts]
        longest = max(lengths, default=0)
        if longest > self.max_tokens:
            raise text_too_long(texts[lengths.index(longest)], longest, self.max_tokens)
        self._probed()
        self._check_length(min(self.max_tokens, -(-longest // _STEP) * _STEP))
        return self._run(self._embed([self._document_prefix + text for text in texts], DOCUMENT, progress))

    def _with_prefix(self, queries: Sequence[str]) -> list[str]:
        """Return queries with their prefix, cut to what the model reads."""
        prefix, limit = self._query_prefix, max(_SHORT, self.max_tokens)
        texts = []
        for text in queries:
            while (count := count_tokens(prefix, text)) > limit and len(text) > 1:
                text = text[: max(1, min(len(text) - 1, len(text) * limit // count))]  # noqa: PLW2901
            texts.append(prefix + text)
        return texts

    def _check_length(self, tokens: int) -> None:
        """Raise an error if the server ignores the end of a text of so many tokens.

        Every word of the filler is one token. Two texts that differ in their last tenth have the same vector
        only if that tenth is not read.
        """
        if tokens <= self._read_length:
            return
        head = list(islice(cycle(_FILLER), max(1, tokens - tokens // 10 - 2)))
        texts = [" ".join([*head, *[word] * (tokens // 10)]) for word in ("fire", "song")]
        left, right = self._run(self._embed(texts, DOCUMENT))
        if cosine(left, right) >= _SAME_TEXT:
            raise EmbeddingError(
                f"{self._endpoint.shown} ignores the end of a text of {tokens} tokens without saying so",
                hint="Set RECTO_OPENAI_MAX_TOKENS to the length that it reads, or raise the server's limit "
                "(Ollama: `PARAMETER num_ctx` in the Modelfile).",
            )
        self._read_length = tokens

    def _probed(self) -> Probe:
        with self._lock:
            if self._probe is None:
                self._probe = self._run(self._ask_probe())
                self._endpoint.largest_dim = self._probe.dim
                self._checked_at = time.monotonic()
            return self._probe

    def _ask_probe(self) -> Steps[Probe]:
        deadline = time.monotonic() + _PROBE_SECONDS
        backoff = retry_within(deadline, _PROBE_TRIES)
        texts = [self._document_prefix + text for text in PROBE_TEXTS]
        rows = yield from retried(partial(self._post, texts, DOCUMENT, deadline), backoff)
        expected, dim = self._options.dimensions, len(rows[0])
        if expected is not None and dim != expected:
            raise ConfigurationError(
                f"{self._endpoint.shown} ignores RECTO_OPENAI_DIMENSIONS={expected}, and returns {dim}",
                hint="The server or the model does not support other dimensions. Unset it.",
            )
        normalised = all(abs(hypot(*row) - 1) < 1e-3 for row in rows)
        as_documents = as_queries = to_vectors(rows, dim)
        if self._endpoint.input_types is not None:  # then a query has another vector than a document
            rows = yield from retried(partial(self._post, texts, QUERY, deadline), backoff)
            as_queries = to_vectors(rows, dim)
        return Probe((as_queries[0], as_documents[0]), probe_revision(as_documents), normalised, dim)

    def _embed(self, texts: list[str], kind: int, progress: Progress | None = None) -> Steps[list[Vector]]:
        """Embed in batches; split what the server refuses as too large, and cut a query or report a text."""
        query_end = time.monotonic() + _QUERY_SECONDS
        backoff = retry_within(query_end) if kind == QUERY else document_backoff(self._notify)
        size = self.batch_size
        batches = deque(texts[start : start + size] for start in range(0, len(texts), size))
        vectors: list[Vector] = []
        while batches:
            batch = batches.popleft()

            def embed(batch: list[str] = batch) -> Steps[list[Vector]]:
                deadline = query_end if kind == QUERY else time.monotonic() + _DOCUMENT_SECONDS
                return self._embed_batch(batch, kind, deadline)

            try:
                vectors += yield from retried(embed, backoff)
            except InputTooLarge as error:
                half = len(batch) // 2
                if half:
                    self._batch = min(self._batch, half)  # further batches need not fail first
                    batches.extendleft((batch[half:], batch[:half]))
                elif kind == QUERY and len(batch[0]) > _SHORT:
                    batches.appendleft([batch[0][: len(batch[0]) // 2]])
                else:
                    raise _too_long(error, batch[0]) from None
                continue
            if progress:
                progress(len(vectors), len(texts))
        return vectors

    def _embed_batch(self, texts: list[str], kind: int, deadline: float) -> Steps[list[Vector]]:
        """Embed a batch, and check that the model is still the one that was probed."""
        probe, rows = self._probed(), list[Vector]()
        # A probe that fits into the batch costs nothing; one more call is made only when a check is due.
        room = kind == DOCUMENT and len(texts) < self._batch
        if room or time.monotonic() - self._checked_at > _CHECK_AGAIN:
            texts = [*texts, self._document_prefix + PROBE_TEXTS[0]]
            reference: Vector | None = probe.references[kind]
        else:
            reference = None
        for start in range(0, len(texts), self._batch):  # if a batch is full, the probe is a call of its own
            rows += yield from self._post(texts[start : start + self._batch], kind, deadline)
        vectors = to_vectors(rows, probe.dim)
        if reference is not None:
            if cosine(vectors.pop(), reference) < _SAME_MODEL:
                raise FingerprintMismatch(
                    f"{self._endpoint.shown} now has another model under the name {self._model}",
                    hint="Restore the model, or run `recto index PATH` and restart the service.",
                )
            self._checked_at = time.monotonic()
        return vectors

    def _post(self, texts: list[str], kind: int, deadline: float) -> Steps[list[Vector]]:
        """Send texts, a second time if the server had closed the connection; return vectors as received."""
        reply = yield self._endpoint.embed(texts, kind, deadline - time.monotonic())
        if type(reply).__name__ in _BROKEN:
            reply = yield self._endpoint.embed(texts, kind, deadline - time.monotonic())
        if isinstance(reply, Exception):
            self._checked_at = -inf  # a server that was restarted may have another model
            raise self._endpoint.translated(reply) from None
        try:
            return self._endpoint.rows(reply, len(texts))
        except ModelMissing as error:
            missing = error
        names = _model_names((yield self._endpoint.list_models()))
        hint = f"It has: {', '.join(names[:20])}. " if names else ""
        raise ConfigurationError(missing.message, hint=hint + missing.hint)

    def _run(self, steps: Steps[Result]) -> Result:
        with self._lock:
            self._client = self._client or _httpx().Client(**self._endpoint.client_options())
            send = self._client.request
        return run(steps, send, self._sleep)


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise missing_extra("RECTO_EMBEDDER=openai", "openai") from error
    return httpx


def _too_long(error: InputTooLarge, text: str) -> EmbeddingError:
    count = count_tokens("", text)
    return EmbeddingError(
        f"{error.message} This text has about {count} tokens: {text[:60]!r} …",
        hint=f"Set RECTO_OPENAI_MAX_TOKENS to less than {count}, and index again, or raise the "
        "server's limit (llama.cpp: -ub, vLLM: --max-model-len, Ollama: num_ctx).",
    )


def _model_names(reply: Any) -> list[str]:
    """Return the names in the answer of `/v1/models`, which is optional; `reply` may be an error."""
    with suppress(AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return [str(entry["id"]) for entry in reply.json()["data"]]
    return []

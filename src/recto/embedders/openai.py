"""Embed with a server that has OpenAI's embeddings API, such as Ollama, vLLM, OpenAI or Azure.

Such a server says little about its model, and some of them hide problems. Before the first use, the embedder
asks for the vectors of two fixed texts: they give the dimension, and the fingerprint by which another model
of the same name is noticed. Before the first documents, it checks that the server reads texts to their end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from math import hypot, inf
from typing import TYPE_CHECKING, Any

from recto._util.probe import PROBE_TEXTS, cosine, probe_revision
from recto._util.retry import ClientPerLoop, Notify, aretry, awith_timeout, retry, with_timeout
from recto.embedders.known_models import (
    KnownModel,
    ask_max_tokens,
    count_tokens,
    known_model,
    model_names,
)
from recto.embedders.openai_wire import Endpoint, InputTooLarge, ModelMissing, to_vectors
from recto.embedders.remote import document_backoff, retry_within
from recto.errors import ConfigurationError, EmbeddingError, FingerprintMismatch, RectoError, missing_extra
from recto.protocols import Progress
from recto.settings import OpenAIOptions, Settings
from recto.types import EmbedderFingerprint, Vector

if TYPE_CHECKING:
    import httpx

_QUERY_SECONDS = 30.0  # a local server may have to load the model first
_DOCUMENT_SECONDS = 120.0
_PROBE_SECONDS = 60.0
_PROBE_TRIES = 30
_ASK_SECONDS = 5.0
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
_SAME = 0.99999  # the least cosine of one text with itself
_SAME_MODEL = 0.999
_FILLER = ("the", "soil", "and", "the", "rain", "feed", "a", "tree", "in", "the", "old", "park")

Plan = Generator[list[str], "list[Vector] | InputTooLarge", list[Vector]]
"""Yields batches, is sent their vectors or why they are too large, and returns the vectors of all texts."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What the server returns for the fixed texts, and whether it had normalised the vectors.

    `references` are the vectors of the first text as a query and as a document.
    """

    references: tuple[Vector, Vector]
    revision: str
    normalised: bool

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return len(self.references[0])


def open_openai(settings: Settings, notify: Notify) -> OpenAIEmbedder:
    """Return the embedder of the endpoint that the settings describe."""
    return OpenAIEmbedder(settings.openai, settings.model, notify)


class OpenAIEmbedder:
    """Embeds with a server: queries fail fast, documents are retried, and what comes back is checked."""

    def __init__(
        self, options: OpenAIOptions, model: str, notify: Notify, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        known = known_model(model)
        self._known = known or KnownModel()
        self._is_known = known is not None
        self._options = options
        self._model = model
        self._query_prefix = self._known.query if options.query_prefix is None else options.query_prefix
        self._document_prefix = (
            self._known.document if options.document_prefix is None else options.document_prefix
        )
        self._endpoint = Endpoint(options, model)
        self._notify = notify
        self._sleep = sleep
        self._batch = options.batch_size
        self._client: httpx.Client | None = None
        self._async_clients: ClientPerLoop[httpx.AsyncClient] = ClientPerLoop(self._async_client)
        self._lock = threading.RLock()
        self._probe: Probe | None = None
        self._limit: tuple[int, str] | None = None
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
    def max_tokens(self) -> int:
        """The number of tokens that the model reads, as the settings, the server or the model card say."""
        return self._length()[0]

    @property
    def batch_size(self) -> int:
        """The number of texts per call, without the probe."""
        return max(1, self._options.batch_size - 1)

    def warm_up(self) -> None:
        """Connect, and let the server load the model."""
        self._probed()

    def describe(self) -> tuple[str, ...]:
        """Return what is known about the endpoint and its model, and check that it reads a long text."""
        probe, (length, origin) = self._probed(), self._length()
        self._check_length(min(length, 3 * _STEP))
        known = "of the model card" if self._is_known else "the model is not known: check its model card"
        return (
            f"Endpoint: {self._endpoint.shown}",
            f"Dimension {probe.dim}, {'normalised' if probe.normalised else 'not normalised: Recto does it'}",
            f"Reads {length} tokens ({origin}); texts of {self._read_length} tokens are read to their end",
            f"Prefix of queries {self._query_prefix!r}, of documents {self._document_prefix!r} ({known})",
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
        plan = self._plan(self._queries(texts), cut=True)
        self._probed()
        deadline = time.monotonic() + _QUERY_SECONDS

        def send(batch: list[str]) -> list[Vector]:
            call = partial(self._embed, batch, 0, deadline)
            return retry(call, retry_within(deadline), self._sleep)

        return _run(plan, send)

    async def aembed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries without blocking the event loop; see `embed_queries`."""
        from asyncio import to_thread

        await to_thread(self._probed)
        plan = self._plan(await to_thread(self._queries, texts), cut=True)
        deadline = time.monotonic() + _QUERY_SECONDS
        try:
            batch = next(plan)
            while True:
                answer: list[Vector] | InputTooLarge
                try:
                    call = partial(self._aembed, batch, deadline)
                    answer = await aretry(call, retry_within(deadline))
                except InputTooLarge as error:
                    answer = error
                except ModelMissing as error:
                    raise await to_thread(self._with_names, error) from None
                batch = plan.send(answer)
        except StopIteration as done:
            vectors: list[Vector] = done.value
            return vectors

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks; retry transient errors, and split batches that are too large for the server."""
        lengths = [self.count_tokens(text) for text in texts]
        if lengths:
            self._check_documents(texts, lengths)
        done = 0

        def send(batch: list[str]) -> list[Vector]:
            nonlocal done
            call = lambda: self._embed(batch, 1, time.monotonic() + _DOCUMENT_SECONDS)  # noqa: E731
            vectors = retry(call, document_backoff(self._notify), self._sleep)
            done += len(vectors)
            if progress:
                progress(done, len(texts))
            return vectors

        return _run(self._plan([self._document_prefix + text for text in texts], cut=False), send)

    def _check_documents(self, texts: Sequence[str], lengths: Sequence[int]) -> None:
        longest, limit = max(lengths), self.max_tokens
        if longest > limit:
            text = texts[lengths.index(longest)]
            raise EmbeddingError(
                f"A text is longer than the {limit} tokens of the model: {text[:60]!r} …",
                hint="Split the text. `recto index` does this automatically.",
            )
        if longest > self._read_length:
            self._check_length(min(limit, -(-longest // _STEP) * _STEP))

    def _check_length(self, tokens: int) -> None:
        """Raise an error if the server ignores the end of a text of so many tokens.

        Every word of the filler is one token. Two texts that differ in their last tenth have the same vector
        only if that tenth is not read.
        """
        if tokens <= self._read_length:
            return
        head = list(islice(cycle(_FILLER), max(1, tokens - tokens // 10 - 2)))
        texts = [" ".join([*head, *[word] * (tokens // 10)]) for word in ("fire", "song")]
        deadline = time.monotonic() + _DOCUMENT_SECONDS
        send = partial(retry, backoff=document_backoff(self._notify), sleep=self._sleep)
        left, right = _run(
            self._plan(texts, cut=False), lambda batch: send(partial(self._embed, batch, 1, deadline))
        )
        if cosine(left, right) >= _SAME:
            raise EmbeddingError(
                f"{self._endpoint.shown} ignores the end of a text of {tokens} tokens without saying so",
                hint="Set RECTO_OPENAI_MAX_TOKENS to the length that it reads, or raise the server's limit "
                "(Ollama: `PARAMETER num_ctx` in the Modelfile).",
            )
        self._read_length = tokens

    def _queries(self, texts: Sequence[str]) -> list[str]:
        """Return queries with their prefix, cut to what the model reads."""
        queries = []
        for text in texts:
            count = count_tokens(self._query_prefix, text)
            while count > _SHORT and count > self.max_tokens and len(text) > 1:
                text = text[: max(1, min(len(text) - 1, len(text) * self.max_tokens // count))]  # noqa: PLW2901
                count = count_tokens(self._query_prefix, text)
            queries.append(self._query_prefix + text)
        return queries

    def _plan(self, texts: list[str], *, cut: bool) -> Plan:
        """Yield batches; split what the server refuses as too large, and cut or report a single text."""
        size = max(1, self._batch - 1)  # the probe is sent with them
        batches = deque(texts[start : start + size] for start in range(0, len(texts), size))
        vectors: list[Vector] = []
        while batches:
            batch = batches.popleft()
            answer = yield batch
            if not isinstance(answer, InputTooLarge):
                vectors += answer
            elif len(batch) > 1:
                half = len(batch) // 2
                self._batch = min(self._batch, half)
                batches.extendleft((batch[half:], batch[:half]))
            elif cut and len(batch[0]) > _SHORT:
                batches.appendleft([batch[0][: len(batch[0]) // 2]])
            else:
                count = count_tokens("", batch[0])
                raise EmbeddingError(
                    f"{answer.message} This text has about {count} tokens: {batch[0][:60]!r} …",
                    hint=f"Set RECTO_OPENAI_MAX_TOKENS to less than {count}, and index again, or raise the "
                    "server's limit (llama.cpp: -ub, vLLM: --max-model-len, Ollama: num_ctx).",
                )
        return vectors

    def _probed(self) -> Probe:
        with self._lock:
            if self._probe is None:
                deadline = time.monotonic() + _PROBE_SECONDS
                texts = [self._document_prefix + text for text in PROBE_TEXTS]

                def ask(kind: int) -> list[Vector]:
                    call = partial(self._post, texts, kind, deadline)
                    return retry(call, retry_within(deadline, _PROBE_TRIES), self._sleep)

                rows = ask(1)
                asked, dim = self._options.dimensions, len(rows[0])
                if asked is not None and dim != asked:
                    raise ConfigurationError(
                        f"{self._endpoint.shown} ignores RECTO_OPENAI_DIMENSIONS={asked}, and returns {dim}",
                        hint="The server or the model does not support other dimensions. Unset it.",
                    )
                normalised = all(abs(hypot(*row) - 1) < 1e-3 for row in rows)
                vectors = to_vectors(rows, dim)
                as_query = vectors if self._endpoint.input_types is None else to_vectors(ask(0), dim)
                references = (as_query[0], vectors[0])
                self._probe = Probe(references, probe_revision(vectors), normalised)
                self._checked_at = time.monotonic()
            return self._probe

    def _length(self) -> tuple[int, str]:
        """Return the number of tokens that the model reads, and who says so."""
        with self._lock:
            if self._limit is None:
                self._limit = self._find_length()
            return self._limit

    def _find_length(self) -> tuple[int, str]:
        if self._options.max_tokens is not None:
            return self._options.max_tokens, "RECTO_OPENAI_MAX_TOKENS"
        card = self._known.max_tokens
        told, server = (
            (None, "") if card and self._endpoint.is_hosted else ask_max_tokens(self._ask, self._model)
        )
        if told is not None and (card is None or told <= card):
            return told, f"says {server}"
        if card is not None:
            return card, "says the model card"
        self._notify(
            f"[WARNING] {self._endpoint.shown} does not say how many tokens the model {self._model} reads: "
            f"{_DEFAULT_MAX_TOKENS} are assumed. Set RECTO_OPENAI_MAX_TOKENS."
        )
        return _DEFAULT_MAX_TOKENS, "assumed: set RECTO_OPENAI_MAX_TOKENS"

    def _ask(self, path: str, body: object = None) -> Any:
        """Return a JSON value of the server, or None if it does not answer with one."""
        url, client = self._endpoint.beside(path), self._connect()

        def call() -> Any:
            response = client.get(url) if body is None else client.post(url, json=body)
            return response.json() if response.status_code == 200 else None

        with suppress(Exception):  # the answer is optional
            return with_timeout(call, _ASK_SECONDS)
        return None

    def _embed(self, texts: list[str], kind: int, deadline: float) -> list[Vector]:
        """Return the vectors of a batch, after a check that the model is still the same."""
        probe = self._probed()
        rows = [row for sent in self._calls(texts, kind) for row in self._post(sent, kind, deadline)]
        return self._checked(rows, len(texts), probe, kind)

    async def _aembed(self, texts: list[str], deadline: float) -> list[Vector]:
        probe = self._probed()
        rows = [row for sent in self._calls(texts, 0) for row in await self._apost(sent, 0, deadline)]
        return self._checked(rows, len(texts), probe, 0)

    def _calls(self, texts: list[str], kind: int) -> list[list[str]]:
        """Return the texts of one or two calls; if the model is to be checked, the last is the probe's."""
        probe, is_due = self._document_prefix + PROBE_TEXTS[0], self._is_check_due()
        if len(texts) < self._batch:
            return [[*texts, probe]] if kind == 1 or is_due else [texts]
        return [texts, [probe]] if is_due else [texts]

    def _is_check_due(self) -> bool:
        return time.monotonic() - self._checked_at > _CHECK_AGAIN

    def _post(self, texts: list[str], kind: int, deadline: float, *, again: bool = True) -> list[Vector]:
        remaining, client = deadline - time.monotonic(), self._connect()
        try:
            response = with_timeout(
                lambda: client.post(**self._endpoint.request(texts, kind, remaining)), remaining
            )
        except Exception as error:  # noqa: BLE001 - every error of the client is translated
            failed = self._failed(error)
            if again and type(error).__name__ in _BROKEN:
                return self._post(texts, kind, deadline, again=False)
            raise failed from None
        try:
            return self._endpoint.rows(response, len(texts))
        except ModelMissing as error:
            raise self._with_names(error) from None

    async def _apost(
        self, texts: list[str], kind: int, deadline: float, *, again: bool = True
    ) -> list[Vector]:
        remaining, client = deadline - time.monotonic(), self._async_clients.get()
        try:
            response = await awith_timeout(
                client.post(**self._endpoint.request(texts, kind, remaining)), remaining
            )
        except Exception as error:  # noqa: BLE001 - every error of the client is translated
            failed = self._failed(error)
            if again and type(error).__name__ in _BROKEN:
                return await self._apost(texts, kind, deadline, again=False)
            raise failed from None
        return self._endpoint.rows(response, len(texts))

    def _failed(self, error: Exception) -> RectoError:
        self._checked_at = -inf  # a server that was restarted may have another model
        return self._endpoint.translated(error)

    def _checked(self, rows: list[Vector], count: int, probe: Probe, kind: int) -> list[Vector]:
        """Return normalised vectors, without that of the probe; raise an error if the model was replaced."""
        vectors = to_vectors(rows, probe.dim)
        if len(vectors) > count:
            if cosine(vectors.pop(), probe.references[kind]) < _SAME_MODEL:
                raise FingerprintMismatch(
                    f"{self._endpoint.shown} now has another model under the name {self._model}",
                    hint="Restore the model, or run `recto index PATH` and restart the service.",
                )
            self._checked_at = time.monotonic()
        return vectors

    def _with_names(self, error: ModelMissing) -> RectoError:
        """Add the models that the server has to the hint."""
        names = model_names(self._ask("/v1/models"))
        hint = f"It has: {', '.join(names[:20])}. " if names else ""
        return ConfigurationError(error.message, hint=hint + error.hint)

    def _connect(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = _httpx().Client(**self._endpoint.client_options())
            return self._client

    def _async_client(self) -> httpx.AsyncClient:
        client: httpx.AsyncClient = _httpx().AsyncClient(**self._endpoint.client_options())
        return client


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise missing_extra("RECTO_EMBEDDER=openai", "openai") from error
    return httpx


def _run(plan: Plan, send: Callable[[list[str]], list[Vector]]) -> list[Vector]:
    """Send the batches of a plan, and return the vectors of all texts."""
    try:
        batch = next(plan)
        while True:
            answer: list[Vector] | InputTooLarge
            try:
                answer = send(batch)
            except InputTooLarge as error:
                answer = error
            batch = plan.send(answer)
    except StopIteration as done:
        vectors: list[Vector] = done.value
        return vectors

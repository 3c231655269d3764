"""Embed with a server that has OpenAI's embeddings API, such as Ollama, vLLM, TEI, llama.cpp or OpenAI.

Such a server says little about its model. Before the first use, the embedder asks for the vectors of two
fixed texts: they give the dimension, and the fingerprint by which another model of the same name is noticed
(decision 14).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from recto._util import PROBE_TEXTS, cosine, probe_revision
from recto._util.retry import (
    Call,
    Steps,
    TransientEmbeddingError,
    redacted,
    retried,
    retry_after,
    retry_within,
)
from recto.embedders import check_lengths, normalize_vectors
from recto.embedders.model_cards import model_card, model_languages
from recto.embedders.service import DOCUMENT, QUERY, ServiceClient, ServiceEmbedder, connection_error
from recto.errors import ConfigurationError, EmbeddingError, FingerprintMismatch, RectoError, missing_extra
from recto.plugins import Notify
from recto.protocols import Progress
from recto.settings import OpenAIOptions, Settings, is_local_address
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector

if TYPE_CHECKING:
    import httpx

_PROBE_SECONDS = 60.0  # large models take as long to load
_LOADING_SECONDS = 2.0  # between two requests to a server that loads its model
_CHECK_SECONDS = 1.0  # queries check at most once in this time that the model is still the same
_SAME_MODEL = 0.999  # cosine of the vectors of a text in two calls; see decision 14
_ERROR_BYTES = 4 << 20  # of a response without vectors
_VECTOR_BYTES = 16_384 * 32  # of a vector in JSON: no model has more dimensions, no number more characters
_CLOSED = ("ReadError", "RemoteProtocolError", "WriteError")  # the server had closed an idle connection
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\s+|[^\sA-Za-z]")


def open_openai(settings: Settings, notify: Notify) -> OpenAIEmbedder:
    """Return the embedder of the endpoint that the settings describe."""
    return OpenAIEmbedder(settings.openai, settings.model, notify)


class OpenAIEmbedder(ServiceEmbedder):
    """Embeds with a server, and checks in every call that the model is still the same.

    Keys never appear in its messages.
    """

    query_seconds = 30.0  # a local server may have to load the model first
    document_seconds = 120.0  # a batch on a slow processor

    def __init__(
        self, options: OpenAIOptions, model: str, notify: Notify, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(notify, sleep)
        card, parts = model_card(model), urlsplit(options.url)
        self._query_prefix = card.query if options.query_prefix is None else options.query_prefix
        self._document_prefix = card.document if options.document_prefix is None else options.document_prefix
        self.max_tokens = options.max_tokens or card.max_tokens
        self.batch_size = max(1, options.batch_size - 1)  # the probe is one text of a request
        self.languages = model_languages(model)
        self._options = options
        self._model = model
        path = (parts.path.rstrip("/") or "/v1").removesuffix("/embeddings")
        self._url = f"{parts.scheme}://{parts.netloc}{path}"
        self._url_query = f"?{parts.query}" if parts.query else ""
        self._fingerprint: EmbedderFingerprint | None = None
        self._references: dict[int, Vector] = {}  # the vector of the first probe text, by the kind of text
        self._checked_at = -inf

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """The name of the model and its vectors of two fixed texts; the first use calls the server."""
        with self._lock:
            if self._fingerprint is None:
                self._fingerprint = self._run(self._probe())
            return self._fingerprint

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return self.fingerprint.dim

    def warm_up(self) -> None:
        """Connect, and let the server load the model."""
        _ = self.fingerprint

    def describe(self) -> tuple[str, ...]:
        """Return the address of the server, and what it does not tell."""
        return (
            f"{self._url}: {self.dim} dimensions, prefix of queries {self._query_prefix!r}, "
            f"of documents {self._document_prefix!r}",
        )

    def count_tokens(self, text: str) -> int:
        """Return an upper estimate of the tokens of a document: the server's tokenizer cannot be used."""
        return count_tokens(self._document_prefix, text)

    def token_counter(self) -> Callable[[str], int]:
        """Return what counts the tokens of documents in other processes."""
        return partial(count_tokens, self._document_prefix)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks; retry transient errors."""
        check_lengths(texts, map(self.count_tokens, texts), self.max_tokens)
        return super().embed_documents(texts, progress)

    def _connect(self, *, is_async: bool = False) -> ServiceClient:
        """Open a client that sends the key to this server only."""
        try:
            import httpx
        except ImportError as error:
            raise missing_extra("RECTO_EMBEDDER=openai", "openai") from error
        from recto._util.http import owner_client

        headers = {"Content-Type": "application/json"}
        if self._options.api_key:
            headers["Authorization"] = f"Bearer {self._options.api_key}"
        is_local, seconds = is_local_address(self._url), self.document_seconds
        options = owner_client(
            self._url, headers, _ERROR_BYTES, seconds, is_local=is_local, is_async=is_async
        )
        client: Any = httpx.AsyncClient(**options) if is_async else httpx.Client(**options)
        return ServiceClient(client, client.request)

    def _probe(self) -> Steps[EmbedderFingerprint]:
        """Ask for the vectors of the fixed texts, and wait for a server that loads its model."""
        deadline = time.monotonic() + _PROBE_SECONDS
        backoff = retry_within(deadline, int(_PROBE_SECONDS / _LOADING_SECONDS))
        texts = [self._document_prefix + text for text in PROBE_TEXTS]
        rows = yield from retried(partial(self._post, texts, DOCUMENT, deadline), backoff)
        expected, dim = self._options.dimensions, len(rows[0])
        if expected is not None and dim != expected:
            raise ConfigurationError(
                f"{self._url} ignores RECTO_OPENAI_DIMENSIONS={expected}, and returns {dim}",
                hint="The server or the model does not support other dimensions. Unset it.",
            )
        vectors = normalize_vectors(rows, len(texts), dim)
        self._references[DOCUMENT] = vectors[0]
        if self._options.input_types is None:
            self._references[QUERY] = vectors[0]
        self._checked_at = time.monotonic()
        variant = f"prefix {self._document_prefix!r}" if self._document_prefix else "no prefix"
        name = f"openai/{self._model.removesuffix(':latest')}"
        return EmbedderFingerprint(name, probe_revision(vectors), dim, variant)

    def _embed_batch(self, texts: Sequence[str], kind: int, deadline: float) -> Steps[list[Vector]]:
        """Embed a batch with a probe text, which shows whether the model is still the same."""
        sent = [self._query(text) if kind == QUERY else self._document_prefix + text for text in texts]
        is_checked = kind == DOCUMENT or time.monotonic() - self._checked_at > _CHECK_SECONDS
        if is_checked:
            sent.append(self._document_prefix + PROBE_TEXTS[0])
        rows: list[Vector] = []
        size = self._options.batch_size
        for start in range(0, len(sent), size):  # two requests only if `batch_size` is 1
            rows += yield from self._post(sent[start : start + size], kind, deadline)
        if any(len(row) != self.dim for row in rows):
            raise self._another_model()
        vectors = normalize_vectors(rows, len(sent), self.dim)
        if is_checked:
            vector = vectors.pop()
            if cosine(vector, self._references.setdefault(kind, vector)) < _SAME_MODEL:
                raise self._another_model()
            self._checked_at = time.monotonic()
        return vectors

    def _query(self, text: str) -> str:
        """Return a query with its prefix, cut to what the model reads."""
        while (count := count_tokens(self._query_prefix, text)) > self.max_tokens and len(text) > 1:
            text = text[: max(1, min(len(text) - 1, len(text) * self.max_tokens // count))]
        return self._query_prefix + text

    def _another_model(self) -> FingerprintMismatch:
        return FingerprintMismatch(
            f"{self._url} now has another model under the name {self._model}",
            hint="Restore the model, or run `recto index PATH` and restart the service.",
        )

    def _post(self, texts: list[str], kind: int, deadline: float) -> Steps[list[Vector]]:
        """Send texts, a second time if the server had closed the connection; return vectors as received."""
        reply = yield self._request(texts, kind, deadline - time.monotonic())
        if type(reply).__name__ in _CLOSED:
            reply = yield self._request(texts, kind, deadline - time.monotonic())
        if isinstance(reply, Exception):
            hint = "Is the server running? Check RECTO_OPENAI_URL, its log and, with https, SSL_CERT_FILE."
            raise connection_error(self._url, reply, hint) from None
        return self._read(reply, len(texts))

    def _request(self, texts: list[str], kind: int, seconds: float) -> Call:
        from recto._util.http import BOUNDS

        body: dict[str, Any] = {"model": self._model, "input": texts}
        if self._options.dimensions is not None:
            body["dimensions"] = self._options.dimensions
        if self._options.input_types is not None:
            body["input_type"] = self._options.input_types[kind]
        arguments = {
            "method": "POST",
            "url": f"{self._url}/embeddings{self._url_query}",
            "content": json.dumps(body).encode(),
            "timeout": max(1.0, seconds),
            "extensions": {BOUNDS: (_ERROR_BYTES + len(texts) * _VECTOR_BYTES, seconds)},
        }
        return Call(arguments, seconds)

    def _read(self, response: httpx.Response, count: int) -> list[Vector]:
        """Return the vectors of a response in the order of the texts; raise what a refusal means."""
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            answer = None
        fields = answer if isinstance(answer, dict) else {}
        if response.status_code != 200:
            raise self._refusal(response, response.status_code, fields)
        if fields.get("error"):  # LM Studio reports errors with status 200
            raise self._refusal(response, 400, fields)
        try:
            by_index = {
                entry.get("index", position): list(map(float, entry["embedding"]))
                for position, entry in enumerate(fields["data"])
            }
            if len(fields["data"]) == count:
                return [by_index[index] for index in range(count)]
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            pass
        raise TransientEmbeddingError(
            f"The response of {self._url} does not have one vector for each text",
            hint=f"Check RECTO_OPENAI_URL, which usually ends with /v1, and whether {self._model} is an "
            "embedding model. If the server returns a vector for every token, set its pooling as the model "
            "card says. If it happens only with several texts, set RECTO_OPENAI_BATCH_SIZE=1.",
        )

    def _refusal(self, response: httpx.Response, status: int, fields: dict[str, Any]) -> RectoError:
        """Return the error for a refused request, with the server's own message."""
        url, message = self._url, redacted(_message(fields), self._options.api_key)
        if 300 <= status < 400:
            target = urljoin(url, response.headers.get("location", "")).partition("?")[0]
            return ConfigurationError(
                f"{url} redirects to {redacted(target, self._options.api_key)}",
                hint="Recto follows no redirects, so that no key reaches another host. "
                "If you trust this address, set RECTO_OPENAI_URL to it.",
            )
        if status in (401, 403):
            problem = "refuses the key" if self._options.api_key else "needs a key"
            return ConfigurationError(f"{url} {problem}: {message}", hint="Check RECTO_OPENAI_API_KEY.")
        if status == 404:
            return ConfigurationError(
                f"{url} has no embeddings API, or not the model {self._model} (404): {message}",
                hint="Check RECTO_OPENAI_URL, which usually ends with /v1, and RECTO_MODEL "
                "(Ollama: `ollama pull NAME`). The whole address, up to /embeddings, works, too.",
            )
        if status == 429 or status >= 500:
            problem = "limits the rate of requests" if status == 429 else "is not available"
            is_loading = "loading" in message.lower()
            return TransientEmbeddingError(
                f"{url} {problem} ({status}): {message}",
                hint="Try again in a moment, and check the server's log or your account.",
                retry_after=_LOADING_SECONDS if is_loading else retry_after(response.headers),
            )
        return EmbeddingError(
            f"{url} refuses the request ({status}): {message}",
            hint="Check RECTO_MODEL and the server's log. If the texts are too large, reduce "
            "RECTO_OPENAI_BATCH_SIZE or RECTO_OPENAI_MAX_TOKENS.",
        )


def _message(fields: dict[str, Any]) -> str:
    """Return the server's message, wherever the response has it."""
    reason: Any = fields
    for name in ("error", "detail", "message"):
        if isinstance(reason, dict) and reason.get(name):
            reason = reason[name]
    if isinstance(reason, list) and reason and isinstance(reason[0], dict):  # FastAPI, with the texts
        reason = reason[0].get("msg")
    return reason[:300] if isinstance(reason, str) else "no reason given"


def count_tokens(prefix: str, text: str) -> int:
    """Return an upper estimate of the tokens of a text, special tokens and the prefix included.

    Four letters of a word, a digit, a sign, a letter of another alphabet, and white space other than a single
    space count as a token each, and a Chinese character as two.
    """
    count = 2
    for piece in _WORD.findall(prefix + text):
        if piece.isspace():
            count += len(piece) - (piece[-1] == " ")
        else:
            size = len(piece.encode("utf-8", "replace"))
            count += (size + 3) // 4 if piece.isascii() else max(1, size - 1)
    return count

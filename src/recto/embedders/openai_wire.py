"""OpenAI's embeddings API, with the habits of servers that imitate it, and what they do not tell."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from recto._util.retry import Call, DeadlineExceeded, TransientEmbeddingError, redacted, retry_after
from recto.embedders import normalize_vectors
from recto.errors import ConfigurationError, EmbeddingError, FingerprintMismatch, RectoError
from recto.settings import OpenAIOptions, is_local_address
from recto.types.search import Vector

if TYPE_CHECKING:
    import httpx

QUERY, DOCUMENT = 0, 1
"""The kinds of texts, as indexes of `Endpoint.input_types`."""

_LARGEST_LIST = 4 << 20  # bytes of a response without vectors
_LARGEST_DIM = 16_384
_NUMBER_BYTES = 32  # of a number in JSON, with white space around it
_AZURE_VERSION = "2024-10-21"
_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
_LOADING_SECONDS = 2.0
_LIST_SECONDS = 5.0
_TOO_LARGE = re.compile(
    r"too (?:large|long|big|many)|context (?:length|size|window)|batch size|maximum (?:input|allowed)"
    r"|tokens exceed|must have (?:less|fewer) than|should have at most|longer than|reduce the length",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"\bmodels?\b|deployment", re.IGNORECASE)
_INVALID_MODEL = re.compile(r"(?:invalid|unknown) model\b", re.IGNORECASE)
_POOLING = (
    "Start the server with the pooling of the model card. llama.cpp uses that of the model file if you leave "
    "out --pooling; if the file names none, set it to cls, mean or last."
)


class InputTooLarge(EmbeddingError):
    """The server refuses a batch, or a text in it, because of its size."""


class ModelMissing(ConfigurationError):
    """The server has no model of this name."""


class Endpoint:
    """Writes the requests to a server, and reads its responses. Keys never appear in its messages."""

    def __init__(self, options: OpenAIOptions, model: str) -> None:
        parts = urlsplit(options.url)
        host, given = parts.hostname or "", parts.path.rstrip("/")
        path = given.removesuffix("/embeddings")
        is_deployment = "/openai/deployments/" in path
        self._azure = host.endswith(_AZURE_HOSTS) or is_deployment or bool(options.api_version)
        if not given:
            path = "/openai/v1" if self._azure else "/v1"
        query = parts.query
        version = options.api_version or (_AZURE_VERSION if is_deployment else "")
        if version and "api-version=" not in query:
            query = f"{query}&api-version={version}".removeprefix("&")
        self._base = f"{parts.scheme}://{parts.netloc}{path}"
        self._query = f"?{query}" if query else ""
        self._local = is_local_address(options.url)
        self._key = options.api_key
        self._model = model
        self._dimensions = options.dimensions
        self._voyage = model.startswith("voyage-")
        self.largest_dim = options.dimensions or _LARGEST_DIM
        self.input_types = options.input_types or (("query", "document") if self._voyage else None)

    @property
    def shown(self) -> str:
        """The address for messages, without its query."""
        return self._base

    def list_models(self) -> Call:
        """Return the call for the names of the server's models."""
        return Call({"method": "GET", "url": f"{self._base}/models{self._query}"}, _LIST_SECONDS)

    def client_options(self, *, is_async: bool = False) -> dict[str, Any]:
        """Return the arguments of a client that sends the key to this server only."""
        from recto._util.http import owner_client

        headers = {"Content-Type": "application/json"}
        if self._key:
            headers |= {"api-key": self._key} if self._azure else {"Authorization": f"Bearer {self._key}"}
        return owner_client(
            self._base, headers, _LARGEST_LIST, _LIST_SECONDS, is_local=self._local, is_async=is_async
        )

    def embed(self, texts: Sequence[str], kind: int, seconds: float) -> Call:
        """Return the call for the vectors of texts; `kind` is `QUERY` or `DOCUMENT`."""
        from recto._util.http import BOUNDS

        body: dict[str, Any] = {"model": self._model, "input": list(texts)}
        if self._dimensions is not None:
            body["output_dimension" if self._voyage else "dimensions"] = self._dimensions
        if self.input_types is not None:
            body["input_type"] = self.input_types[kind]
        if self._voyage:
            body["truncation"] = kind == QUERY
        url, content = f"{self._base}/embeddings{self._query}", json.dumps(body).encode()
        limit = _LARGEST_LIST + len(texts) * self.largest_dim * _NUMBER_BYTES
        call = {"method": "POST", "url": url, "content": content, "extensions": {BOUNDS: (limit, seconds)}}
        return Call({**call, "timeout": max(1.0, seconds)}, seconds)

    def rows(self, response: httpx.Response, count: int) -> list[Vector]:
        """Return the vectors of a response in the order of the texts; raise what a refusal means."""
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            answer = None
        if response.status_code != 200:
            raise self._refusal(response, answer)
        if not isinstance(answer, dict):
            page = response.text.lstrip()[:1] == "<"
            raise TransientEmbeddingError(
                f"{self._base} returns {'a web page' if page else 'a text'} instead of JSON",
                hint="Check RECTO_OPENAI_URL: it usually ends with /v1. A proxy may have answered instead.",
            )
        if answer.get("error"):  # LM Studio reports errors with status 200
            message = self._message(answer)
            self._check_size(400, message)
            raise EmbeddingError(
                f"{self._base} reports an error: {message}", hint="Check RECTO_OPENAI_URL and RECTO_MODEL."
            )
        return self._ordered(answer.get("data"), count)

    def _ordered(self, data: object, count: int) -> list[Vector]:
        if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
            raise TransientEmbeddingError(
                f"The response of {self._base} has no vectors",
                hint="Is it an embeddings API? Check RECTO_OPENAI_URL.",
            )
        indices = [entry.get("index", position) for position, entry in enumerate(data)]
        by_index = dict(zip(indices, data, strict=True)) if all(type(one) is int for one in indices) else {}
        if len(data) != count or set(by_index) != set(range(count)):
            raise TransientEmbeddingError(
                f"{self._base} returned {len(data)} vectors for {count} texts, or did not say which belongs "
                "to which",
                hint="Set RECTO_OPENAI_BATCH_SIZE=1 if this happens again.",
            )
        return [self._numbers(by_index[index].get("embedding")) for index in range(count)]

    def _numbers(self, value: object) -> Vector:
        """Return one vector."""
        with suppress(TypeError, ValueError, OverflowError):
            if isinstance(value, list) and value and isinstance(value[0], list):
                raise EmbeddingError(
                    f"{self._base} returns a vector for every token instead of one for the text",
                    hint=_POOLING,
                )
            if isinstance(value, list) and value:
                return [float(number) for number in value]
        raise TransientEmbeddingError(
            f"The response of {self._base} has a vector that cannot be read",
            hint=f"Is {self._model} an embedding model? Check RECTO_MODEL.",
        )

    def _refusal(self, response: httpx.Response, answer: object) -> RectoError:  # noqa: PLR0911 - a table
        """Return the error for a status that is not 200, with the server's own message."""
        status, message = response.status_code, self._message(answer)
        if 300 <= status < 400:
            target = urljoin(self._base, response.headers.get("location", ""))
            return ConfigurationError(
                f"{self._base} redirects to {redacted(target.partition('?')[0], self._key)}",
                hint="Recto follows no redirects, so that no key reaches another host. "
                "If you trust this address, set RECTO_OPENAI_URL to it.",
            )
        if status in (401, 403):
            return ConfigurationError(
                f"{self._base} {'refuses the key' if self._key else 'needs a key'}: {message}",
                hint="Check RECTO_OPENAI_API_KEY." if self._key else "Set RECTO_OPENAI_API_KEY.",
            )
        if "dimension" in message.lower() and self._dimensions is not None and status < 500:
            return ConfigurationError(
                f"{self._base} refuses RECTO_OPENAI_DIMENSIONS={self._dimensions}: {message}",
                hint="Unset it.",
            )
        self._check_size(status, message)
        if status == 404 or (status == 400 and _INVALID_MODEL.search(message)):
            return self._not_found(message, answer)
        pause = retry_after(response.headers)
        if status == 429 and "quota" in message.lower():
            return EmbeddingError(
                f"{self._base}: {message}", hint="The account has no credit. Check its billing."
            )
        if status == 429:
            when = "in a minute" if pause is None else f"in {pause:.0f} s"
            return TransientEmbeddingError(
                f"The rate limit of {self._base} is reached", hint=f"Try again {when}.", retry_after=pause
            )
        if status >= 500:
            return self._unavailable(status, message, pause)
        return EmbeddingError(
            f"{self._base} refuses the request ({status}): {message}",
            hint=_POOLING if "pooling" in message.lower() else "Check RECTO_MODEL and the server's log.",
        )

    def _check_size(self, status: int, message: str) -> None:
        """Raise an error if the server refuses texts because of their size."""
        if status == 429:  # OpenAI: a single request that no wait makes acceptable
            is_too_large = message.lower().startswith("request too large")
        else:
            is_too_large = status == 413 or (status in (400, 422, 500) and bool(_TOO_LARGE.search(message)))
        if is_too_large:
            raise InputTooLarge(
                f"{self._base} refuses the texts as too large ({message}).",
                hint="Reduce RECTO_OPENAI_MAX_TOKENS or RECTO_OPENAI_BATCH_SIZE.",
            )

    def _not_found(self, message: str, answer: object) -> RectoError:
        if answer is not None and _NO_MODEL.search(message):
            what = "a deployment" if self._azure else "the model"
            return ModelMissing(
                f"{self._base} does not have {what} {self._model}: {message}",
                hint="Check RECTO_MODEL, or load the model first (Ollama: `ollama pull NAME`).",
            )
        return ConfigurationError(
            f"There is no embeddings API at {self._base} (404)",
            hint="Check RECTO_OPENAI_URL and RECTO_OPENAI_API_VERSION."
            if self._azure
            else "Check RECTO_OPENAI_URL: it usually ends with /v1. If the server has another path, give the "
            "whole address, up to /embeddings.",
        )

    def _unavailable(self, status: int, message: str, pause: float | None) -> RectoError:
        if status == 501:
            return EmbeddingError(
                f"{self._base} does not support embeddings: {message}",
                hint="Start llama.cpp with `llama-server --embeddings`, or choose an embedding model.",
            )
        if "NaN" in message:
            return EmbeddingError(
                f"The model {self._model} fails on a text: {message}",
                hint="This is a problem of the server or of the model file. Update it, or use another one.",
            )
        if status == 503 and "loading" in message.lower():
            pause = _LOADING_SECONDS
        return TransientEmbeddingError(
            f"{self._base} is not available ({status}): {message}",
            hint="Try again in a moment, and check the server's log.",
            retry_after=pause,
        )

    def _message(self, answer: object) -> str:
        """Return the server's message, wherever the response has it."""
        reason: object = answer
        for name in ("error", "detail", "message"):
            if isinstance(reason, dict) and reason.get(name):
                reason = reason[name]
        if isinstance(reason, list) and reason and isinstance(reason[0], dict):  # FastAPI, with the texts
            reason = reason[0].get("msg")
        has_reason = reason and reason is not answer
        text = reason if isinstance(reason, str) else json.dumps(reason) if has_reason else ""
        return redacted(text[:300], self._key) or "no reason given"

    def translated(self, error: Exception) -> RectoError:
        """Return Recto's error for an error of the HTTP client."""
        name = type(error).__name__
        if isinstance(error, RectoError):
            return error
        if isinstance(error, DeadlineExceeded) or "Timeout" in name:
            return TransientEmbeddingError(
                f"{self._base} did not answer in time",
                hint="The server may be loading the model. Try again, or reduce RECTO_OPENAI_BATCH_SIZE.",
            )
        if name == "ResponseTooLarge":
            return EmbeddingError(
                f"{self._base} sends more than the vectors that were asked for",
                hint="Check RECTO_OPENAI_URL and RECTO_MODEL.",
            )
        if "CERTIFICATE" in str(error):
            return ConfigurationError(
                f"The certificate of {self._base} is not trusted",
                hint="Set SSL_CERT_FILE to the file with the certificate of its authority.",
            )
        if name == "ConnectError":
            advice = "Is the server running?" if self._local else "Check the network."
            return TransientEmbeddingError(
                f"Cannot connect to {self._base}", hint=f"{advice} Check RECTO_OPENAI_URL."
            )
        return TransientEmbeddingError(
            f"The connection to {self._base} broke", hint="Try again, and check the server's log."
        )


def to_vectors(rows: Sequence[Vector], dim: int) -> list[Vector]:
    """Return vectors of length 1; raise an error if one has another dimension or is not finite."""
    other = next((len(row) for row in rows if len(row) != dim), None)
    if other is not None:
        raise FingerprintMismatch(
            f"The endpoint returned a vector of {other} numbers; before, it was {dim}",
            hint="Another model now has this name. Restore it, or index the book again with --rebuild.",
        )
    return normalize_vectors(rows, len(rows), dim)


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\s+|[^\sA-Za-z]")
_SEARCH = "Represent this sentence for searching relevant passages: "
_TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """The prefixes of a family of models, and the number of tokens that it reads; None if that varies."""

    query: str = ""
    document: str = ""
    max_tokens: int | None = None


_MODELS = (
    # The facts come from the model cards: a server adds no prefixes by itself, and a model that was trained
    # with them finds less without them. The first pattern that occurs in the name of a model counts, so
    # special ones come first. Entries were compared with the model's card or configuration or MTEB's registry
    # of models; Arctic v1 and v2, EmbeddingGemma and Mistral only with programs that use them. Of several
    # lengths, the shortest is listed. Models for which sources have other prefixes are not listed, nor models
    # whose prefix depends on an adapter that the server chooses (Jina v3 and v5): no prefix is better.
    (r"nomic-embed-text-v2", KnownModel("search_query: ", "search_document: ", 512)),
    # 8192 with scaled positions, which servers of GGUF files do not have by default
    (r"nomic-embed-text", KnownModel("search_query: ", "search_document: ", 2048)),
    (r"multilingual-e5-large-instruct", KnownModel(f"{_TASK} ", "", 512)),
    (r"e5-mistral-7b-instruct", KnownModel(f"{_TASK} ", "", 4096)),
    (r"\be5-(?:small|base|large)", KnownModel("query: ", "passage: ", 512)),
    (r"bge-m3", KnownModel(max_tokens=8192)),
    (r"bge-(?:small|base|large)-zh", KnownModel("为这个句子生成表示以用于检索相关文章：", "", 512)),
    (r"bge-(?:small|base|large)", KnownModel(_SEARCH, "", 512)),
    (r"mxbai-embed-large", KnownModel(_SEARCH, "", 512)),
    (r"arctic-embed(?:2|-[lm]-v2)", KnownModel("query: ", "", 8192)),
    (r"arctic-embed-m-long|arctic-embed:137m", KnownModel(_SEARCH, "", 2048)),
    (r"arctic-embed", KnownModel(_SEARCH, "", 512)),
    (r"gte-qwen(?:2|1\.5)", KnownModel(f"{_TASK} ", "", 32_768)),
    (r"gte-(?:(?:base|large)-en-v1\.5|modernbert|multilingual)", KnownModel(max_tokens=8192)),
    (r"gte-(?:small|base|large)", KnownModel(max_tokens=512)),
    (r"qwen3-embedding", KnownModel(_TASK, "", 32_768)),  # without a space, as in its model card
    (r"embeddinggemma", KnownModel("task: search result | query: ", "title: none | text: ", 2048)),
    (r"jina-embeddings-v4-text-retrieval", KnownModel("Query: ", "Passage: ", 32_768)),
    (r"jina-embeddings-v2", KnownModel(max_tokens=8192)),
    (r"all-minilm-l12|all-minilm:33m|paraphrase-multilingual", KnownModel(max_tokens=128)),
    (r"all-minilm", KnownModel(max_tokens=256)),
    (r"all-mpnet", KnownModel(max_tokens=384)),
    (r"granite-embedding-[\w-]*r2", KnownModel(max_tokens=8192)),
    (r"granite-embedding", KnownModel(max_tokens=512)),
    (r"text-embedding-(?:3-|ada-002)", KnownModel(max_tokens=8191)),
    (r"mistral-embed|codestral-embed", KnownModel(max_tokens=8192)),
    # Voyage has `input_type` instead of prefixes.
    (r"voyage-2", KnownModel(max_tokens=4000)),
    (r"voyage-(?:law|code|large)-2", KnownModel(max_tokens=16_000)),
    (r"voyage-(?:3|4|code-3|finance-2|multilingual-2)", KnownModel(max_tokens=32_000)),
)


def known_model(name: str) -> KnownModel:
    """Return what is known about a model, by the name that a server gives it."""
    name = name.lower().replace("_", "-")
    return next((model for pattern, model in _MODELS if re.search(pattern, name)), KnownModel())


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

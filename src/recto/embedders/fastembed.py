"""Embed with a model that fastembed downloads from a hub (extra `fastembed`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from recto.embedders import normalize_vectors
from recto.errors import ConfigurationError, EmbeddingError, missing_extra
from recto.protocols import Progress
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector

if TYPE_CHECKING:
    from fastembed import TextEmbedding

_BATCH = 32
_DEFAULT_MAX_TOKENS = 512


class FastembedEmbedder:
    """Runs a fastembed model, which fastembed downloads once."""

    def __init__(self, name: str, threads: int, **options: Any) -> None:
        self._name = name
        self._threads = threads
        self._options = options
        self._dim = _known_dim(name)
        self._model: TextEmbedding | None = None
        self._loading = threading.Lock()

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """The name of the model; fastembed has no revisions."""
        return EmbedderFingerprint(self._name, "fastembed", self._dim, variant="fastembed")

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return self._dim

    @property
    def max_tokens(self) -> int:
        """The number of tokens that the model can read."""
        truncation = self._tokenizer().truncation
        return int(truncation["max_length"]) if truncation else _DEFAULT_MAX_TOKENS

    def warm_up(self) -> None:
        """Download and load the model."""
        self._loaded()

    def close(self) -> None:
        """Do nothing: the model holds no connections."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, including those beyond the model's limit."""
        return _count(self._tokenizer(), text)

    def token_counter(self) -> Callable[[str], int]:
        """Return what counts the tokens of texts in other processes."""
        return partial(_count, self._tokenizer())

    def embed_query(self, text: str) -> Vector:
        """Embed one query."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries."""
        return self._collect(self._loaded().query_embed(list(texts)), len(texts), None)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks."""
        too_long = next((text for text in texts if self.count_tokens(text) > self.max_tokens), None)
        if too_long is not None:
            raise EmbeddingError(
                f"A text is longer than the {self.max_tokens} tokens of the model: {too_long[:60]!r} …",
                hint="Split the text. `recto index` does this automatically.",
            )
        stream = self._loaded().passage_embed(list(texts), batch_size=_BATCH)
        return self._collect(stream, len(texts), progress)

    def _collect(self, stream: Iterable[Any], count: int, progress: Progress | None) -> list[Vector]:
        rows = []
        try:
            for row in stream:
                rows.append(row)
                if progress and (len(rows) % _BATCH == 0 or len(rows) == count):
                    progress(len(rows), count)
        except Exception as error:  # fastembed has no error types of its own
            raise EmbeddingError(f"The embedding model {self._name} failed: {error}") from error
        return normalize_vectors(rows, count, self._dim) if count else []

    def _tokenizer(self) -> Any:
        model: Any = self._loaded().model
        return model.tokenizer

    def _loaded(self) -> TextEmbedding:
        with self._loading:
            if self._model is None:
                from fastembed import TextEmbedding

                try:
                    self._model = TextEmbedding(self._name, threads=self._threads, **self._options)
                except Exception as error:  # no network, no such model, a full disk
                    raise EmbeddingError(
                        f"The embedding model {self._name} cannot be loaded: {error}",
                        hint="The first use needs a network. Unset RECTO_MODEL for the built-in model.",
                    ) from error
            return self._model


def _count(tokenizer: Any, text: str) -> int:
    encoding = tokenizer.encode(text)
    return len(encoding.ids) + sum(len(rest.ids) - 2 for rest in encoding.overflowing)


def _known_dim(name: str) -> int:
    try:
        from fastembed import TextEmbedding
    except ImportError as error:
        raise missing_extra(f"RECTO_MODEL={name}", "fastembed") from error
    for model in TextEmbedding.list_supported_models():
        if str(model["model"]).lower() == name.lower():
            return int(model["dim"])
    raise ConfigurationError(
        f"RECTO_MODEL={name} is not the built-in model, a directory, or a model that fastembed supports",
        hint="fastembed.TextEmbedding.list_supported_models() lists the supported models.",
    )

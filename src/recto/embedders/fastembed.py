"""Any model that `fastembed` knows, for where there is a network (an extra)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from recto.embedders.vectors import checked
from recto.errors import ConfigurationError, EmbeddingError, missing_extra
from recto.protocols import Progress
from recto.types import EmbedderFingerprint, Vector

if TYPE_CHECKING:
    from fastembed import TextEmbedding

_BATCH = 32
_DEFAULT_MAX_TOKENS = 512


class HubEmbedder:
    """Runs a fastembed model; the model is fetched by fastembed, once."""

    def __init__(self, name: str, threads: int, **options: Any) -> None:
        self._name = name
        self._threads = threads
        self._options = options
        self._dim = _known_dim(name)
        self._model: TextEmbedding | None = None
        self._loading = threading.Lock()

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """What identifies the vectors; hub models are told apart by name alone."""
        return EmbedderFingerprint(self._name, "fastembed", self._dim, variant="fastembed")

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return self._dim

    @property
    def max_tokens(self) -> int:
        """The longest text that the model reads whole."""
        truncation = self._tokenizer().truncation
        return int(truncation["max_length"]) if truncation else _DEFAULT_MAX_TOKENS

    def warm_up(self) -> None:
        """Fetch and load the model."""
        self._loaded()

    def close(self) -> None:
        """Nothing is held that others could want."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, those beyond the model's limit included."""
        encoding = self._tokenizer().encode(text)
        return len(encoding.ids) + sum(len(rest.ids) - 2 for rest in encoding.overflowing)

    def embed_query(self, text: str) -> Vector:
        """Embed one question."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several questions."""
        return self._collect(self._loaded().query_embed(list(texts)), len(texts), None)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed passages."""
        too_long = next((text for text in texts if self.count_tokens(text) > self.max_tokens), None)
        if too_long is not None:
            raise EmbeddingError(
                f"A passage is longer than the {self.max_tokens} tokens that the model reads: {too_long[:60]!r} …",
                hint="Split the passage; the chunker does so by itself.",
            )
        return self._collect(
            self._loaded().passage_embed(list(texts), batch_size=_BATCH), len(texts), progress
        )

    def _collect(self, stream: Iterable[Any], count: int, progress: Progress | None) -> list[Vector]:
        rows = []
        try:
            for row in stream:
                rows.append(row)
                if progress and (len(rows) % _BATCH == 0 or len(rows) == count):
                    progress(len(rows), count)
        except Exception as error:  # fastembed raises what lies below it
            raise EmbeddingError(f"The embedding model {self._name} failed: {error}") from error
        return checked(rows, count, self._dim) if count else []

    def _tokenizer(self) -> Any:
        model: Any = self._loaded().model
        return model.tokenizer

    def _loaded(self) -> TextEmbedding:
        with self._loading:
            if self._model is None:
                from fastembed import TextEmbedding

                try:
                    self._model = TextEmbedding(self._name, threads=self._threads, **self._options)
                except (
                    Exception
                ) as error:  # no network, no such model, no space: fastembed has no error types
                    raise EmbeddingError(
                        f"The embedding model {self._name} cannot be loaded: {error}",
                        hint="fastembed fetches it from a hub at first use; without a network, unset RECTO_MODEL for the built-in model.",
                    ) from error
            return self._model


def _known_dim(name: str) -> int:
    try:
        from fastembed import TextEmbedding
    except ImportError as error:
        raise missing_extra(f"RECTO_MODEL={name}", "fastembed") from error
    for model in TextEmbedding.list_supported_models():
        if str(model["model"]).lower() == name.lower():
            return int(model["dim"])
    raise ConfigurationError(
        f"RECTO_MODEL={name} is neither the built-in model, nor a directory, nor a model that fastembed knows",
        hint="fastembed.TextEmbedding.list_supported_models() lists those.",
    )

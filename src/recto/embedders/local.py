"""Embed on this machine: one class for every ONNX model, whatever way its weights arrive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recto.embedders.checks import checked
from recto.embedders.session import Run, Sessions
from recto.embedders.workers import side_by_side
from recto.errors import EmbeddingError, RectoError
from recto.protocols import Progress
from recto.types import EmbedderFingerprint, Vector

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_BATCH_TOKENS = 512  # padded tokens in one call of the model: larger batches use more memory and are not faster


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model: its tokenizer (no padding, no truncation), its padding token and how to run it."""

    tokenizer: Tokenizer
    sessions: Sessions
    padding: int


class LocalEmbedder:
    """Runs a model in this process; loads it once, when it is first needed."""

    def __init__(self, fingerprint: EmbedderFingerprint, max_tokens: int, load: Callable[[], Model], threads: int = 1) -> None:
        self._fingerprint = fingerprint
        self._max_tokens = max_tokens
        self._threads = threads
        self._load = load
        self._model: Model | None = None
        self._loading = threading.Lock()

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """What identifies the vectors."""
        return self._fingerprint

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return self._fingerprint.dim

    @property
    def max_tokens(self) -> int:
        """The longest text that the model reads whole."""
        return self._max_tokens

    def warm_up(self) -> None:
        """Load what a question needs."""
        self._loaded().sessions.alone()

    def close(self) -> None:
        """Nothing is held that others could want."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, special ones included."""
        return len(self._loaded().tokenizer.encode(text))

    def embed_query(self, text: str) -> Vector:
        """Embed one question."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several questions; what is beyond the model's limit is not read."""
        rows = [self._cut(encoding) for encoding in self._encode(texts)]
        sessions = self._loaded().sessions
        return self._run(sessions.alone(), rows) if len(rows) == 1 else self._embed(rows, sessions.beside, None)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed passages in batches of similar length."""
        rows = [encoding.ids for encoding in self._encode(texts)]
        for text, row in zip(texts, rows, strict=True):
            if len(row) > self._max_tokens:
                raise EmbeddingError(
                    f"A passage has {len(row)} tokens, the model reads {self._max_tokens}: {text[:60]!r} …",
                    hint="Split the passage; the chunker does so by itself.",
                )
        return self._embed(rows, self._loaded().sessions.passages, progress)

    def _loaded(self) -> Model:
        if self._model is None:
            with self._loading:
                if self._model is None:
                    self._model = self._load()
        return self._model

    def _encode(self, texts: Sequence[str]) -> list[Encoding]:
        tokenizer = self._loaded().tokenizer
        try:
            return tokenizer.encode_batch_fast(list(texts))
        except Exception as error:  # the tokenizer's own errors are bare
            raise EmbeddingError(f"The text cannot be read by the model's tokenizer: {error}") from error

    def _cut(self, encoding: Encoding) -> list[int]:
        """Keep the beginning and the closing mark, which models expect at the end."""
        ids: list[int] = encoding.ids
        return ids if len(ids) <= self._max_tokens else [*ids[: self._max_tokens - 1], ids[-1]]

    def _embed(self, rows: list[list[int]], way: Callable[[], Run], progress: Progress | None) -> list[Vector]:
        if not rows:
            return []
        vectors: list[Vector] = [[]] * len(rows)
        run = way()
        done = 0

        def keep(batch: list[int], found: list[Vector]) -> None:
            nonlocal done
            for index, vector in zip(batch, found, strict=True):
                vectors[index] = vector
            done += len(batch)
            if progress:
                progress(done, len(rows))

        batches = _batches([len(row) for row in rows])
        side_by_side(batches, lambda batch: self._run(run, [rows[index] for index in batch]), self._threads, keep)
        return vectors

    def _run(self, run: Run, rows: list[list[int]]) -> list[Vector]:
        import numpy as np

        longest = max(len(row) for row in rows)
        ids = np.full((len(rows), longest), self._loaded().padding, np.int64)
        mask = np.zeros((len(rows), longest), np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        try:
            vectors = run(ids, mask)
        except RectoError:
            raise
        except Exception as error:  # onnxruntime raises many types, none of them documented
            raise EmbeddingError(f"The embedding model failed: {error}", hint="Run `recto index --sample` to test it.") from error
        return checked(vectors, len(rows), self.dim)


def _batches(lengths: list[int]) -> list[list[int]]:
    """Group positions by similar length, so that little padding is computed.

    The longest come first: memory peaks at once, and at the end no worker waits long for another.
    """
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if not batches or (len(batches[-1]) + 1) * longest > _BATCH_TOKENS:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return batches

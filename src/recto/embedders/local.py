"""Embed on this machine: one class for every ONNX model, whatever way its weights arrive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from recto.embedders.checks import checked
from recto.embedders.session import Run, Sessions
from recto.embedders.workers import side_by_side
from recto.errors import EmbeddingError, RectoError
from recto.protocols import Progress
from recto.types import EmbedderFingerprint, Vector

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BATCH_TOKENS = 512  # padded tokens in one call of the model: larger batches use more memory and are not faster


class LocalEmbedder:
    """Runs a model in this process; each part of it is loaded once, when it is first needed."""

    def __init__(
        self,
        fingerprint: EmbedderFingerprint,
        max_tokens: int,
        open_tokenizer: Callable[[], Tokenizer],
        sessions: Sessions,
        threads: int = 1,
        plain: Callable[[str], list[int] | None] | None = None,
    ) -> None:
        """Take a tokenizer (no padding, no truncation), the model, and a way to tokenise plain questions before the tokenizer is there."""
        self._fingerprint = fingerprint
        self._max_tokens = max_tokens
        self._open_tokenizer = open_tokenizer
        self._sessions = sessions
        self._threads = threads
        self._plain = plain
        self._tokenizer: Tokenizer | None = None
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
        self._question_tokens([""])
        self._sessions.alone()

    def close(self) -> None:
        """Nothing is held that others could want."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, special ones included."""
        return len(self._loaded().encode(text))

    def embed_query(self, text: str) -> Vector:
        """Embed one question."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several questions; what is beyond the model's limit is not read."""
        rows = [self._cut(row) for row in self._question_tokens(texts)]
        return self._run(self._sessions.alone(), rows) if len(rows) == 1 else self._embed(rows, self._sessions.beside, None)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed passages in batches of similar length."""
        rows = self._tokens(texts)
        for text, row in zip(texts, rows, strict=True):
            if len(row) > self._max_tokens:
                raise EmbeddingError(
                    f"A passage has {len(row)} tokens, the model reads {self._max_tokens}: {text[:60]!r} …",
                    hint="Split the passage; the chunker does so by itself.",
                )
        return self._embed(rows, self._sessions.passages, progress)

    def _loaded(self) -> Tokenizer:
        if self._tokenizer is None:
            with self._loading:
                if self._tokenizer is None:
                    self._tokenizer = self._open_tokenizer()
        return self._tokenizer

    def _question_tokens(self, texts: Sequence[str]) -> list[list[int]]:
        if self._tokenizer is None and self._plain is not None:
            rows = [row for row in map(self._plain, texts) if row is not None]
            if len(rows) == len(texts):
                return rows
        return self._tokens(texts)

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        tokenizer = self._loaded()
        try:
            return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
        except Exception as error:  # the tokenizer's own errors are bare
            raise EmbeddingError(f"The text cannot be read by the model's tokenizer: {error}") from error

    def _cut(self, row: list[int]) -> list[int]:
        """Keep the beginning and the closing mark, which models expect at the end."""
        return row if len(row) <= self._max_tokens else [*row[: self._max_tokens - 1], row[-1]]

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
        try:
            vectors = run(rows)
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

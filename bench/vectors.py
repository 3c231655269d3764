"""Vectors for the benchmarks: each text is embedded once and cached, so that a run can be resumed."""

from __future__ import annotations

import hashlib
import sqlite3
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from recto.embedders.onnx import LocalEmbedder

_AT_A_TIME = 64  # texts between two writes to disk; an interruption loses at most these


class Vectors:
    """Embeds texts with a model, through a cache by the hashes of the texts."""

    def __init__(self, embedder: LocalEmbedder, cache: Path) -> None:
        self._embedder = embedder
        self.max_tokens = embedder.max_tokens
        self.count = lru_cache(maxsize=1 << 18)(embedder.count_tokens)  # all chunk sizes count the same texts
        cache.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(cache / "vectors.db")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"
        )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the cache."""
        self._database.close()

    def documents(self, texts: Sequence[str], what: str) -> Any:
        """Return a vector for each chunk."""
        return self._rows(texts, what, question=False)

    def questions(self, texts: Sequence[str], what: str) -> Any:
        """Return a vector for each query."""
        return self._rows(texts, what, question=True)

    def _rows(self, texts: Sequence[str], what: str, *, question: bool) -> Any:
        import numpy as np

        keys = [self._key(text, question=question) for text in texts]
        missing = sorted(
            {key: text for key, text in zip(keys, texts, strict=True) if self._found(key) is None}.items(),
            key=_by_length,
        )
        for start in range(0, len(missing), _AT_A_TIME):
            batch = missing[start : start + _AT_A_TIME]
            embed = self._embedder.embed_queries if question else self._embedder.embed_documents
            vectors = np.asarray(embed([text for _, text in batch]), np.float32)
            with self._database:
                self._database.executemany(
                    "INSERT OR IGNORE INTO vectors VALUES (?, ?)",
                    [(key, row.tobytes()) for (key, _), row in zip(batch, vectors, strict=True)],
                )
            if len(missing) > 1:
                print(
                    f"\r{what}: {start + len(batch)} of {len(missing)} texts embedded",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
        if len(missing) > 1:
            print(file=sys.stderr)
        return np.stack([np.frombuffer(self._found(key) or b"", np.float32) for key in keys])

    def _found(self, key: bytes) -> bytes | None:
        row = self._database.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def _key(self, text: str, *, question: bool) -> bytes:
        return hashlib.sha256(f"{self._embedder.fingerprint}\n{question}\n{text}".encode()).digest()


def _by_length(item: tuple[bytes, str]) -> int:
    """Return texts sorted by length, longest first: little padding, and a lack of memory shows at once."""
    return -len(item[1])

"""A cache of vectors on disk: each text is embedded once, so that a run can be resumed."""

from __future__ import annotations

import hashlib
import sqlite3
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

_AT_A_TIME = 64  # texts between two writes to disk; an interruption loses at most these

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]


class VectorCache:
    """Vectors of one model, by the hashes of the texts."""

    def __init__(self, folder: Path, model: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._model = model
        self._database = sqlite3.connect(folder / "vectors.db")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"
        )

    def embed(self, texts: Sequence[str], embed: Embed, *, query: bool) -> list[list[float]]:
        """Return a vector for each text, and embed those that are missing."""
        keys = [self._key(text, query=query) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if self._find(key) is None}
        # The longest texts are first, and batches have texts of similar length: they need little padding.
        items = sorted(missing.items(), key=lambda item: -len(item[1]))
        for start in range(0, len(items), _AT_A_TIME):
            batch = items[start : start + _AT_A_TIME]
            vectors = embed([text for _, text in batch])
            rows = [
                (key, array("f", vector).tobytes()) for (key, _), vector in zip(batch, vectors, strict=True)
            ]
            with self._database:
                self._database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        return [array("f", self._find(key) or b"").tolist() for key in keys]

    def close(self) -> None:
        """Close the cache."""
        self._database.close()

    def _find(self, key: bytes) -> bytes | None:
        row = self._database.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def _key(self, text: str, *, query: bool) -> bytes:
        return hashlib.sha256(f"{self._model}\n{query}\n{text}".encode()).digest()

"""A store that keeps collections in an SQLite file and compares a query with every chunk."""

from __future__ import annotations

import json
import math
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from operator import mul
from pathlib import Path
from typing import Any, Self

from recto import Chunk, CollectionMissing, ConfigurationError, Filters, Settings, StoreBusy
from recto.errors import EmbeddingError
from recto.plugins import Notify
from recto.protocols import Index
from recto.types.index import (
    Calibration,
    Candidates,
    EmbedderFingerprint,
    Fingerprint,
    IndexInfo,
    IndexQuery,
    SparseVector,
)
from recto.types.search import Vector

NO_FILTERS = Filters()
SCHEMA = """
CREATE TABLE IF NOT EXISTS collections
    (name TEXT PRIMARY KEY, generation TEXT, data TEXT, lexicon BLOB, calibration TEXT);
CREATE TABLE IF NOT EXISTS aliases (alias TEXT PRIMARY KEY, name TEXT);
"""


class SqliteIndex:
    """One published state of a collection, in memory: it never changes."""

    def __init__(self, info: IndexInfo, rows: Sequence[dict[str, Any]], lexicon: bytes) -> None:
        self.info = info
        self._chunks = {row["chunk"]["id"]: _chunk(row["chunk"]) for row in rows}
        self._vectors: dict[str, Vector] = {row["chunk"]["id"]: row["vector"] for row in rows}
        self._lexical = {row["chunk"]["id"]: dict(row["lexical"]) for row in rows}
        self._frequencies = Counter(term for terms in self._lexical.values() for term in terms)
        self._lexicon = lexicon

    def candidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the scores of all chunks: Recto sorts them and keeps the best `limit`."""
        return [
            Candidates(
                self._dense(query.dense, filters) if query.dense is not None else {},
                self._bm25(query.lexical, filters) if query.lexical is not None else {},
            )
            for query in queries
        ]

    def _dense(self, vector: Vector, filters: Filters) -> dict[Hashable, float]:
        """Return the cosine similarity of each chunk; all vectors have length one."""
        return {chunk.id: sum(map(mul, vector, self._vectors[chunk.id])) for chunk in self.scroll(filters)}

    def _bm25(self, query: SparseVector, filters: Filters) -> dict[Hashable, float]:
        """Return the lexical score of each chunk that has a term of the query."""
        made = self.info.fingerprint
        if made is None or not made.analyzer:
            raise ConfigurationError(
                f"Collection '{self.info.collection}' has no lexical vectors", hint="Index the book again."
            )
        weights = {
            term: value * self._idf(term) for term, value in zip(query.indices, query.values, strict=True)
        }
        scores: dict[Hashable, float] = {}
        for chunk in self.scroll(filters):
            terms = self._lexical[chunk.id]
            if score := sum(weight * terms.get(term, 0.0) for term, weight in weights.items()):
                scores[chunk.id] = score
        return scores

    def _idf(self, term: int) -> float:
        """Return the inverse document frequency of a term."""
        count = self._frequencies[term]
        return math.log(1 + (len(self._chunks) - count + 0.5) / (count + 0.5))

    def chunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by their ids."""
        return {id: self._chunks[str(id)] for id in ids}

    def lexicon(self) -> bytes:
        """Return the vocabulary."""
        return self._lexicon

    def count(self, filters: Filters = NO_FILTERS) -> int:
        """Count the chunks that match a filter."""
        return sum(1 for _ in self.scroll(filters))

    def scroll(self, filters: Filters = NO_FILTERS, batch: int = 256) -> Iterator[Chunk]:
        """Yield the chunks that match a filter."""
        return (chunk for chunk in self._chunks.values() if filters.matches(chunk))

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the vectors of the chunks that exist."""
        return {id: self._vectors[id] for id in ids if id in self._vectors}

    def modules(self) -> dict[str, int]:
        """Count the chunks of each module."""
        return dict(Counter(chunk.module for chunk in self._chunks.values()))

    def pages(self) -> dict[str, int]:
        """Count the chunks of each page."""
        return dict(Counter(chunk.page_url for chunk in self._chunks.values()))


class SqliteBuild:
    """A new state of a collection; `publish` writes it in one transaction."""

    def __init__(self, store: SqliteStore, name: str, dim: int, wait: Callable[[str], None] | None) -> None:
        self._store, self._name, self._dim, self._wait = store, name, dim, wait
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        """Lock the collection: SQLite releases the lock even if the process is killed."""
        self._lock = sqlite3.connect(self._store.folder / f"{self._name}.lock", timeout=0)
        try:
            self._lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if self._wait is None:
                self._lock.close()
                raise StoreBusy(
                    f"Collection '{self._name}' is being written by another process", hint="Try again later."
                ) from error
            self._wait(f"Waiting for another writer of '{self._name}'.")
            self._lock.execute("PRAGMA busy_timeout = 3600000")
            self._lock.execute("BEGIN EXCLUSIVE")
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self._lock.close()

    def add(
        self,
        chunks: Sequence[Chunk],
        vectors: Sequence[Vector],
        lexical: Sequence[SparseVector] | None = None,
    ) -> None:
        """Add chunks with their vectors."""
        if any(len(vector) != self._dim or not all(map(math.isfinite, vector)) for vector in vectors):
            raise EmbeddingError(f"A vector does not have {self._dim} finite numbers")
        terms = lexical or [SparseVector((), ())] * len(chunks)
        for chunk, vector, sparse in zip(chunks, vectors, terms, strict=True):
            pairs = list(zip(sparse.indices, sparse.values, strict=True))
            self._rows.append({"chunk": asdict(chunk), "vector": vector, "lexical": pairs})

    def keep(
        self, chunks: Sequence[Chunk], current: Index, lexical: Sequence[SparseVector] | None = None
    ) -> None:
        """Add chunks of the current index with the vectors that they have there."""
        vectors = current.vectors([chunk.id for chunk in chunks])
        self.add(chunks, [vectors[chunk.id] for chunk in chunks], lexical)

    def publish(self, fingerprint: Fingerprint, lexicon: bytes = b"") -> IndexInfo:
        """Replace the current index."""
        generation = uuid.uuid4().hex
        data = json.dumps({"fingerprint": fingerprint.to_dict(), "rows": self._rows})
        with self._store.connected() as database, database:
            database.execute("DELETE FROM aliases WHERE alias = ?", (self._name,))
            database.execute(
                "REPLACE INTO collections VALUES (?, ?, ?, ?, '')", (self._name, generation, data, lexicon)
            )
        return IndexInfo(self._name, generation, len(self._rows), fingerprint)


class SqliteStore:
    """Collections in `demo-sqlite/collections.db` in the home directory of Recto."""

    is_local = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, SqliteIndex] = {}

    def connected(self) -> closing[sqlite3.Connection]:
        """Return a connection for a `with` block."""
        self.folder.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self.folder / "collections.db")
        database.executescript(SCHEMA)
        return closing(database)

    def collections(self) -> tuple[str, ...]:
        """Return the names of the collections."""
        with self.connected() as database:
            return tuple(name for (name,) in database.execute("SELECT name FROM collections ORDER BY name"))

    def aliases(self) -> Mapping[str, str]:
        """Return the collection of each alias."""
        with self.connected() as database:
            return dict(database.execute("SELECT alias, name FROM aliases"))

    def open(self, name: str) -> SqliteIndex:
        """Return the current index; read it again only if another one was published."""
        name = self.aliases().get(name, name)
        with self.connected() as database:
            state = database.execute(
                "SELECT generation, calibration FROM collections WHERE name = ?", (name,)
            ).fetchone()
            if state is None:
                raise CollectionMissing(
                    f"Collection '{name}' does not exist",
                    hint=f"Index a book with `recto index PATH --collection {name}`.",
                )
            generation, calibration = state
            measured = Calibration.from_dict(json.loads(calibration)) if calibration else None
            known = self._open.get(name)
            if known is None or (known.info.generation, known.info.calibration) != (generation, measured):
                data, lexicon = database.execute(
                    "SELECT data, lexicon FROM collections WHERE name = ?", (name,)
                ).fetchone()
                content = json.loads(data)
                made = Fingerprint.from_dict(content["fingerprint"])
                info = IndexInfo(name, generation, len(content["rows"]), made, calibration=measured)
                known = self._open[name] = SqliteIndex(info, content["rows"], lexicon)
        return known

    def build(
        self,
        name: str,
        embedder: EmbedderFingerprint,
        *,
        analyzer: str = "",
        rebuild: bool = False,
        wait: Callable[[str], None] | None = None,
    ) -> SqliteBuild:
        """Begin a new state of a collection; it always replaces the old one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return SqliteBuild(self, name, embedder.dim, wait)

    def set_aliases(self, aliases: Iterable[str], name: str) -> None:
        """Add names for a collection; an alias never hides a collection."""
        free = set(aliases).difference(self.collections())
        with self.connected() as database, database:
            database.executemany("REPLACE INTO aliases VALUES (?, ?)", [(alias, name) for alias in free])

    def save_calibration(self, info: IndexInfo, calibration: Calibration) -> None:
        """Store what was measured, if the index is still the current one."""
        measured = json.dumps(calibration.to_dict())
        with self.connected() as database, database:
            database.execute(
                "UPDATE collections SET calibration = ? WHERE name = ? AND generation = ?",
                (measured, info.collection, info.generation),
            )

    def close(self) -> None:
        """Forget the open indexes."""
        self._open.clear()


def _chunk(data: dict[str, Any]) -> Chunk:
    """Return a chunk from JSON, which has lists where a chunk has tuples."""
    data = dict(data)
    for name in ("module_keys", "headings", "anchors", "locales", "questions"):
        data[name] = tuple(data[name])
    return Chunk(**data)


def open_store(settings: Settings, notify: Notify) -> SqliteStore:
    """Return the store for `RECTO_STORE=demo-sqlite`."""
    return SqliteStore(settings.home / "demo-sqlite")

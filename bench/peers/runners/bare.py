"""The lower limit: direct calls of the tokenizer, onnxruntime and Qdrant Edge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.runners.embedding import Embedding
from bench.peers.runners.protocol import main
from bench.peers.runners.system import Found, Piece

_WRITTEN = 100
_FILTERED = "module_keys"


class Bare:
    """The minimum work of any system with this engine and model, with Recto's schema and filter."""

    def load(self) -> None:
        """Import the engine."""
        import qdrant_edge

        self._edge = qdrant_edge

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Embed all texts and write the points."""
        from recto.stores.edge.engine import finish_shard, payload_indexes

        edge = self._edge
        vectors = embedding.documents([piece.text for piece in pieces])
        folder.mkdir(parents=True, exist_ok=True)
        config = edge.EdgeConfig(
            vectors=edge.EdgeVectorParams(size=embedding.dim, distance=edge.Distance.Cosine),
            wal_enabled=False,
        )
        shard = edge.EdgeShard.create(str(folder), config)
        shard.update(edge.UpdateOperation.create_field_index(_FILTERED, payload_indexes()[_FILTERED]))
        points = [
            edge.Point(piece.id, vector, _payload(piece))
            for piece, vector in zip(pieces, vectors, strict=True)
        ]
        for start in range(0, len(points), _WRITTEN):
            shard.update(edge.UpdateOperation.upsert_points(points[start : start + _WRITTEN]))
        finish_shard(shard, folder, len(points), embedding.dim)

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Open the shard, and the model if needed."""
        from recto.stores.edge.engine import search_params

        self._shard = self._edge.EdgeShard.load(str(folder))
        self._params = search_params(self._shard.info().points_count)
        self._embedding = embedding
        if embedding.wall == 0 and embedding.question == getattr(embedding.embedder, "embed_query", None):
            embedding.question = _onnxruntime(embedding.embedder)

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Call the model, then the engine."""
        edge = self._edge
        only = None
        if module is not None:
            only = edge.Filter(must=[edge.FieldCondition(key=_FILTERED, match=edge.MatchValue(module))])
        query = edge.Query.Nearest(self._embedding.query(question))
        return self._shard.query(
            edge.QueryRequest(
                limit=top, offset=0, query=query, filter=only, with_payload=True, params=self._params
            )
        )

    def found(self, answer: Any) -> Found:
        """Return the ids of the points."""
        return [(str(point.id), point.payload["source"]) for point in answer]


def _payload(piece: Piece) -> dict[str, Any]:
    return {
        "text": piece.text,
        _FILTERED: piece.chunk[_FILTERED],
        "source": piece.source,
        "page_url": piece.page_url,
    }


def _onnxruntime(embedder: Any) -> Any:
    """Return a function that calls the tokenizer and onnxruntime directly."""
    tokens, sessions = embedder._query_tokens, embedder._sessions

    def question(text: str) -> list[float]:
        vector: list[float] = sessions.single()(tokens([text]))[0]
        return vector

    return question


if __name__ == "__main__":
    main(Bare())

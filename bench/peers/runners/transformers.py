"""sentence-transformers: the same weights in torch, and semantic search over a matrix, without filters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.runners.embedding import Embedding, as_array
from bench.peers.runners.protocol import main
from bench.peers.runners.system import Found, Piece
from bench.peers.runners.weights import write


class SentenceTransformers:
    """The library's model class and search function."""

    def load(self) -> None:
        """Import the library."""
        import sentence_transformers

        self._library = sentence_transformers

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Encode all texts and write two files, as in its examples."""
        self._take(folder.parent, embedding)
        folder.mkdir(parents=True, exist_ok=True)
        vectors = as_array(embedding.documents([piece.text for piece in pieces]))
        _numpy().save(folder / "vectors.npy", vectors)
        rows = [[piece.id, piece.source, piece.module, piece.text] for piece in pieces]
        (folder / "pieces.json").write_text(json.dumps(rows), "utf-8")

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Read both files, and load the model."""
        self._take(folder.parent, embedding)
        import torch

        self._vectors = torch.from_numpy(_numpy().load(folder / "vectors.npy"))
        self._pieces = json.loads((folder / "pieces.json").read_text("utf-8"))
        self._embedding = embedding

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Search."""
        if module is not None:
            raise NotImplementedError("the system has no filters")
        vector = as_array([self._embedding.query(question)])
        return self._library.util.semantic_search(vector, self._vectors, top_k=top)

    def found(self, answer: Any) -> Found:
        """Return the ids of the rows."""
        return [(self._pieces[hit["corpus_id"]][0], self._pieces[hit["corpus_id"]][1]) for hit in answer[0]]

    def _take(self, scratch: Path, embedding: Embedding) -> None:
        """Run the model with torch, unless the vectors are precomputed."""
        if embedding.question != getattr(embedding.embedder, "embed_query", None):
            return
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

        folder = write(scratch / "sentence-transformers-model")
        reader = Transformer(str(folder))
        model = self._library.SentenceTransformer(
            modules=[reader, Pooling(embedding.dim, pooling_mode="cls"), Normalize()], device="cpu"
        )
        embedding.embed_documents = lambda texts: model.encode(list(texts), show_progress_bar=False).tolist()
        embedding.question = lambda text: model.encode([text], show_progress_bar=False)[0].tolist()


def _numpy() -> Any:
    import numpy as np

    return np


if __name__ == "__main__":
    main(SentenceTransformers())

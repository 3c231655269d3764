"""The other limit: a matrix in memory, multiplied by numpy, without an engine or payloads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.runners.embedding import Embedding, as_array
from bench.peers.runners.protocol import main
from bench.peers.runners.system import Found, Piece


class Brute:
    """Exact search by matrix multiplication."""

    def load(self) -> None:
        """Import numpy."""
        import numpy as np

        self._np = np

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Embed all texts and write two files."""
        folder.mkdir(parents=True, exist_ok=True)
        self._np.save(folder / "vectors.npy", as_array(embedding.documents([piece.text for piece in pieces])))
        rows = [[piece.id, piece.source, piece.module, piece.text] for piece in pieces]
        (folder / "pieces.json").write_text(json.dumps(rows), "utf-8")

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Read both files."""
        self._vectors = self._np.load(folder / "vectors.npy")
        self._pieces = json.loads((folder / "pieces.json").read_text("utf-8"))
        self._modules = self._np.array([module for _, _, module, _ in self._pieces])
        self._embedding = embedding

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Multiply, choose, sort."""
        np = self._np
        scores = self._vectors @ as_array(self._embedding.query(question))
        if module is not None:
            scores = np.where(self._modules == module, scores, -2)  # below every cosine
        top = min(top, len(scores))
        best = np.argpartition(-scores, top - 1)[:top]
        best = best[np.argsort(-scores[best])]
        return [(float(scores[row]), self._pieces[row]) for row in best if scores[row] >= -1]

    def found(self, answer: Any) -> Found:
        """Return the ids of the rows."""
        return [(piece[0], piece[1]) for _, piece in answer]


if __name__ == "__main__":
    main(Brute())

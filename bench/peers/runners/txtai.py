"""txtai: an embeddings database with content, its default index, and vectors from a function."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.runners.embedding import Embedding, as_array
from bench.peers.runners.protocol import main
from bench.peers.runners.system import Found, Piece

_CURRENT: list[Embedding] = []


def transform(inputs: Sequence[str]) -> Any:
    """Embed texts; txtai tells queries from documents only by their number."""
    embedding = _CURRENT[-1]
    return as_array(embedding.documents(list(inputs)) if len(inputs) > 1 else [embedding.query(inputs[0])])


class Txtai:
    """The embeddings database."""

    def load(self) -> None:
        """Import the database."""
        from txtai import Embeddings

        self._embeddings = Embeddings

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Index and save."""
        _CURRENT.append(embedding)
        database = self._new()
        database.index(
            (
                piece.id,
                {
                    "text": piece.text,
                    "module": piece.module,
                    "page_url": piece.page_url,
                    "source": piece.source,
                },
                None,
            )
            for piece in pieces
        )
        database.save(str(folder))
        database.close()

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Load the index."""
        _CURRENT.append(embedding)
        self._opened = self._new()
        self._opened.load(str(folder))

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Query in its SQL, which filters and returns metadata."""
        fields = "select id, text, score, module, page_url, source from txtai where similar(:question)"
        if module is None:
            return self._opened.search(fields, top, parameters={"question": question})
        return self._opened.search(
            f"{fields} and module = :module", top, parameters={"question": question, "module": module}
        )

    def found(self, answer: Any) -> Found:
        """Return the ids of the rows."""
        return [(row["id"], row["source"]) for row in answer]

    def _new(self) -> Any:
        return self._embeddings(
            method="external", transform="bench.peers.runners.txtai.transform", content=True
        )


if __name__ == "__main__":
    from bench.peers.runners.txtai import Txtai as Imported  # the module in which `transform` is found

    os.environ["ALLOW_RESOLVE_TRANSFORM"] = "True"  # required for calling a function by its name
    main(Imported())

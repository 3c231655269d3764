"""Whether stored vectors belong to their texts: all are looked at, a few that show the most are embedded again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from statistics import median
from typing import TYPE_CHECKING, Any

from recto.evaluation.issues import Issues, Trouble
from recto.evaluation.stored import embedded_text, place
from recto.protocols import Embedder
from recto.types import Chunk, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PAGES = 32  # pages of which the shortest passage is embedded again
_SUSPECTS = 6  # passages that are far from all others; noise is among them, if there is any
_KEPT = 4000  # vectors from which the middle is taken
_LENGTH_OFF = 0.01
_SAME = 0.97  # the same model gives the same text at least this cosine, in any precision
_FOREIGN_SAME = 0.5  # of unknown texts around the passage: below this it cannot be the same model
_OUTLIER = 6.0  # median absolute deviations below the median


class VectorCheck:
    """Takes passages batch by batch and keeps only those that will be embedded again."""

    def __init__(self, *, own: bool) -> None:
        self._own = own
        self._shortest: dict[str, tuple[int, Chunk]] = {}
        self._stored: dict[str, Vector] = {}
        self._middle: NDArray[Any] | None = None
        self._waiting: list[tuple[Sequence[Chunk], NDArray[Any]]] = []
        self._held = 0
        self._near: dict[str, float] = {}
        self._suspects: list[tuple[float, str, Chunk, Vector]] = []

    def add(self, chunks: Sequence[Chunk], vectors: Mapping[str, Vector], issues: Issues) -> None:
        """Look at the vectors of some passages: finite, of length one, and how far from the others."""
        import numpy as np

        usable: list[Chunk] = []
        for chunk in chunks:
            vector = np.asarray(vectors.get(chunk.id, ()), dtype=np.float32)
            length = float(np.linalg.norm(vector)) if vector.size else 0.0
            if not np.isfinite(length) or abs(length - 1) > _LENGTH_OFF:
                issues.add(Trouble.BAD_VECTOR, place(chunk))
            else:
                usable.append(chunk)
                self._keep_shortest(chunk, vectors[chunk.id])
        if not usable:
            return
        array = np.asarray([vectors[chunk.id] for chunk in usable], dtype=np.float32)
        self._waiting.append((usable, array))
        self._held += len(usable)
        if self._middle is not None or self._held >= _KEPT:
            self._settle()

    def compare(self, embedder: Embedder, issues: Issues) -> tuple[float | None, int]:
        """Embed the kept passages again; return the middle of the cosines, and how many there were."""
        self._settle()
        suspects = {chunk.id: (chunk, vector) for _, _, chunk, vector in self._suspects}
        sampled = {chunk.id: (chunk, self._stored[chunk.page_url]) for _, chunk in self._shortest.values()}
        # A text that is not the one that was embedded is told of already; its vector says nothing more.
        texts = {id: embedded_text(chunk) if self._own else chunk.text for id, (chunk, _) in (suspects | sampled).items()}
        if not self._own:
            texts = {id: text if embedder.count_tokens(text or "") <= embedder.max_tokens else None for id, text in texts.items()}
        known = {id: text for id, text in texts.items() if text}
        if not known:
            return None, 0
        fresh = dict(zip(known, embedder.embed_documents(list(known.values())), strict=True))
        cosines = {id: _cosine(fresh[id], (suspects | sampled)[id][1]) for id in known}
        agreement = median(cosines[id] for id in known if id in sampled) if set(known) & set(sampled) else median(cosines.values())
        wrong = [id for id in known if cosines[id] < (_SAME if self._own else _FOREIGN_SAME)]
        if agreement < (_SAME if self._own else _FOREIGN_SAME):
            issues.add(Trouble.OTHER_MODEL, f"a cosine of {agreement:.3f} between stored and fresh vectors of the same texts", len(wrong))
        else:
            for id in wrong:
                issues.add(Trouble.OTHER_VECTOR, place((suspects | sampled)[id][0]))
            more = sum(id not in known for id in self._outliers())
            if more and any(id in suspects for id in wrong):
                issues.add(Trouble.OTHER_VECTOR, "others that are as far from all passages", more)
        return agreement, len(known)

    def _keep_shortest(self, chunk: Chunk, vector: Vector) -> None:
        """Keep the shortest passage of a page: it is the cheapest to embed, and shows an exchange of pages as well as any."""
        known = self._shortest.get(chunk.page_url)
        if known is None and len(self._shortest) >= _PAGES:
            return
        if known is None or (len(chunk.text), chunk.id) < (known[0], known[1].id):
            self._shortest[chunk.page_url] = (len(chunk.text), chunk)
            self._stored[chunk.page_url] = vector

    def _settle(self) -> None:
        """Measure how near the waiting vectors are to the middle of all, and keep the farthest."""
        import numpy as np

        if not self._waiting:
            return
        if self._middle is None:
            total = np.sum([array.sum(axis=0) for _, array in self._waiting], axis=0)
            self._middle = total / (np.linalg.norm(total) or 1.0)
        for chunks, array in self._waiting:
            near = (array @ self._middle).tolist()
            self._near.update(zip((chunk.id for chunk in chunks), near, strict=True))
            found = zip(near, (chunk.id for chunk in chunks), chunks, array.tolist(), strict=True)
            self._suspects = nsmallest(_SUSPECTS, [*self._suspects, *found], key=lambda suspect: suspect[:2])
        self._waiting = []

    def _outliers(self) -> list[str]:
        """Name the vectors that are much farther from the middle than is usual."""
        middle = median(self._near.values())
        usual = median(abs(near - middle) for near in self._near.values())
        return [id for id, near in self._near.items() if near < middle - _OUTLIER * usual]


def _cosine(one: Vector, other: Vector) -> float:
    return sum(left * right for left, right in zip(one, other, strict=True)) if len(one) == len(other) else 0.0

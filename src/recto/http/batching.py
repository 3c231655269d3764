"""Embed the questions of concurrent requests together: a batch is whatever arrived while the one before it ran."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from recto.errors import RectoError
from recto.protocols import Embedder, Progress
from recto.types import EmbedderFingerprint, Vector

MOST = 16
_MOST_CHARACTERS = 8_000  # a second's work for a model on a small machine


class _Waiting:
    """One caller's texts, and what has come of them; who opens the gate has set a result or an error, or wants it to lead."""

    __slots__ = ("error", "gate", "texts", "vectors")

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.vectors: list[Vector] | None = None
        self.error: BaseException | None = None
        self.gate = threading.Lock()
        self.gate.acquire()


class BatchingEmbedder:
    """An embedder for many threads: the first caller embeds for all who wait, then hands over; nobody waits for a clock."""

    def __init__(self, inner: Embedder, told: Callable[[int], None] = lambda _: None) -> None:
        self._inner = inner
        self._told = told
        self._lock = threading.Lock()
        self._queue: list[_Waiting] = []
        self._led = False

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """What identifies the vectors."""
        return self._inner.fingerprint

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return self._inner.dim

    @property
    def max_tokens(self) -> int:
        """The longest text that the model reads whole."""
        return self._inner.max_tokens

    def warm_up(self) -> None:
        """Load the model."""
        self._inner.warm_up()

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""
        return self._inner.count_tokens(text)

    def embed_query(self, text: str) -> Vector:
        """Embed one question, together with those of other threads."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several questions, together with those of other threads; many of them in turns, so that nobody waits for them all."""
        return [vector for turn in _turns(texts) for vector in self._embed_together(turn)]

    def _embed_together(self, texts: list[str]) -> list[Vector]:
        mine = _Waiting(texts)
        with self._lock:
            self._queue.append(mine)
            leads, self._led = not self._led, True
        if not leads:
            mine.gate.acquire()  # opened with a result, or because it is this caller's turn to lead
        if mine.vectors is None and mine.error is None:
            self._lead()
        if mine.error is not None:
            raise mine.error
        return mine.vectors or []

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed passages; they are many by themselves."""
        return self._inner.embed_documents(texts, progress)

    def close(self) -> None:
        """Let go of connections."""
        self._inner.close()

    def _lead(self) -> None:
        """Embed for all who wait by now, then let the next one lead."""
        with self._lock:
            batch = self._taken()
        try:
            self._embed(batch)
        finally:
            with self._lock:
                heir = self._queue[0] if self._queue else None
                self._led = heir is not None
            for one in batch:
                one.gate.release()
            if heir is not None:
                heir.gate.release()

    def _taken(self) -> list[_Waiting]:
        """Take from the queue what fits; the one who leads is its first."""
        count, texts = 0, 0
        for one in self._queue:
            texts += len(one.texts)
            if count and texts > MOST:
                break
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch

    def _embed(self, batch: list[_Waiting]) -> None:
        texts = [text for one in batch for text in one.texts]
        self._told(len(texts))
        try:
            vectors = iter(self._inner.embed_queries(texts))
        except RectoError as error:
            if len(batch) == 1:
                batch[0].error = error
                return
            for one in batch:  # one text that the model cannot read is not the others' fault
                self._embed([one])
        except BaseException as error:
            for one in batch:
                one.error = error
            raise
        else:
            for one in batch:
                one.vectors = [next(vectors) for _ in one.texts]


def _turns(texts: Sequence[str]) -> Iterator[list[str]]:
    """Share one caller's texts out to what is embedded at once."""
    turn: list[str] = []
    room = _MOST_CHARACTERS
    for text in texts:
        if turn and (len(turn) == MOST or len(text) > room):
            yield turn
            turn, room = [], _MOST_CHARACTERS
        turn.append(text)
        room -= len(text)
    if turn:
        yield turn

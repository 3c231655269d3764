"""Embed the questions of concurrent requests together: a batch is what waits by then and is about as long as the first in the queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from recto.errors import RectoError
from recto.protocols import Embedder, Progress
from recto.types import EmbedderFingerprint, Vector

MOST = 16
_MOST_CHARACTERS = 8_000  # a second's work for a model on a small machine
_CHARACTERS = 4  # of a token, about: counting them would need the tokenizer, which plain questions do without
_MOST_TOKENS = 512  # more at once is not faster, and who is in a batch waits for all of it
_CALL = 3.5  # what a call of the model costs by itself, in tokens; what is filled up in a batch costs as much as if it said something


class _Waiting:
    """One text, and what has come of it; who opens the gate has set a vector or an error, or wants its caller to lead."""

    __slots__ = ("error", "gate", "text", "tokens", "vector")

    def __init__(self, text: str, tokens: float) -> None:
        self.text = text
        self.tokens = tokens
        self.vector: Vector | None = None
        self.error: BaseException | None = None
        self.gate = threading.Lock()
        self.gate.acquire()


class BatchingEmbedder:
    """An embedder for many threads: the first caller embeds for others who wait, then hands over; nobody waits for a clock."""

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
        mine = [_Waiting(text, 2 + len(text) / _CHARACTERS) for text in texts]
        with self._lock:
            self._queue += mine
            if not self._led:  # then nobody was waiting, and the first in the queue is ours
                self._led = True
                mine[0].gate.release()
        for one in mine:
            one.gate.acquire()  # opened with a result, or because it is this caller's turn to lead
            if one.vector is None and one.error is None:
                self._lead()
        return [_vector(one) for one in mine]

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed passages; they are many by themselves."""
        return self._inner.embed_documents(texts, progress)

    def close(self) -> None:
        """Let go of connections."""
        self._inner.close()

    def _lead(self) -> None:
        """Embed the first in the queue and who goes with it, then let the next one lead."""
        with self._lock:
            batch = _alike(self._queue[:MOST])
            self._queue = [one for one in self._queue if one not in batch]
        self._embed(batch)
        with self._lock:
            heir = self._queue[0] if self._queue else None
            self._led = heir is not None
        for one in batch:
            one.gate.release()
        if heir is not None:
            heir.gate.release()

    def _embed(self, batch: list[_Waiting]) -> None:
        """Give every text of a batch its vector or its error; nothing is raised here, as others wait for who leads."""
        try:
            self._told(len(batch))
            vectors = self._inner.embed_queries([one.text for one in batch])
            for one, vector in zip(batch, vectors, strict=True):
                one.vector = vector
        except BaseException as error:  # noqa: BLE001 - each caller raises it for itself
            if isinstance(error, RectoError) and len(batch) > 1:
                for one in batch:  # one text that the model cannot read is not the others' fault
                    self._embed([one])
                return
            for one in batch:
                one.error = error


def _vector(one: _Waiting) -> Vector:
    if one.error is not None:
        raise one.error
    return one.vector or []


def _alike(waiting: list[_Waiting]) -> list[_Waiting]:
    """Share those who wait out to batches that cost least together, and return the one that the first of them is in.

    All texts of a batch are filled up to the longest: a short question beside a long one costs more than by itself.
    """
    if len(waiting) == 1:
        return waiting
    ordered = sorted(waiting, key=lambda one: one.tokens)
    costs, begins = [0.0], [0]
    for end in range(1, len(ordered) + 1):
        longest = ordered[end - 1].tokens
        cost, begin = min(
            (costs[begin] + _CALL + longest * (end - begin), begin)
            for begin in range(end)
            if begin == end - 1 or longest * (end - begin) <= _MOST_TOKENS
        )
        costs.append(cost)
        begins.append(begin)
    end = len(ordered)
    while waiting[0] not in (batch := ordered[begins[end] : end]):
        end = begins[end]
    return batch


def _turns(texts: Sequence[str]) -> Iterator[list[str]]:
    """Share one caller's texts out to what waits at once."""
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

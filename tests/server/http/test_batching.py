"""Test batched query embedding: each thread gets its own vector or error."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import pytest

from recto.errors import EmbeddingError
from recto.server.http.batching import MAX_BATCH, BatchingEmbedder
from recto.server.limits import CallCancelled, CurrentRequest, _current
from recto.types.search import Vector
from tests.running import wait_until

FAULTS = {"broken": EmbeddingError, "fault": KeyError, "memory": MemoryError, "nothing": ValueError}


def vector(text: str) -> Vector:
    return [float(crc32(text.encode()))]


class Model:
    """Records its calls, which wait until `gate` is set; certain texts make it fail."""

    warm_up = count_tokens = embed_documents = None  # not called

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.calls: list[list[str]] = []
        self.reported: list[int] = []
        self.batching = BatchingEmbedder(self, self.reported.append)  # type: ignore[arg-type]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        self.calls.append(list(texts))
        assert self.gate.wait(60)
        for text in FAULTS.keys() & {*texts} - {"nothing"}:
            raise FAULTS[text](text)
        return [] if "nothing" in texts else [vector(text) for text in texts]

    def embed_context_queries(self, texts: Sequence[str]) -> list[Vector]:
        return [[-value for value in found] for found in self.embed_queries(texts)]

    def wait_for(self, count: int) -> None:
        """Wait until so many texts are in the queue or were embedded."""
        wait_until(lambda: len(self.batching._queue) + sum(map(len, self.calls)) >= count and self.calls, 60)

    def ask(self, text: str) -> Vector | BaseException:
        try:
            return self.batching.embed_query(text)
        except (EmbeddingError, KeyError) as error:
            return error

    def ask_at_once(self, texts: list[str]) -> list[Vector | BaseException]:
        """Start one query, and send all others while it runs."""
        with ThreadPoolExecutor(len(texts)) as pool:
            first = pool.submit(self.ask, texts[0])
            self.wait_for(1)
            rest = [pool.submit(self.ask, text) for text in texts[1:]]
            self.wait_for(len(texts))
            self.gate.set()
            return [one.result(60) for one in (first, *rest)]


@pytest.mark.parametrize(("count", "sizes"), [(9, [1, 8]), (MAX_BATCH + 10, [1, MAX_BATCH, 9])])
def test_waiting_queries_form_batches(count: int, sizes: list[int]) -> None:
    model, texts = Model(), [f"question number {number}" for number in range(count)]
    assert model.ask_at_once(texts) == [vector(text) for text in texts]
    assert [len(batch) for batch in model.calls] == model.reported == sizes


def test_short_queries_are_not_padded_to_long_ones() -> None:
    short, long = "robot", "How do I find out why the joints of my robot do not move in the simulation?"
    model, texts = Model(), ["first", short, long, f"{short}s", long.upper(), f"{short}!"]
    assert model.ask_at_once(texts) == [vector(text) for text in texts]
    batches = [["first"], [short, f"{short}s", f"{short}!"], [long, long.upper()]]
    assert list(map(sorted, model.calls)) == list(map(sorted, batches))


def test_queries_for_context_have_batches_of_their_own() -> None:
    model, texts = Model(), [f"question number {number}" for number in range(6)]
    with ThreadPoolExecutor(1 + len(texts)) as pool:
        first = pool.submit(model.batching.embed_query, "first")
        model.wait_for(1)
        for_contexts = model.batching.abilities.embed_context_queries
        assert for_contexts is not None
        calls = [model.batching.embed_queries, for_contexts]
        rest = [pool.submit(calls[number % 2], [text]) for number, text in enumerate(texts)]
        wait_until(lambda: len(model.batching._queue) == len(texts), 60)
        model.gate.set()
        assert first.result(60) == vector("first")
        for number, (text, one) in enumerate(zip(texts, rest, strict=True)):
            assert one.result(60) == [[-value if number % 2 else value for value in vector(text)]]
    assert list(map(sorted, model.calls[1:])) in ([texts[::2], texts[1::2]], [texts[1::2], texts[::2]])


@pytest.mark.parametrize("text", FAULTS)
def test_an_error_does_not_block_the_next_query(text: str) -> None:
    model = Model()
    model.gate.set()
    with pytest.raises(FAULTS[text]):
        model.batching.embed_queries([text, "a question that is so much longer " * 12])
    assert model.batching.embed_query("next") == vector("next")


@pytest.mark.parametrize("text", ["broken", "fault"])
def test_only_an_unexpected_error_fails_the_whole_batch(text: str) -> None:
    texts = ["first", "good", text, "better"]
    results = Model().ask_at_once(texts)
    errors = [type(result) for result in results if isinstance(result, Exception)]
    assert errors == ([EmbeddingError] if text == "broken" else [KeyError] * 3)
    for one, result in zip(texts, results, strict=True):
        assert isinstance(result, Exception) or result == vector(one)


def as_caller(request: CurrentRequest, model: Model, texts: list[str]) -> list[Vector]:
    """Embed in a context of its own, as the threads of the service do."""

    def run() -> list[Vector]:
        _current.set(request)
        return model.batching.embed_queries(texts)

    return contextvars.copy_context().run(run)


def test_cancelled_requests_are_not_embedded() -> None:
    model, left = Model(), [CurrentRequest(f"left {number}") for number in range(8)]
    with ThreadPoolExecutor(len(left)) as pool:
        cancelled = [pool.submit(as_caller, one, model, ["x" * 1_900] * 30) for one in left]
        model.wait_for(240)
        for one in left:
            one.cancelled.set()
        model.gate.set()
        for result in cancelled:
            with pytest.raises(CallCancelled):
                result.result(60)
    assert len(model.calls) == 1, "the model is called no more when nobody waits"
    assert model.batching.embed_query("next") == vector("next")

"""Test batched query embedding: each thread gets its own vector or error."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from recto.errors import EmbeddingError
from recto.protocols import Embedder
from recto.server.http.batching import MAX_BATCH, BatchingEmbedder
from recto.server.limits import CallCancelled, CurrentRequest, _current
from recto.types.search import Vector
from tests.running import wait_until


class Held:
    """The real model, which waits until the test sets `gate`; certain texts make it fail."""

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner
        self.gate = threading.Event()
        self.batches: list[list[str]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        self.batches.append(list(texts))
        assert self.gate.wait(60)
        if "broken" in texts:
            raise EmbeddingError("The text cannot be read")
        if "fault" in texts:
            raise KeyError("fault")
        return self.inner.embed_queries(texts)


@pytest.fixture
def held(embedder: Embedder) -> Held:
    return Held(embedder)


def all_at_once(batching: BatchingEmbedder, held: Held, texts: list[str]) -> list[Vector | BaseException]:
    """Start one query, and send all others while it runs."""

    def ask(text: str) -> Vector | BaseException:
        try:
            return batching.embed_query(text)
        except (EmbeddingError, KeyError) as error:
            return error

    with ThreadPoolExecutor(len(texts)) as pool:
        first = pool.submit(ask, texts[0])
        while not held.batches:
            pass
        rest = [pool.submit(ask, text) for text in texts[1:]]
        while len(batching._queue) < len(rest):
            pass
        held.gate.set()
        return [one.result(60) for one in (first, *rest)]


@pytest.mark.parametrize(("count", "sizes"), [(9, [1, 8]), (MAX_BATCH + 10, [1, MAX_BATCH, 9])])
def test_waiting_queries_form_batches(held: Held, embedder: Embedder, count: int, sizes: list[int]) -> None:
    reported: list[int] = []
    texts = [f"question number {number}" for number in range(count)]
    vectors = all_at_once(BatchingEmbedder(held, reported.append), held, texts)  # type: ignore[arg-type]
    assert [len(batch) for batch in held.batches] == reported == sizes
    for text, vector in zip(texts, vectors, strict=True):
        assert vector == pytest.approx(embedder.embed_query(text), abs=1e-5)


def test_short_queries_are_not_padded_to_long_ones(held: Held, embedder: Embedder) -> None:
    short, long = (
        "robot",
        "How do I find out why the joints of my robot do not move in the simulation although its node is running?",
    )
    texts = ["first", short, long, f"{short}s", long.upper(), f"{short}!"]
    found = all_at_once(BatchingEmbedder(held), held, texts)  # type: ignore[arg-type]
    assert [sorted(batch) for batch in held.batches] == [
        ["first"],
        sorted([short, f"{short}s", f"{short}!"]),
        sorted([long, long.upper()]),
    ]
    for text, vector in zip(texts, found, strict=True):
        assert vector == pytest.approx(embedder.embed_query(text), abs=1e-5)


@pytest.mark.parametrize(
    "fault", [KeyError("a fault of ours"), EmbeddingError("the model is gone"), MemoryError(), None]
)
def test_an_error_does_not_block_the_next_query(fault: Exception | None) -> None:
    class Failing:
        is_healthy = False

        def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
            if fault and not self.is_healthy:
                raise fault
            return [[float(len(text))] for text in texts] if self.is_healthy else []

    failing = Failing()
    batching = BatchingEmbedder(failing)  # type: ignore[arg-type]
    with pytest.raises(type(fault) if fault else ValueError):
        batching.embed_queries(["short", "a question that is so much longer " * 12])
    failing.is_healthy = True
    assert batching.embed_query("next") == [4.0]


@pytest.mark.parametrize("text", ["broken", "fault"])
def test_only_an_unexpected_error_fails_the_whole_batch(held: Held, embedder: Embedder, text: str) -> None:
    texts = ["first", "good", text, "better"]
    results = all_at_once(BatchingEmbedder(held), held, texts)  # type: ignore[arg-type]
    errors = [type(result) for result in results if isinstance(result, Exception)]
    assert errors == ([EmbeddingError] if text == "broken" else [KeyError] * 3)
    for one, result in zip(texts, results, strict=True):
        if not isinstance(result, Exception):
            assert result == pytest.approx(embedder.embed_query(one), abs=1e-5)


@pytest.mark.parametrize(
    ("texts", "turns"), [(["short"] * (MAX_BATCH + 4), [MAX_BATCH, 4]), (["long " * 100] * 9, [4, 4, 1])]
)
def test_many_queries_of_one_caller_are_split(texts: list[str], turns: list[int]) -> None:
    inner = Recording()
    inner.first.set()
    assert BatchingEmbedder(inner).embed_queries(texts) == [[float(len(text))] for text in texts]  # type: ignore[arg-type]
    assert sorted(map(len, inner.calls), reverse=True) == turns


class Recording:
    """An embedder that records its calls; the first one waits until it may go on."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.first = threading.Event()

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        self.calls.append(list(texts))
        if len(self.calls) == 1:
            assert self.first.wait(60)
        return [[float(len(text))] for text in texts]


def as_caller(request: CurrentRequest, batching: BatchingEmbedder, texts: list[str]) -> list[Vector]:
    """Embed in a context of its own, as the threads of the service do."""

    def run() -> list[Vector]:
        _current.set(request)
        return batching.embed_queries(texts)

    return contextvars.copy_context().run(run)


def test_a_caller_with_much_text_does_not_delay_others() -> None:
    inner = Recording()
    batching = BatchingEmbedder(inner)  # type: ignore[arg-type]
    long = [f"{number} " + "x" * 1_900 for number in range(4)]
    with ThreadPoolExecutor(20) as pool:
        greedy = [pool.submit(as_caller, CurrentRequest("greedy"), batching, long) for _ in range(4)]
        wait_until(lambda: len(batching._queue) >= 15, 60)
        others = [
            pool.submit(as_caller, CurrentRequest(f"reader {number}"), batching, [f"question {number}"])
            for number in range(12)
        ]
        wait_until(lambda: len(batching._queue) >= 27, 60)
        inner.first.set()
        assert all(len(one.result(60)) == 1 for one in others)
        assert all(len(one.result(60)) == 4 for one in greedy)
    order = [text for call in inner.calls for text in call]
    last_question = max(order.index(f"question {number}") for number in range(12))
    assert last_question <= 14, "no more than two long texts come before the questions of others"


def test_cancelled_requests_are_not_embedded() -> None:
    inner = Recording()
    batching = BatchingEmbedder(inner)  # type: ignore[arg-type]
    texts = [f"{number} " + "x" * 1_900 for number in range(30)]
    with ThreadPoolExecutor(20) as pool:
        left = [CurrentRequest(f"left {number}") for number in range(8)]
        cancelled = [pool.submit(as_caller, one, batching, texts) for one in left]
        wait_until(lambda: len(batching._queue) + sum(map(len, inner.calls)) >= 240 and inner.calls != [], 60)
        for one in left:
            one.cancelled.set()
        inner.first.set()
        for result in cancelled:
            with pytest.raises(CallCancelled):
                result.result(60)
    assert len(inner.calls) == 1, "the model is called no more when nobody waits"
    assert batching.embed_query("next") == [4.0]

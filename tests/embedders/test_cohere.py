"""Cohere's SDK over real sockets, against a double that injects faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recto.embedders.cohere import PACES, CohereEmbedder, RateLimit, Throttle
from recto.errors import ConfigurationError, EmbeddingError, RectoError
from tests.conftest import COHERE_KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.server import Fault, drop, reset, rubbish, status


@pytest.fixture
def embedder(cohere: CohereDouble, waits: list[float], told: list[str]) -> Iterator[CohereEmbedder]:
    pace, key = PACES["off"], COHERE_KEY
    created = CohereEmbedder(key, "embed-english-v3.0", cohere.url, pace, told.append, waits.append)
    yield created
    created.close()


def test_input_types_of_queries_and_documents(cohere: CohereDouble, embedder: CohereEmbedder) -> None:
    vector = embedder.embed_query("What is ROS 2?")
    (other,) = embedder.embed_documents(["ROS 2 is a middleware"])
    assert len(vector) == len(other) == embedder.dim == 1024
    sent = [(request.body["input_type"], request.body["truncate"]) for request in cohere.requests]
    assert sent == [("search_query", "END"), ("search_document", "NONE")], "chunks are never truncated"
    assert embedder.fingerprint.model == "cohere/embed-english-v3.0"


def test_batches_of_at_most_96_in_order(cohere: CohereDouble, embedder: CohereEmbedder) -> None:
    texts = [f"text number {number}" for number in range(200)]
    seen: list[tuple[int, int]] = []
    vectors = embedder.embed_documents(texts, lambda done, total: seen.append((done, total)))
    assert [len(request.body["texts"]) for request in cohere.requests] == [96, 96, 8]
    assert seen == [(96, 200), (192, 200), (200, 200)]
    assert vectors[137] == embedder.embed_documents([texts[137]])[0]
    assert embedder.embed_documents([]) == []


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        *((status(code), ConfigurationError, "refuses the key") for code in (401, 403, 498)),
        (
            status(400, {"message": f"bad {COHERE_KEY}"}),
            EmbeddingError,
            r"refuses the request \(400\): bad \*\*\*",
        ),
        (status(404, {"message": "no such model"}), EmbeddingError, "no such model"),
        (status(429), EmbeddingError, "rate limit"),
        (status(429, headers={"Retry-After": "50"}), EmbeddingError, "rate limit"),
        (status(500), EmbeddingError, r"not available \(500\)"),
        (status(503, b"<html>", content_type="text/html"), EmbeddingError, r"not available \(503\)"),
        (drop(), EmbeddingError, "Cannot connect to Cohere"),
        (reset(), EmbeddingError, "Cannot connect to Cohere"),
        (rubbish(), EmbeddingError, "cannot be parsed"),
        (rubbish({}), EmbeddingError, "no vectors"),
        (rubbish({"embeddings": {"float": "abc"}}), EmbeddingError, "no vectors"),
        (rubbish({"embeddings": {"float": [[0.5, 0.5]]}}), EmbeddingError, "1024"),
        (rubbish({"embeddings": {"float": [["x"] * 1024]}}), EmbeddingError, "usable"),
        (rubbish({"embeddings": {"float": [[0.0] * 1024]}}), EmbeddingError, "zero or not finite"),
    ],
)
def test_a_query_fails_at_once_with_a_hint(
    cohere: CohereDouble,
    embedder: CohereEmbedder,
    waits: list[float],
    fault: Fault,
    kind: type[RectoError],
    words: str,
) -> None:
    cohere.always(fault)
    with pytest.raises(kind, match=words) as caught:
        embedder.embed_query("What is ROS 2?")
    assert caught.value.hint
    assert COHERE_KEY not in str(caught.value) + caught.value.hint
    assert len(cohere.requests) == 1, "no hidden retries"
    assert waits == []


def test_a_short_retry_after(cohere: CohereDouble, embedder: CohereEmbedder, waits: list[float]) -> None:
    cohere.script(status(429, headers={"Retry-After": "2"}))
    assert len(embedder.embed_query("x")) == 1024
    assert waits == [2.0]
    assert len(cohere.requests) == 2


def test_documents_are_retried_with_backoff(
    cohere: CohereDouble, embedder: CohereEmbedder, waits: list[float], told: list[str]
) -> None:
    cohere.script(status(500), status(429, headers={"Retry-After": "7"}), drop(), rubbish({}))
    assert len(embedder.embed_documents(["a text"])) == 1
    assert waits == [1.0, 7.0, 4.0, 8.0]
    assert all("waiting" in line for line in told)
    assert len(told) == 4


def test_an_unknown_model_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="not a Cohere model"):
        CohereEmbedder(COHERE_KEY, "embed-english-v2.0", "", PACES["off"], print)


def test_token_counts_are_upper_bounds() -> None:
    embedder = CohereEmbedder(COHERE_KEY, "embed-english-v3.0", "", PACES["off"], print)
    assert embedder.count_tokens("") == 2
    assert embedder.count_tokens("a robot's arm") >= 6
    assert embedder.count_tokens("机器人") >= 3
    assert embedder.max_tokens == 512


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("limit", "inputs", "tokens", "most"),
    [
        (RateLimit(calls=3), 1, 1, 3),
        (RateLimit(inputs=100), 50, 1, 2),
        (RateLimit(tokens=1000), 1, 300, 3),
        (RateLimit(tokens=100), 1, 500, 1),  # a call larger than the limit is sent alone
        (PACES["off"], 96, 10**6, 50),
    ],
)
def test_the_rate_limit(limit: RateLimit, inputs: int, tokens: int, most: int, told: list[str]) -> None:
    """No minute exceeds it."""
    clock = Clock()
    throttle = Throttle(limit, told.append, clock, clock.sleep)
    sent: list[float] = []
    for _ in range(50):
        throttle.wait(inputs, tokens)
        sent.append(clock.now)
    for moment in sent:
        assert sum(moment <= other < moment + 60 for other in sent) <= most
    assert bool(told) == (most < 50)


def test_the_limits_of_a_trial_key_are_kept(cohere: CohereDouble, told: list[str]) -> None:
    """Two calls of 77 000 tokens are more than a minute allows."""
    clock = Clock()
    pace = PACES["trial"]
    embedder = CohereEmbedder(COHERE_KEY, "embed-english-v3.0", cohere.url, pace, told.append, clock.sleep)
    embedder._throttle._clock = clock
    embedder.embed_documents(["robot " * 400] * 2 * 96)
    assert len(cohere.requests) == 2
    embedder.close()
    assert told
    assert clock.now > 100

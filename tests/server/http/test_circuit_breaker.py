"""Test the circuit breaker."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from recto.errors import CollectionMissing, EmbeddingError, InvalidQuery, Unreachable
from recto.server.http.batching import CircuitBreaker
from recto.server.limits import CurrentRequest, _current
from recto.stores.qdrant.connection import TransientError


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def call(breaker: CircuitBreaker, error: BaseException | None = None) -> bool:
    """Return whether the call was made."""
    let_through = False
    try:
        with breaker.watch():
            let_through = True
            if error is not None:
                raise error
    except (Unreachable, CollectionMissing, InvalidQuery, asyncio.CancelledError, KeyError):
        pass
    return let_through


def test_calls_are_retried_after_a_pause() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    assert call(breaker, TransientError("down"))
    assert not call(breaker)
    with pytest.raises(TransientError, match="down"), breaker.watch():
        pass
    clock.now += 1.1
    assert call(breaker, TransientError("still down"))
    assert not call(breaker)
    clock.now += 1.1
    assert call(breaker)
    assert call(breaker), "it is back"


def test_only_one_call_probes() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    call(breaker, TransientError("down"))
    clock.now += 1.1
    with breaker.watch():
        assert not call(breaker)
    assert call(breaker)


def test_errors_that_are_not_about_the_engine() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    assert call(breaker, EmbeddingError("one question that cannot be embedded"))
    assert call(breaker, CollectionMissing("gone"))
    assert call(breaker)
    call(breaker, TransientError("down"))
    clock.now += 1.1
    for error in (InvalidQuery("empty"), KeyError("a fault of ours")):
        assert call(breaker, error)
        clock.now += 0.1
    assert call(breaker, CollectionMissing("it is back, without the collection"))
    assert call(breaker)


def test_retry_after() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    call(breaker, TransientError("rate limit", retry_after=3))
    clock.now += 2.9
    assert not call(breaker)
    clock.now += 0.2
    assert call(breaker)


def test_a_timeout_opens_the_breaker() -> None:
    breaker = CircuitBreaker(Clock())
    assert call(breaker, asyncio.CancelledError())
    assert not call(breaker)


@pytest.mark.parametrize("disconnected", [True, False])
def test_a_client_that_leaves_says_nothing_about_the_engine(disconnected: bool) -> None:
    """Otherwise anyone could open the circuit for all by closing connections."""
    breaker, request = CircuitBreaker(), CurrentRequest("a")
    if disconnected:
        request.disconnected.set()

    def cancelled() -> None:
        _current.set(request)
        with pytest.raises(asyncio.CancelledError), breaker.watch():
            raise asyncio.CancelledError

    contextvars.copy_context().run(cancelled)
    if disconnected:
        assert call(breaker)
    else:
        with pytest.raises(Unreachable, match="did not answer in time"), breaker.watch():
            pass

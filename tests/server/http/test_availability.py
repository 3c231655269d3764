"""Test the circuit breaker, the readiness check, and their metrics."""

from __future__ import annotations

import asyncio
import contextvars
import logging

import pytest

from recto.errors import CollectionMissing, EmbeddingError, InvalidQuery, Unreachable
from recto.server.http import monitoring
from recto.server.http.batching import CircuitBreaker
from recto.server.http.monitoring import Readiness
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


def test_one_call_probes_after_a_pause() -> None:
    clock, opened = Clock(), [0]
    breaker = CircuitBreaker(clock, lambda change: opened.append(opened[-1] + change))
    for error in (TransientError("down"), TransientError("still down")):
        assert call(breaker, error)
        assert not call(breaker)
        clock.now += 1.1
    with breaker.watch():
        assert not call(breaker)
    assert call(breaker), "it is back"
    call(breaker, TransientError("rate limit", retry_after=3))
    clock.now += 2.9
    with pytest.raises(TransientError, match="rate limit"), breaker.watch():
        pass
    clock.now += 0.2
    assert call(breaker)
    assert opened == [0, 1, 0, 1, 0], "what the metric counts"


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


@pytest.mark.parametrize("disconnected", [True, False])
def test_a_client_that_leaves_says_nothing_about_the_engine(disconnected: bool) -> None:
    """Otherwise anyone could open the circuit for all by closing connections; a timeout opens it."""
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


class Engine:
    """Counts the checks; `error` makes them fail, `blocked` makes them wait."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.blocked = asyncio.Event()
        self.blocked.set()
        self.clock = Clock()
        self.readiness = Readiness(self.check, self.clock)

    async def check(self) -> None:
        self.calls += 1
        await self.blocked.wait()
        if self.error is not None:
            raise self.error


def test_callers_share_one_check() -> None:
    async def run() -> None:
        engine = Engine()
        ready = engine.readiness.is_ready
        assert [await ready() for _ in range(100)] == [True] * 100
        engine.error = Unreachable("down")
        assert await ready(), "a result counts for a second"
        engine.clock.now += 1
        assert [await ready() for _ in range(100)] == [False] * 100
        assert engine.calls == 2
        engine.error = None
        engine.blocked.clear()
        engine.clock.now += 1
        callers = [asyncio.create_task(ready()) for _ in range(100)]
        await asyncio.sleep(0)
        callers[0].cancel()  # a caller that leaves does not end the check of the others
        await asyncio.sleep(0)
        engine.blocked.set()
        assert await asyncio.gather(*callers[1:]) == [True] * 99
        assert engine.calls == 3

    asyncio.run(run())


def test_nobody_waits_for_an_engine_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "_READY_WAIT", 0.01)

    async def run() -> None:
        engine = Engine()
        engine.blocked.clear()
        assert [await engine.readiness.is_ready() for _ in range(3)] == [False] * 3
        engine.blocked.set()
        await asyncio.sleep(0)
        assert await engine.readiness.is_ready()

    asyncio.run(run())


def test_the_log_tells_why_and_only_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        engine = Engine()
        for error in (None, Unreachable("It is down", hint="Start it."), Unreachable("It is down"), None):
            engine.error = error
            await engine.readiness.is_ready()
            engine.clock.now += 1

    with caplog.at_level(logging.INFO, "recto"):
        asyncio.run(run())
    assert caplog.messages == ["not ready: Connection error: It is down Start it.", "ready"]

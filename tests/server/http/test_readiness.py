"""Test the readiness check, and the metrics about indexes and circuit breakers."""

from __future__ import annotations

import asyncio
import logging

import pytest

from recto.errors import Unreachable
from recto.server.http import monitoring
from recto.server.http.batching import CircuitBreaker
from recto.server.http.monitoring import Metrics, Readiness
from recto.server.http.options import ServeOptions
from recto.settings import Settings
from recto.stores.qdrant.connection import TransientError
from tests.server.http.service import Service
from tests.server.http.test_circuit_breaker import Clock, call


class Engine:
    """Counts the calls; `error` makes them fail, `blocked` makes them wait."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.blocked: asyncio.Event | None = None

    async def check(self) -> None:
        self.calls += 1
        if self.blocked is not None:
            await self.blocked.wait()
        if self.error is not None:
            raise self.error


def test_a_result_counts_for_a_second() -> None:
    async def run() -> None:
        engine, clock = Engine(), Clock()
        readiness = Readiness(engine.check, clock)
        assert [await readiness.is_ready() for _ in range(100)] == [True] * 100
        assert engine.calls == 1
        engine.error = Unreachable("down")
        assert await readiness.is_ready()
        clock.now += 1
        assert [await readiness.is_ready() for _ in range(100)] == [False] * 100
        assert engine.calls == 2
        engine.error = None
        clock.now += 1
        assert await readiness.is_ready()

    asyncio.run(run())


def test_callers_share_one_check() -> None:
    async def run() -> None:
        engine = Engine()
        engine.blocked = asyncio.Event()
        readiness = Readiness(engine.check)
        callers = [asyncio.create_task(readiness.is_ready()) for _ in range(100)]
        await asyncio.sleep(0)
        callers[0].cancel()  # a caller that leaves does not end the check of the others
        await asyncio.sleep(0)
        engine.blocked.set()
        assert await asyncio.gather(*callers[1:]) == [True] * 99
        assert engine.calls == 1

    asyncio.run(run())


def test_nobody_waits_for_an_engine_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "_READY_WAIT", 0.01)

    async def run() -> None:
        engine = Engine()
        engine.blocked = asyncio.Event()
        readiness = Readiness(engine.check)
        assert [await readiness.is_ready() for _ in range(3)] == [False] * 3
        assert engine.calls == 1
        engine.blocked.set()
        await asyncio.sleep(0)
        assert await readiness.is_ready()

    asyncio.run(run())


def test_the_log_tells_why_and_only_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        engine, clock = Engine(), Clock()
        readiness = Readiness(engine.check, clock)
        for error in (None, Unreachable("It is down", hint="Start it."), Unreachable("It is down"), None):
            engine.error = error
            await readiness.is_ready()
            clock.now += 1

    with caplog.at_level(logging.INFO, "recto"):
        asyncio.run(run())
    assert caplog.messages == ["not ready: Connection error: It is down Start it.", "ready"]


def test_open_circuits_are_counted() -> None:
    metrics, clock = Metrics(), Clock()
    breaker = CircuitBreaker(clock, metrics.circuits.inc)
    for error, count in ((TransientError("down"), 1), (TransientError("down"), 1), (None, 0), (None, 0)):
        call(breaker, error)
        assert f"recto_circuits_open {count}.0" in metrics.render({}).decode()
        clock.now += 10


def test_metrics_of_collections(house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(collections=("absent",))) as service:
        shown = service.get("/metrics").body.decode()
    assert 'recto_index_ready{collection="house"} 1.0' in shown
    assert 'recto_index_ready{collection="absent"} 0.0' in shown
    assert 'recto_index_created_timestamp_seconds{collection="house"} 1.' in shown
    assert 'recto_index_chunks{collection="absent"}' not in shown

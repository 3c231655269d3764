"""Prometheus metrics: requests, latencies, batches, engine errors and the index in use."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

if TYPE_CHECKING:
    from recto.types import IndexInfo, Timings

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""Where several workers share their metrics; set it before prometheus_client is imported."""

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BATCHES = (1, 2, 4, 8, 16)
_RECENT = 1000
_SHOWN = 60


class Metrics:
    """The metrics of one worker; with several workers, `render` returns the sum of all."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self.requests = Counter(
            "recto_requests", "Responses sent.", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "recto_request_seconds", "Latency of a request.", ["route"], buckets=_SECONDS, registry=registry
        )
        self.steps = Histogram(
            "recto_step_seconds",
            "Latency of each step of a search.",
            ["step"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.batches = Histogram(
            "recto_batch_questions", "Queries embedded together.", buckets=_BATCHES, registry=registry
        )
        self.errors = Counter(
            "recto_engine_errors",
            "Searches that failed because of an engine or index.",
            ["kind"],
            registry=registry,
        )
        self.refused = Counter(
            "recto_refused", "Requests refused before any work.", ["reason"], registry=registry
        )
        self.running = Gauge(
            "recto_requests_running",
            "Requests in progress.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.recent = Recent()

    def searched(self, timings: Timings) -> None:
        """Record the steps of a search."""
        self.steps.labels("embed").observe(timings.embed_ms / 1e3)
        self.steps.labels("search").observe(timings.search_ms / 1e3)
        self.recent.add(timings)

    def render(self, indexes: Callable[[], Iterable[IndexInfo]]) -> bytes:
        """Return all metrics as text."""
        shown = CollectorRegistry()
        shown.register(_Indexes(indexes))
        return (
            _all_workers() + generate_latest(shown)
            if os.environ.get(DIRECTORY)
            else generate_latest(self._registry) + generate_latest(shown)
        )


class Recent:
    """Latencies of the last searches of this worker."""

    def __init__(self) -> None:
        self._times: deque[tuple[float, float, float]] = deque(maxlen=_RECENT)
        self._count = 0

    def add(self, timings: Timings) -> None:
        """Record a search."""
        self._count += 1
        self._times.append((timings.total_ms, timings.embed_ms, timings.search_ms))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        times = list(self._times)
        total, embed, search = (_percentiles([row[column] for row in times]) for column in range(3))
        return {
            "requests": self._count,
            "p50_ms": total["p50"],
            "p95_ms": total["p95"],
            "steps": {"embed": embed, "search": search},
            "recent": [round(row[0], 2) for row in times[-_SHOWN:]],
        }


def _percentiles(values: list[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p95": None}
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2)}


class _Indexes:
    """Metrics of the indexes; read on each scrape, so that old generations disappear."""

    def __init__(self, indexes: Callable[[], Iterable[IndexInfo]]) -> None:
        self._indexes = indexes

    def collect(self) -> Iterator[Metric]:
        generation = GaugeMetricFamily(
            "recto_index_info", "The index in use.", labels=["collection", "generation"]
        )
        chunks = GaugeMetricFamily("recto_index_chunks", "Chunks in the index.", labels=["collection"])
        for info in self._indexes():
            generation.add_metric([info.collection, info.generation], 1)
            chunks.add_metric([info.collection], info.chunks)
        yield generation
        yield chunks


def _all_workers() -> bytes:
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

    directory = os.environ[DIRECTORY]
    for path in Path(directory).glob("gauge_live*_*.db"):
        worker = path.stem.rpartition("_")[2]
        if worker.isdecimal() and not _is_running(int(worker)):
            mark_process_dead(int(worker), directory)  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    MultiProcessCollector(registry, directory)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def _is_running(process: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True

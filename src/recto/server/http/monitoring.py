"""Prometheus metrics, the latency of recent searches, the readiness check, and the health of an index."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from recto._util import percentile
from recto.errors import RectoError
from recto.server.http import METRICS_DIRECTORY
from recto.server.http.errors import ENGINE_MESSAGES
from recto.settings import SAMPLE_COLLECTION
from recto.types.index import IndexInfo
from recto.types.search import Timings

LOG = logging.getLogger("recto.server.http")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BATCH_SIZES = (1, 2, 4, 8, 16)
_RECENT = 1000  # searches whose latencies are kept: percentiles of fewer would jump
_SHOWN = 60  # bars of the chart in the web UI
_READY_SECONDS = 1.0  # how long the result of a check is used
_READY_WAIT = 2.0  # seconds: probes of Kubernetes and load balancers wait about as long
_LABELS = ("collection", "generation")


class Metrics:
    """The metrics of one worker; with several workers, `render` returns the sum of all."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry, multiprocess_mode="livesum")
        self.requests = counter("recto_requests", "Responses sent.", ["method", "route", "status"])
        self.seconds = histogram(
            "recto_request_seconds", "Latency of a request.", ["route"], buckets=_SECONDS
        )
        self.steps = histogram(
            "recto_step_seconds", "Latency of each step of a search.", ["step"], buckets=_SECONDS
        )
        self.batches = histogram("recto_batch_queries", "Queries embedded together.", buckets=_BATCH_SIZES)
        self.errors = counter(
            "recto_engine_errors", "Searches that failed because of an engine or index.", ["kind"]
        )
        for kind in ENGINE_MESSAGES:  # at 0, so that Prometheus sees the first error as an increase
            self.errors.labels(kind.value)
        self.refused = counter("recto_refused", "Requests refused before any work.", ["reason"])
        self.running = gauge("recto_requests_running", "Requests in progress.")
        self.circuits = gauge(
            "recto_circuits_open", "Circuit breakers that are open, because an engine is down."
        )
        self.dropped = counter(
            "recto_query_log_dropped",
            "Entries that the query log lost, because it could not be written fast enough.",
        )
        self._searches = 0
        self._recent: deque[Timings] = deque(maxlen=_RECENT)

    def record_search(self, timings: Timings) -> None:
        """Record the steps of a search."""
        self.steps.labels("embed").observe(timings.embed_ms / 1e3)
        self.steps.labels("search").observe(timings.search_ms / 1e3)
        self._searches += 1
        self._recent.append(timings)

    def latency(self) -> dict[str, Any]:
        """Return the latencies of the last searches of this worker, as plain JSON values."""
        recent = list(self._recent)
        total = _percentiles([timings.total_ms for timings in recent])
        return {
            "requests": self._searches,
            "p50_ms": total["p50"],
            "p95_ms": total["p95"],
            "steps": {
                "embed": _percentiles([timings.embed_ms for timings in recent]),
                "search": _percentiles([timings.search_ms for timings in recent]),
            },
            "recent": [round(timings.total_ms, 2) for timings in recent[-_SHOWN:]],
        }

    def render(self, indexes: Mapping[str, IndexInfo | None]) -> bytes:
        """Return all metrics as text; a collection that cannot be searched has no index."""
        scrape = CollectorRegistry()
        scrape.register(_IndexCollector(indexes))
        workers = _all_workers() if os.environ.get(METRICS_DIRECTORY) else generate_latest(self._registry)
        return workers + generate_latest(scrape)


def _percentiles(times: list[float]) -> dict[str, float | None]:
    ordered = sorted(times)
    return {
        name: round(percentile(ordered, share), 2) if ordered else None
        for name, share in (("p50", 0.5), ("p95", 0.95))
    }


class Readiness:
    """Checks whether searches work, at most once a second: callers without a key must not cause more work.

    All callers share one check. While it takes long, they need not wait for it.
    """

    def __init__(
        self, check: Callable[[], Coroutine[Any, Any, object]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._check = check
        self._clock = clock
        self._running: asyncio.Task[object] | None = None
        self._began = self._ended = 0.0
        self._was_ready = True

    async def is_ready(self) -> bool:
        """Return whether searches work; if the check takes longer than two seconds, they do not."""
        now, running = self._clock(), self._running
        if running is None or (running.done() and now >= self._ended + _READY_SECONDS):
            self._running = running = asyncio.create_task(self._check())
            self._began = now
            running.add_done_callback(self._end)
        await asyncio.wait([running], timeout=max(0.0, self._began + _READY_WAIT - now))
        return running.done() and not running.cancelled() and running.exception() is None

    def _end(self, check: asyncio.Task[object]) -> None:
        self._ended = self._clock()
        is_ready = not check.cancelled() and check.exception() is None
        if is_ready and not self._was_ready:
            LOG.info("ready")
        elif self._was_ready:
            log_not_ready(check)
        self._was_ready = is_ready


def log_not_ready(check: asyncio.Task[Any]) -> None:
    """Log why searches do not work, if a check has failed."""
    error = None if check.cancelled() else check.exception()
    if isinstance(error, RectoError):
        LOG.warning("not ready: %s %s", error, error.hint)
    elif error is not None:
        LOG.error("not ready", exc_info=error)


@dataclass(eq=False)  # the registry hashes it
class _IndexCollector:
    """Metrics of the indexes; made for each scrape, so that old generations disappear."""

    indexes: Mapping[str, IndexInfo | None]

    def collect(self) -> Iterator[Metric]:
        generation = GaugeMetricFamily("recto_index_info", "The index in use.", labels=_LABELS)
        chunks = GaugeMetricFamily("recto_index_chunks", "Chunks in the index.", labels=_LABELS[:1])
        ready = GaugeMetricFamily(
            "recto_index_ready", "Whether the collection can be searched.", labels=_LABELS[:1]
        )
        created = GaugeMetricFamily(
            "recto_index_created_timestamp_seconds", "When the index was made.", labels=_LABELS[:1]
        )
        for name, info in self.indexes.items():
            ready.add_metric([name], info is not None)
            if info is None:
                continue
            generation.add_metric([name, info.generation], 1)
            chunks.add_metric([name], info.chunks)
            if info.created_at is not None:
                created.add_metric([name], datetime.fromisoformat(info.created_at).timestamp())
        yield from (generation, chunks, ready, created)


def _all_workers() -> bytes:
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

    directory = os.environ[METRICS_DIRECTORY]
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


def index_view(info: IndexInfo, name: str, warnings: tuple[str, ...]) -> dict[str, Any]:
    """Return what `/v1/health` says about an index."""
    book, calibration = info.fingerprint, info.calibration
    fields = ("generation", "chunks", "created_at", "noise_floor")
    return {field: getattr(info, field) for field in fields} | {
        "collection": name,
        "model": book.embedder.model if book else None,
        "auroc": calibration.auroc if calibration else None,
        "recto_version": book.recto_version if book else None,
        "warnings": list(warnings),
    }


def advice(
    name: str, info: IndexInfo | None, coverage: dict[str, Any] | None, suite: dict[str, Any] | None
) -> Iterator[str]:
    """Yield the commands that fix what is missing or outdated."""
    here = f"--collection {name}"
    if info is None:
        yield f"There is no index: run `recto index PATH {here}`."
        return
    if info.noise_floor is None:
        yield f"The noise floor was never measured: run `recto calibrate {here}`."
    if coverage is None or not coverage["current"]:
        state = "was never measured" if coverage is None else "is from an older index"
        yield f"The coverage {state}: run `recto coverage {here}`."
    if suite is None and info.collection == SAMPLE_COLLECTION:
        yield f"No evaluation suite was run: run `recto validate {here}`."
    elif suite is None:
        new, run = f"new --out questions.json {here}", f"validate --suite questions.json {here}"
        yield f"No evaluation suite was run: draft one with `recto suite {new}`, then run `recto {run}`."
    elif not suite["current"]:
        yield f"The suite ran on an older index: run `{suite['command']}`."

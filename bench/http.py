"""Measure the overhead of the HTTP server: `uv run python -m bench.http`.

Both sides of every ratio are measured in turn, in one run. The clients run on the same machine and use a part
of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

from bench.load import RawConnection, throughput
from bench.spine import QUESTIONS, ROOT, table
from recto import __version__
from recto.api import open_embedder, open_retriever, open_store, sample_source
from recto.book.sources.tree import MarkdownTree
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Source
from recto.settings import Settings

CLIENTS = (1, 8, 64)
WORKERS = 2
_SECONDS = 4.0
_LIBRARY = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from recto.settings import Settings
from recto.api import open_retriever
questions = sys.argv[3:]
settings = Settings("local", "edge", Path(sys.argv[2]), threads=1, collection="bench")
retriever = open_retriever(settings, "bench", print)
for question in questions:
    retriever.search(question)
print("ready", flush=True)
for line in sys.stdin:
    end, count = time.perf_counter() + float(line), 0
    while time.perf_counter() < end:
        retriever.search(questions[count % len(questions)])
        count += 1
    print(count, flush=True)
"""


_ENGINES = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import numpy, qdrant_edge as edge
from recto.embedders.granite.embedder import VARIANTS
from recto.embedders.granite.runtime import OUTPUT, numpy_inputs
from recto.embedders.granite.weights import find_pack, read_tokenizer
from recto.embedders.onnx import Weights, new_session, new_tokenizer
home, questions = Path(sys.argv[2]), sys.argv[3:]
tokenizer = new_tokenizer(read_tokenizer(find_pack()))
fp32 = VARIANTS["fp32"]
session = new_session(fp32.graph.read_bytes(), 1, Weights(home / "cache" / fp32.weights.parent))
shard = edge.EdgeShard.load(str(next((home / "collections" / "bench").glob("gen-*/"))))
for question in questions * 20:
    vector = session.run([OUTPUT], numpy_inputs([tokenizer.encode(question).ids]))[0][0].tolist()
    shard.query(edge.QueryRequest(limit=5, offset=0, query=edge.Query.Nearest(vector), with_payload=True))
print("ready", flush=True)
sys.stdin.read()
"""


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement (default 5)")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="seconds of each throughput round")
    parser.add_argument("--book", type=Path, help="measure on this book instead of the sample book")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    figures: dict[str, Any] = {
        "machine": f"{platform.machine()}, {_cores()} cores, Python {platform.python_version()}",
        "recto": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        index_for_server(home, MarkdownTree(options.book) if options.book else sample_source())
        figures |= {
            "rounds": options.rounds,
            **latency(home, options.rounds),
            **load(home, options.rounds, options.seconds),
        }
    print(json.dumps(figures, indent=2) if options.json else table(figures))


def index_for_server(home: Path, source: Source | None = None) -> None:
    """Index a book, or the sample book, into the collection that `run_server` serves."""
    settings = Settings("local", "edge", home, threads=_cores())
    index_book(
        IndexJob(source or sample_source(), open_embedder(settings, print)),
        open_store(settings, print),
        "bench",
        journal=home / "journal",
    )


@dataclass
class ServerProcess:
    """The server as a process."""

    process: subprocess.Popen[bytes]
    port: int

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes."""
        found = []
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.Error):  # it has just ended
                if "spawn_main" in " ".join(child.cmdline()):
                    found.append(child)
        return found or [psutil.Process(self.process.pid)]


@contextmanager
def run_server(home: Path, *arguments: str, **variables: str) -> Iterator[ServerProcess]:
    """Run the server until the block ends; it is ready when the block begins."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RECTO_", "COHERE_", "QDRANT_"))
    }
    environment = clean | {
        "RECTO_HOME": str(home),
        "COLLECTION_NAME": "bench",
        "PYTHONPATH": str(ROOT / "src"),
        **variables,
    }
    log = home.parent / "serve.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "recto", "serve", "--port", "0", *arguments]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        workers = int(arguments[arguments.index("--workers") + 1]) if "--workers" in arguments else 1
        deadline = time.monotonic() + 120
        while log.read_text("utf-8").count("startup complete") < workers:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text("utf-8"))
            time.sleep(0.05)
        address = re.search(r"listens at http://127\.0\.0\.1:(\d+)", log.read_text("utf-8"))
        if address is None:
            raise RuntimeError(log.read_text("utf-8"))
        yield ServerProcess(process, int(address[1]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def latency(home: Path, rounds: int) -> dict[str, Any]:
    """Compare a request with the library's own call, query by query."""
    threads = _cores()
    retriever = open_retriever(
        Settings("local", "edge", home, threads=threads, collection="bench"), "bench", print
    )
    library, service, worked = [], [], (0.0, 0.0)
    with run_server(home, RECTO_THREADS=str(threads)) as running, RawConnection(running.port) as connection:
        for turn in range(rounds * 20 + 2):
            if turn == 2:
                worked = _cpu_ms(os.getpid()), _cpu_ms(running.process.pid)
            for question in QUESTIONS:
                began = perf_counter()
                retriever.search(question)
                between = perf_counter()
                connection.search(question)
                if turn >= 2:  # the first two rounds warm up
                    library.append((between - began) * 1e3)
                    service.append((perf_counter() - between) * 1e3)
        own, others = (
            _cpu_ms(pid) - before
            for pid, before in zip((os.getpid(), running.process.pid), worked, strict=True)
        )
    retriever.close()
    return {
        "library p50 / p95, ms": f"{_at(library, 50):.2f} / {_at(library, 95):.2f}",
        "HTTP p50 / p95, ms": f"{_at(service, 50):.2f} / {_at(service, 95):.2f}",
        "HTTP adds at p50, ms (goal <= 3)": round(_at(service, 50) - _at(library, 50), 2),
        "CPU time of a search with its client / of a request, ms": (
            f"{own / len(library):.2f} / {others / len(library):.2f}"
        ),
    }


def _cpu_ms(process: int) -> float:
    """Return the CPU time of a process in milliseconds: a busy machine changes it little."""
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system) * 1e3


def load(home: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Compare throughput and memory of two workers with two processes of the library."""
    bare = [_started(_LIBRARY, home) for _ in range(WORKERS)]
    engines = _started(_ENGINES, home)
    try:
        for process in (*bare, engines):
            _line(process)
        library: list[float] = []
        alone = _CpuTime()
        service: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
        work = {clients: _CpuTime() for clients in CLIENTS}
        with run_server(home, "--workers", str(WORKERS), RECTO_THREADS="1") as running:
            for clients in CLIENTS:
                throughput(running.port, clients, QUESTIONS, 0.5)
            answering = running.workers()
            for _ in range(rounds):
                before = sum(_cpu_ms(process.pid) for process in bare)
                library.append(_library(bare, seconds))
                alone.add(
                    sum(_cpu_ms(process.pid) for process in bare) - before, 0.0, round(library[-1] * seconds)
                )
                for clients in CLIENTS:
                    before = sum(_cpu_ms(worker.pid) for worker in answering)
                    given = throughput(running.port, clients, QUESTIONS, seconds)
                    service[clients].append(given.rate)
                    spent = sum(_cpu_ms(worker.pid) for worker in answering) - before
                    work[clients].add(spent, given.client_seconds * 1e3, given.answered)
            worker = statistics.mean(_resident(each.pid) for each in answering)
        own = statistics.mean(_resident(process.pid) for process in bare)
        least = _resident(engines.pid)
    finally:
        for process in (*bare, engines):
            process.kill()
            process.communicate()
    most = statistics.median(library)
    return {
        f"library, {WORKERS} processes, searches/s": round(most, 1),
        **{
            f"HTTP, {WORKERS} workers, {clients} clients, requests/s": round(
                statistics.median(service[clients]), 1
            )
            for clients in CLIENTS
        },
        "HTTP / library, 8 clients (goal >= 0.8)": round(statistics.median(service[8]) / most, 3),
        "HTTP / library, 64 clients (goal >= 0.8)": round(statistics.median(service[64]) / most, 3),
        "CPU time of a search, ms": round(alone.each, 2),
        **{
            f"CPU time of a request, {clients} clients, ms": work[clients].summary(alone)
            for clients in CLIENTS
        },
        "RSS of a worker / of tokenizers, onnxruntime and Edge alone (goal <= 1.2)": round(worker / least, 3),
        "RSS of a worker / of the library, MB": f"{worker:.0f} / {own:.0f} = {worker / own:.3f}",
    }


@dataclass
class _CpuTime:
    """CPU time in milliseconds of the server and the clients, and the number of answers."""

    served: float = 0.0
    clients: float = 0.0
    answers: int = 0

    def add(self, served: float, clients: float, answers: int) -> None:
        """Add a round."""
        self.served += served
        self.clients += clients
        self.answers += answers

    @property
    def each(self) -> float:
        """The server's CPU time per answer."""
        return self.served / self.answers

    def summary(self, alone: _CpuTime) -> str:
        """Return the CPU time per answer of server and client, and the throughput relative to the library."""
        client = self.clients / self.answers
        ratio = alone.each / (self.each + client)
        return f"{self.each:.2f} + {client:.2f} in the client: {ratio:.3f} of the library"


_PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


def _started(code: str, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, str(ROOT / "src"), str(home), *QUESTIONS], **_PIPES)


def _resident(process: int) -> float:
    """Return the resident memory of a process in megabytes, including mapped files."""
    return float(psutil.Process(process).memory_info().rss) / 1e6


def _library(processes: list[subprocess.Popen[str]], seconds: float) -> float:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
    return sum(int(_line(process)) for process in processes) / seconds


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _at(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()

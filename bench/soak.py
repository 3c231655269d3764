"""Soak test: a long load with new indexes, restarted workers and an unavailable engine.

Run `uv run python -m bench.soak SECONDS`.

A response is wrong if its chunks are not all from the edition that was published as the generation that it
names. A request is lost if it gets no response at all. A connection that is closed before the response is
opened again, as every HTTP client does, and a 503 is retried.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.http import ServerProcess, run_server
from bench.spine import table
from recto.api import open_embedder, open_store
from recto.book.sources.tree import MarkdownTree
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder, Store
from recto.settings import Settings

_CLIENTS = 4
_TRIES = 100
_SOME = 10
_TIMEOUT = 60.0
_COUNTED = ("answered", "retries after 503", "reconnections", "published", "restarted")
_SUBJECTS = (
    "soil and compost",
    "sowing beans",
    "kneading dough",
    "sharpening a plane",
    "grafting a rose",
    "mending a chair",
)


class SoakBackend(Protocol):
    """The store that the book is published to, and a way to make its engine unavailable."""

    variables: dict[str, str]
    store: Store
    can_fail: bool

    def interrupt(self, *, on: bool) -> None:
        """Make the engine unavailable or available."""


@dataclass
class Edge:
    """The embedded engine, which is always available."""

    home: Path
    can_fail: bool = False
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = open_store(Settings("local", "edge", self.home), print)

    def interrupt(self, *, on: bool) -> None:
        """Do nothing."""


@dataclass
class Server:
    """A double of a Qdrant server."""

    home: Path
    double: Any
    can_fail: bool = True

    def __post_init__(self) -> None:
        self.variables = {"RECTO_EMBEDDER": "local", "RECTO_STORE": "server", "QDRANT_URL": self.double.url}
        self.store = open_store(Settings("local", "server", self.home, qdrant_url=self.double.url), print)

    def interrupt(self, *, on: bool) -> None:
        """Start or stop resetting connections."""
        from tests.doubles.server import reset

        self.double.always(reset() if on else None)


@dataclass
class SoakOutcomes:
    """The counted outcomes of all requests."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    editions: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str) -> None:
        """Count one outcome."""
        with self.lock:
            self.counts[name] += 1

    def wait_for(self, name: str, more: int) -> None:
        """Wait until some more outcomes are counted, or until a timeout."""
        expected, deadline = self.counts[name] + more, time.monotonic() + _TIMEOUT
        while self.counts[name] < expected and time.monotonic() < deadline:
            time.sleep(0.02)


def soak(folder: Path, seconds: float) -> dict[str, Any]:
    """Run the embedded engine, then a server, each for half of the time."""
    from tests.doubles.qdrant import QdrantDouble

    embedded = run(Edge(folder / "edge"), folder / "edge", seconds / 2, publish_every=4.0)
    with QdrantDouble() as double:
        # Readers of a server look for a new generation every ten seconds, and one old generation is kept.
        server = run(Server(folder / "server", double), folder / "server", seconds / 2, publish_every=12.0)
    return {f"embedded: {name}": value for name, value in embedded.items()} | {
        f"server: {name}": value for name, value in server.items()
    }


def run(backend: SoakBackend, home: Path, seconds: float, publish_every: float) -> dict[str, Any]:
    """Load a server for some time while things happen to it, and return the outcomes."""
    outcomes = SoakOutcomes()
    embedder = open_embedder(Settings("local", "edge", home, threads=1), print)
    publish(backend, embedder, home, outcomes, 0)
    ended = threading.Event()
    with run_server(
        home, "--workers", "2", "--timeout", "60", RECTO_THREADS="1", **backend.variables
    ) as running:
        clients = [
            threading.Thread(target=send_queries, args=(running.port, outcomes, ended, number))
            for number in range(_CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            disturb(backend, embedder, home, outcomes, running, time.monotonic() + seconds, publish_every)
        finally:
            backend.interrupt(on=False)
            ended.set()
            for client in clients:
                client.join()
    backend.store.close()
    return {
        **{name: outcomes.counts[name] for name in _COUNTED},
        "other statuses": outcomes.counts["other"],
        "wrong answers": len(outcomes.wrong),
        "lost requests": outcomes.counts["lost"],
        **({"first wrong answer": outcomes.wrong[0]} if outcomes.wrong else {}),
    }


def disturb(
    backend: SoakBackend,
    embedder: Embedder,
    home: Path,
    outcomes: SoakOutcomes,
    running: ServerProcess,
    end: float,
    publish_every: float,
) -> None:
    """Publish, restart a worker, and make the engine unavailable, repeatedly and under load."""
    edition = 1
    while True:
        began = time.monotonic()
        outcomes.wait_for("answered", _SOME)
        publish(backend, embedder, home, outcomes, edition)
        outcomes.wait_for("answered", _SOME)
        workers = running.workers()
        if running.process.pid not in {worker.pid for worker in workers}:  # do not kill the supervisor
            os.kill(workers[edition % len(workers)].pid, signal.SIGTERM if edition % 2 else signal.SIGKILL)
        outcomes.add("restarted")
        outcomes.wait_for("answered", _SOME)
        if backend.can_fail:
            backend.interrupt(on=True)
            outcomes.wait_for("retries after 503", 1)
            backend.interrupt(on=False)
            outcomes.wait_for("answered", _SOME)
        edition += 1
        if time.monotonic() >= end:
            return
        time.sleep(max(0.0, min(end, began + publish_every) - time.monotonic()))


def publish(
    backend: SoakBackend, embedder: Embedder, home: Path, outcomes: SoakOutcomes, edition: int
) -> None:
    """Publish an edition of the book; every chunk contains the number of the edition."""
    book = home.parent / f"{home.name}-book"
    book.mkdir(parents=True, exist_ok=True)
    for number, subject in enumerate(_SUBJECTS):
        (book / f"page-{number}.md").write_text(
            f"# On {subject}\n\nAll about {subject}. This is edition {edition}.\n", "utf-8"
        )
    report = index_book(
        IndexJob(MarkdownTree(book), embedder, rebuild=True), backend.store, "bench", journal=home / "journal"
    )
    with outcomes.lock:
        outcomes.editions[report.info.generation] = edition
    outcomes.add("published")


def send_queries(port: int, outcomes: SoakOutcomes, ended: threading.Event, seed: int) -> None:
    """Send one query after the other on a keep-alive connection, and check every response."""
    numbers = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    while not ended.is_set():
        question = numbers.choice(_SUBJECTS)
        for _ in range(_TRIES):
            try:
                connection.request(
                    "POST",
                    "/v1/search",
                    json.dumps({"query": question, "top_k": 3}),
                    {"Content-Type": "application/json"},
                )
                reply = connection.getresponse()
                body = reply.read()
            except (http.client.HTTPException, OSError):
                connection.close()
                outcomes.add("reconnections")
                time.sleep(0.05)
                continue
            if reply.status == 503 and reply.getheader("Retry-After"):
                outcomes.add("retries after 503")
                time.sleep(0.2)
                continue
            judge(reply.status, body, question, outcomes)
            break
        else:
            outcomes.add("lost")
    connection.close()


def judge(status: int, body: bytes, question: str, outcomes: SoakOutcomes) -> None:
    """Compare a response with the edition that was published as its generation."""
    if status != 200:
        outcomes.add("other")
        outcomes.wrong.append(f"{status}: {body[:200]!r}")
        return
    answer = json.loads(body)
    for _ in range(100):  # a response may arrive before the publisher has recorded the generation
        if answer["generation"] in outcomes.editions:
            break
        time.sleep(0.05)
    edition = outcomes.editions.get(answer["generation"])
    texts = [passage["text"] for passage in answer["results"]]
    if (
        len(texts) != 3
        or question not in texts[0]
        or any(f"edition {edition}." not in text for text in texts)
    ):
        outcomes.wrong.append(f"{answer['generation']} is edition {edition}: {texts}")
    outcomes.add("answered")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        print(table(soak(Path(directory), float(sys.argv[1]))))

"""What all workloads share: systems in their environments, the book, scratch space, and indexes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.dataset import Book, Dataset, write_dataset
from bench.peers.environments import Environment
from bench.peers.figures import Figure, Results
from bench.peers.listing import System
from bench.peers.process import RunnerError, RunnerProcess
from bench.vectors import Vectors

TOP = 5
WARM = 2


@dataclass(slots=True)
class Bench:
    """A run of the comparison."""

    systems: tuple[System, ...]
    environments: dict[str, Environment]
    book: Book
    vectors: Vectors
    scratch: Path
    cache: Path
    results: Results
    rounds: int = 5
    sizes: tuple[int, ...] = (1000, 10_000)
    threads: int = 1
    limit: float = 300.0
    corpora: Path | None = None
    whole: bool = False
    _datasets: dict[int, Dataset] = field(default_factory=dict)
    _indexes: dict[tuple[str, int], tuple[Path | None, float, str]] = field(default_factory=dict)

    @property
    def whole_systems(self) -> tuple[System, ...]:
        """The systems that do more than search."""
        return tuple(system for system in self.systems if system.kind != "thin")

    @property
    def home(self) -> Path:
        """The directory in which the embedder caches its weights, as in a home with an index."""
        home = self.scratch / "home"
        home.mkdir(exist_ok=True)
        return home

    def notify(self, text: str) -> None:
        """Print what is being done."""
        print(text, file=sys.stderr, flush=True)

    def dataset(self, size: int) -> Dataset:
        """Return chunks of one size."""
        if size not in self._datasets:
            self._datasets[size] = write_dataset(self.book, size, self.vectors, self.scratch)
        return self._datasets[size]

    def start(self, system: System) -> RunnerProcess:
        """Start a system's runner."""
        return RunnerProcess(system, self.environments[system.name], self.scratch)

    def embed(
        self, runner: RunnerProcess, how: str, folder: Path | str = "", threads: int | None = None
    ) -> None:
        """Set the embedding of a system."""
        runner.ask("embed", how=how, folder=str(folder), home=str(self.home), threads=threads or self.threads)

    def index(self, system: System, size: int) -> tuple[Path | None, str]:
        """Return a system's index of one size, made from precomputed vectors, or why there is none."""
        if (system.name, size) not in self._indexes:
            self._indexes[system.name, size] = self._make(system, size)
        folder, _, why = self._indexes[system.name, size]
        return folder, why

    def _make(self, system: System, size: int) -> tuple[Path | None, float, str]:
        work = f"index, {size} chunks, vectors given"
        expected = max(
            (
                took * size / smaller
                for (name, smaller), (_, took, _) in self._indexes.items()
                if name == system.name
            ),
            default=0.0,
        )
        if expected > self.limit:
            why = f"would take about {expected:.0f} s to index"
            self.results.add(Figure(work, system.name, "s", why=why))
            return None, expected, why
        dataset = self.dataset(size)
        folder = self.scratch / "indexes" / f"{system.name}-{size}"
        folder.parent.mkdir(exist_ok=True)
        self.notify(f"{system.title}: {size} chunks, vectors given")
        try:
            with self.start(system) as runner:
                self.embed(runner, "precomputed", dataset.folder)
                done = runner.ask("index", pieces=str(dataset.pieces), folder=str(folder))
        except RunnerError as error:
            self.results.add(Figure(work, system.name, "s", why=str(error)))
            return None, 0.0, str(error)
        self.results.add(Figure(work, system.name, "s", (done["wall"],), (done["cpu"],)))
        return folder, float(done["wall"]), ""

    @contextmanager
    def opened(self, size: int, how: str, work: str, unit: str) -> Iterator[dict[str, RunnerProcess]]:
        """Open an index in every system, each in its own process; failures are recorded."""
        with ExitStack() as stack:
            runners: dict[str, RunnerProcess] = {}
            for system in self.systems:
                folder, why = self.index(system, size)
                if folder is None:
                    self.results.add(Figure(work, system.name, unit, why=why))
                    continue
                runner = stack.enter_context(self.start(system))
                try:
                    self.embed(runner, how, self.dataset(size).folder)
                    runner.ask("open", folder=str(folder))
                except RunnerError as error:
                    self.results.add(Figure(work, system.name, unit, why=str(error)))
                    continue
                runners[system.name] = runner
            yield runners


def interleave(
    rounds: int, jobs: dict[str, Callable[[], Any]]
) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Run all jobs in every round, starting with another one each time; return results and failures."""
    answers: dict[str, list[Any]] = {name: [] for name in jobs}
    failed: dict[str, str] = {}
    names = list(jobs)
    for number in range(rounds):
        start = number % len(names) if names else 0
        for name in (*names[start:], *names[:start]):
            if name in failed:
                continue
            try:
                answers[name].append(jobs[name]())
            except RunnerError as error:
                failed[name] = str(error)
    return answers, failed

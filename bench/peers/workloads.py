"""What is measured: installing, starting, searching and indexing, each in interleaved rounds."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench.common import ROOT, notify, recto_command
from bench.peers.book import Book, write_pieces
from bench.peers.environments import Environment
from bench.peers.figures import (
    COLD,
    FILTERED,
    FILTERED_REST,
    HELP,
    IMPORT,
    INSTALL,
    INTERPRETER,
    QUERY,
    REST,
    Figure,
    Results,
)
from bench.peers.listing import SELF, System
from bench.peers.process import RunnerError, RunnerProcess, cold

MEMORY = "memory with the model"
TOP = 5
_WARM = 2  # queries that run once more before a round, untimed

Job = Callable[[], Any]


@dataclass(slots=True)
class Bench:
    """A run of the comparison: systems in their environments, the book, scratch space, and indexes."""

    systems: Sequence[System]
    environments: dict[str, Environment]
    book: Book
    scratch: Path
    cache: Path
    results: Results
    rounds: int = 5
    size: int = 1000
    threads: int = 1
    _indexes: dict[str, tuple[Path | None, str]] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The directory in which the embedder caches its weights, as in a home with an index."""
        return self.scratch / "home"

    def start(self, system: System) -> RunnerProcess:
        """Start a system's runner."""
        return RunnerProcess(system, self.environments[system.name], self.scratch)

    def embed(self, runner: RunnerProcess, how: str) -> None:
        """Set the embedding of a system."""
        runner.ask("embed", how=how, folder=str(self.cache), home=str(self.home), threads=self.threads)

    def index(self, system: System) -> tuple[Path | None, str]:
        """Return a system's index, made with cached vectors, or why there is none."""
        if system.name not in self._indexes:
            notify(f"{system.title}: {self.size} chunks")
            folder = self.scratch / "indexes" / system.name
            folder.parent.mkdir(exist_ok=True)
            pieces = write_pieces(self.book, self.size, self.scratch)
            try:
                with self.start(system) as runner:
                    self.embed(runner, "cached")
                    runner.ask("index", pieces=str(pieces), folder=str(folder))
                self._indexes[system.name] = folder, ""
            except RunnerError as error:
                self._indexes[system.name] = None, str(error)
        return self._indexes[system.name]

    def add(
        self, work: str, unit: str, found: dict[str, list[tuple[float, float]]], failed: dict[str, str]
    ) -> None:
        """Add a figure of each system from its pairs of wall and CPU time."""
        for name, pairs in found.items():
            values, cpu = tuple(wall for wall, _ in pairs), tuple(cpu for _, cpu in pairs)
            self.results.figures.append(Figure(work, name, unit, values, cpu, why=failed.get(name, "")))


def interleave(rounds: int, jobs: dict[str, Job]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Run all jobs in every round, starting with another one each time; return results and failures."""
    answers: dict[str, list[Any]] = {name: [] for name in jobs}
    failed: dict[str, str] = {}
    names = list(jobs)
    for number in range(rounds):
        start = number % max(1, len(names))
        for name in (*names[start:], *names[:start]):
            if name in failed:
                continue
            try:
                answers[name].append(jobs[name]())
            except RunnerError as error:
                failed[name] = str(error)
    return answers, failed


def install(bench: Bench) -> None:
    """Measure what is installed, with the shared model."""
    for system in bench.systems:
        environment = bench.environments[system.name]
        why = "" if environment.size else "no separate environment"
        sizes = (environment.size / 1e6,) if environment.size else ()
        more = {"packages": len(environment.versions)}
        bench.results.figures.append(Figure(INSTALL, system.name, "MB", sizes, why=why, more=more))


def start(bench: Bench) -> None:
    """Measure import, the first answer of a fresh process, and `--help`."""
    notify("Import, cold query and --help")
    found, failed = interleave(bench.rounds, {one.name: _importing(bench, one) for one in bench.systems})
    bench.add(IMPORT, "ms", found, failed)
    jobs: dict[str, Job] = {}
    for system in bench.systems:
        folder, why = bench.index(system)
        if folder is None:
            bench.results.figures.append(Figure(COLD, system.name, "ms", why=why))
        else:
            jobs[system.name] = _cold_query(bench, system, folder)
    interleave(1, jobs)  # fill the page cache, for all systems
    bench.add(COLD, "ms", *interleave(bench.rounds, jobs))
    _, environment = recto_command(bench.home)
    command = [sys.executable, str(ROOT / "retrieve.py"), "--help"]
    helps = {
        SELF: _process(command, environment),
        INTERPRETER: _process([sys.executable, "-c", "pass"], environment),
    }
    interleave(1, helps)
    bench.add(HELP, "ms", *interleave(max(bench.rounds, 7), helps))  # short processes vary more


def _importing(bench: Bench, system: System) -> Job:
    def job() -> tuple[float, float]:
        with bench.start(system) as runner:
            done = runner.ask("load")
        return 1e3 * done["wall"], 1e3 * done["cpu"]

    return job


def _cold_query(bench: Bench, system: System, folder: Path) -> Job:
    arguments = [str(folder), str(bench.home), str(bench.threads), str(TOP), bench.book.queries[0]]

    def job() -> tuple[float, float]:
        done = cold(system, bench.environments[system.name], bench.scratch, arguments)
        return 1e3 * done.wall, 1e3 * done.cpu

    return job


def _process(command: Sequence[str], environment: dict[str, str]) -> Job:
    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    def job() -> tuple[float, float]:
        cpu, began = used(), perf_counter()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        return 1e3 * (perf_counter() - began), 1e3 * (used() - cpu)

    return job


def query(bench: Bench) -> None:
    """Run all queries on every system in every round, without and with a filter; then measure memory."""
    notify(f"Query {bench.size} chunks")
    with ExitStack() as stack:
        runners: dict[str, RunnerProcess] = {}
        for system in bench.systems:
            folder, why = bench.index(system)
            try:
                if folder is None:
                    raise RunnerError(why)
                runner = stack.enter_context(bench.start(system))
                bench.embed(runner, "model")
                runner.ask("open", folder=str(folder))
            except RunnerError as error:
                bench.results.figures.append(Figure(QUERY, system.name, "ms", why=str(error)))
                continue
            runners[system.name] = runner
        for work, rest, module in ((QUERY, REST, None), (FILTERED, FILTERED_REST, bench.book.module)):
            jobs = {name: _asking(bench, runner, module) for name, runner in runners.items()}
            interleave(1, jobs)  # warm up: page cache, caches, chunks
            _add_queries(bench, work, rest, *interleave(bench.rounds, jobs))
        for name, runner in runners.items():
            used = runner.ask("memory")
            private = () if used["private"] is None else (used["private"] / 1e6,)
            bench.results.figures.append(Figure(MEMORY, name, "MB", private, more={"rss": used["rss"] / 1e6}))


def _asking(bench: Bench, runner: RunnerProcess, module: str | None) -> Job:
    queries = list(bench.book.queries)
    return lambda: runner.ask("ask", questions=queries, top=TOP, module=module, warm=_WARM)


def _add_queries(
    bench: Bench, work: str, rest: str, answers: dict[str, list[Any]], failed: dict[str, str]
) -> None:
    """Add the medians of each round, and of their part without embedding."""
    for name, rounds in answers.items():
        values = tuple(1e3 * median(done["wall"]) for done in rounds)
        cpu = tuple(1e3 * median(done["cpu"]) for done in rounds)
        bench.results.figures.append(Figure(work, name, "ms", values, cpu, why=failed.get(name, "")))
        others = tuple(1e3 * median(map(float.__sub__, done["wall"], done["embedding"])) for done in rounds)
        bench.results.figures.append(Figure(rest, name, "ms", others))


def index(bench: Bench, size: int, rounds: int) -> None:
    """Let every system embed and store the same chunks, in turn."""
    notify(f"Index {size} chunks, embedding included, {rounds} rounds")
    with ExitStack() as stack:
        jobs: dict[str, Job] = {}
        for system in bench.systems:
            runner = stack.enter_context(bench.start(system))
            bench.embed(runner, "model")
            jobs[system.name] = _indexing(bench, system, runner, size)
        answers, failed = interleave(rounds, jobs)
    for name, found in answers.items():
        rates = tuple(done["pieces"] / done["wall"] for done in found)
        cpu = tuple(1e3 * done["cpu"] / done["pieces"] for done in found)
        why = failed.get(name, "")
        bench.results.figures.append(
            Figure(f"index, {size} chunks", name, "chunks/s", rates, cpu, "more", why)
        )


def _indexing(bench: Bench, system: System, runner: RunnerProcess, size: int) -> Job:
    pieces = write_pieces(bench.book, size, bench.scratch)
    folder = bench.scratch / "embedded" / system.name

    def job() -> Any:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(exist_ok=True)
        try:
            return runner.ask("index", pieces=str(pieces), folder=str(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return job

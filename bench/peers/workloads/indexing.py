"""(c) Chunks per second into an index that another process can open, including embedding."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.peers.figures import Figure
from bench.peers.listing import System
from bench.peers.process import RunnerProcess
from bench.peers.running import Bench, interleave


def work_of(size: int) -> str:
    """Return the name of the workload."""
    return f"index, {size} chunks, embedding included"


def run(bench: Bench, size: int, rounds: int) -> None:
    """Let every system embed and store the same chunks, in turn."""
    bench.notify(f"Index {size} chunks, embedding included, {rounds} rounds")
    work = work_of(size)
    with ExitStack() as stack:
        jobs: dict[str, Callable[[], Any]] = {}
        for system in bench.whole_systems:
            runner = stack.enter_context(bench.start(system))
            bench.embed(runner, "model")
            jobs[system.name] = _indexing(bench, system, runner, size)
        answers, failed = interleave(rounds, jobs)
    for name, found in answers.items():
        rates = tuple(done["pieces"] / done["wall"] for done in found)
        cpus = tuple(1e3 * done["cpu"] / done["pieces"] for done in found)
        shares = [done["embedding"] / done["wall"] for done in found]
        more = {"embedding share": sum(shares) / len(shares)} if shares else {}
        bench.results.add(Figure(work, name, "chunks/s", rates, cpus, "more", failed.get(name, ""), more))


def _indexing(bench: Bench, system: System, runner: RunnerProcess, size: int) -> Callable[[], Any]:
    dataset = bench.dataset(size)
    folder = bench.scratch / "embedded" / f"{system.name}-{size}"

    def once() -> Any:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(exist_ok=True)
        try:
            return runner.ask("index", pieces=str(dataset.pieces), folder=str(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return once

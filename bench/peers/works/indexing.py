"""(c) Chunks per second into an index that another process can open, including embedding."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.peers.figures import Figure
from bench.peers.listing import System
from bench.peers.process import Conversation
from bench.peers.running import Bench, in_turn


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
            talk = stack.enter_context(bench.talk(system))
            bench.embed(talk, "model")
            jobs[system.name] = _indexing(bench, system, talk, size)
        answers, failed = in_turn(rounds, jobs)
    for name, found in answers.items():
        rates = tuple(done["pieces"] / done["wall"] for done in found)
        cpus = tuple(1e3 * done["cpu"] / done["pieces"] for done in found)
        shares = [done["embedding"] / done["wall"] for done in found]
        more = {"embedding share": sum(shares) / len(shares)} if shares else {}
        bench.results.add(Figure(work, name, "chunks/s", rates, cpus, "more", failed.get(name, ""), more))


def _indexing(bench: Bench, system: System, talk: Conversation, size: int) -> Callable[[], Any]:
    material = bench.material(size)
    folder = bench.scratch / "embedded" / f"{system.name}-{size}"

    def once() -> Any:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(exist_ok=True)
        try:
            return talk.ask("index", pieces=str(material.pieces), folder=str(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return once

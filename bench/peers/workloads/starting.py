"""(b) Import time, and the first answer of a fresh process."""

from __future__ import annotations

from collections.abc import Callable

from bench.peers.figures import Figure
from bench.peers.listing import System
from bench.peers.process import Cold, cold
from bench.peers.running import TOP, Bench, interleave

IMPORT = "import"


def cold_work(size: int) -> str:
    """Return the name of the cold query."""
    return f"cold query, {size} chunks"


def run(bench: Bench, size: int) -> None:
    """Measure both in turn; every value is from a fresh process."""
    bench.notify("Import and cold query")
    imports, failed = interleave(
        bench.rounds, {system.name: _importing(bench, system) for system in bench.whole_systems}
    )
    for name, pairs in imports.items():
        walls, cpus = tuple(1e3 * wall for wall, _ in pairs), tuple(1e3 * cpu for _, cpu in pairs)
        bench.results.add(Figure(IMPORT, name, "ms", walls, cpus, why=failed.get(name, "")))
    work = cold_work(size)
    jobs = {}
    for system in bench.whole_systems:
        folder, why = bench.index(system, size)
        if folder is None:
            bench.results.add(Figure(work, system.name, "ms", why=why))
            continue
        jobs[system.name] = _asking(
            bench,
            system,
            [str(folder), str(bench.home), str(bench.threads), str(TOP), bench.book.questions[0]],
        )
    interleave(1, jobs)  # fill the page cache, for all systems
    answers, failed = interleave(bench.rounds, jobs)
    for name, found in answers.items():
        values = tuple(1e3 * each.wall for each in found)
        used = tuple(1e3 * each.cpu for each in found)
        bench.results.add(
            Figure(
                work,
                name,
                "ms",
                values,
                used,
                why=failed.get(name, ""),
                more={"found": found[-1].found if found else []},
            )
        )


def _importing(bench: Bench, system: System) -> Callable[[], tuple[float, float]]:
    def once() -> tuple[float, float]:
        with bench.start(system) as runner:
            done = runner.ask("load")
        return done["wall"], done["cpu"]

    return once


def _asking(bench: Bench, system: System, arguments: list[str]) -> Callable[[], Cold]:
    return lambda: cold(system, bench.environments[system.name], bench.scratch, arguments)

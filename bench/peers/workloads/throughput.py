"""(e) Answers per second from one process and from two, each with its share of the processors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from bench.peers.figures import Figure
from bench.peers.process import RunnerError, RunnerProcess
from bench.peers.running import TOP, Bench, interleave


def work_of(size: int, processes: int) -> str:
    """Return the name of the workload."""
    return f"throughput, {size} chunks, {processes} process{'es' if processes > 1 else ''}"


def run(bench: Bench, size: int, processes: int, seconds: float) -> None:
    """Let every system answer for some seconds, in turn."""
    bench.notify(f"Throughput with {processes} processes")
    work = work_of(size, processes)
    threads = max(1, bench.threads // processes)
    with ExitStack() as stack:
        teams: dict[str, list[RunnerProcess]] = {}
        for system in bench.whole_systems:
            folder, why = bench.index(system, size)
            try:
                if folder is None:
                    raise RunnerError(why)
                team = [stack.enter_context(bench.start(system)) for _ in range(processes)]
                for runner in team:
                    bench.embed(runner, "model", threads=threads)
                    runner.ask("open", folder=str(folder))
            except RunnerError as error:
                bench.results.add(Figure(work, system.name, "answers/s", better="more", why=str(error)))
                continue
            teams[system.name] = team
        answers, failed = interleave(
            bench.rounds, {name: _running(bench, team, seconds) for name, team in teams.items()}
        )
    for name, found in answers.items():
        rates, cpus = tuple(rate for rate, _ in found), tuple(1e3 * cpu for _, cpu in found)
        bench.results.add(Figure(work, name, "answers/s", rates, cpus, "more", failed.get(name, "")))


def _running(bench: Bench, team: list[RunnerProcess], seconds: float) -> Callable[[], tuple[float, float]]:
    def once() -> tuple[float, float]:
        for runner in team:
            runner.begin("run", questions=list(bench.book.questions), top=TOP, seconds=seconds)
        done = [runner.end() for runner in team]
        asked = sum(each["asked"] for each in done)
        return sum(each["asked"] / each["wall"] for each in done), sum(each["cpu"] for each in done) / asked

    return once

"""(d), (f) Time of a search with and without a filter, its part without embedding, and memory."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean, median
from typing import Any

from bench.peers.figures import Figure
from bench.peers.listing import EXACT, LIMIT, SELF
from bench.peers.process import RunnerError, RunnerProcess
from bench.peers.running import TOP, WARM, Bench, interleave


def query_work(size: int, *, model: bool, filtered: bool) -> str:
    """Return the name of a search: with the model, or with precomputed vectors."""
    kind = "end to end" if model else "vectors given"
    return f"query, {size} chunks, {kind}{', filtered' if filtered else ''}"


def rest_work(size: int, *, filtered: bool) -> str:
    """Return the name of the part of a search that is not embedding."""
    return f"query, {size} chunks, embedding time subtracted{', filtered' if filtered else ''}"


def added_work(size: int, *, filtered: bool) -> str:
    """Return the name of the overhead over the engine's own time."""
    return f"query, {size} chunks, overhead above the same engine calls{', filtered' if filtered else ''}"


def memory_work(size: int, *, model: bool) -> str:
    """Return the name of the memory of a searching process."""
    return f"memory, {size} chunks{', model included' if model else ''}"


def run(bench: Bench, size: int, *, model: bool) -> None:
    """Run all queries on every system in every round, without and with a filter."""
    bench.notify(f"Query {size} chunks, {'model' if model else 'vectors given'}")
    with bench.opened(
        size, "model" if model else "precomputed", query_work(size, model=model, filtered=False), "ms"
    ) as runners:
        for module in (None, bench.book.module):
            asking = {name: _asking(bench, runner, module) for name, runner in runners.items()}
            interleave(1, asking)  # warm up: page cache, caches, chunks
            answers, failed = interleave(bench.rounds, asking)
            for name, rounds in answers.items():
                _add(
                    bench,
                    size,
                    name,
                    rounds,
                    model=model,
                    filtered=module is not None,
                    why=failed.get(name, ""),
                )
            _add_agreement(bench, query_work(size, model=model, filtered=module is not None))
            if not model:
                _add_added(bench, size, filtered=module is not None)
        for name, runner in runners.items():
            try:
                used = runner.ask("memory")
            except RunnerError:
                continue
            more = {"rss": used["rss"] / 1e6}
            own = () if used["own"] is None else (used["own"] / 1e6,)
            bench.results.add(Figure(memory_work(size, model=model), name, "MB", own, more=more))


def _asking(bench: Bench, runner: RunnerProcess, module: str | None) -> Callable[[], Any]:
    questions = list(bench.book.questions)
    return lambda: runner.ask("ask", questions=questions, top=TOP, module=module, warm=WARM)


def _add(
    bench: Bench, size: int, name: str, rounds: list[Any], *, model: bool, filtered: bool, why: str
) -> None:
    p50 = tuple(1e3 * median(each["wall"]) for each in rounds)
    p95 = tuple(1e3 * sorted(each["wall"])[int(0.95 * (len(each["wall"]) - 1))] for each in rounds)
    cpus = tuple(1e3 * median(each["cpu"]) for each in rounds)
    more = (
        {"p95": median(p95), "found": [[id for id, _ in found] for found in rounds[-1]["found"]]}
        if rounds
        else {}
    )
    bench.results.add(
        Figure(query_work(size, model=model, filtered=filtered), name, "ms", p50, cpus, why=why, more=more)
    )
    if model and rounds:
        rest = tuple(1e3 * median(map(float.__sub__, each["wall"], each["embedding"])) for each in rounds)
        bench.results.add(Figure(rest_work(size, filtered=filtered), name, "ms", rest))


def _add_added(bench: Bench, size: int, *, filtered: bool) -> None:
    """Subtract the engine's own time, by round, for Recto and the thin systems over the same engine."""
    bare = bench.results.get(query_work(size, model=False, filtered=filtered), LIMIT)
    for system in bench.systems:
        found = bench.results.get(query_work(size, model=False, filtered=filtered), system.name)
        if bare and found and (system.name == SELF or system.kind == "thin"):
            added = tuple(mine - engine for mine, engine in zip(found.values, bare.values, strict=False))
            bench.results.add(Figure(added_work(size, filtered=filtered), system.name, "ms", added))


def _add_agreement(bench: Bench, work: str) -> None:
    """Record the recall of each system relative to exact search: speed must not come from missed chunks."""
    figures = bench.results.of(work)
    exact = figures[EXACT].more.get("found") if EXACT in figures else None
    for figure in figures.values():
        if exact and (found := figure.more.get("found")):
            shares = [
                len({*mine} & {*best}) / len(best) for mine, best in zip(found, exact, strict=True) if best
            ]
            figure.more["agreement"] = fmean(shares)

"""Measure what the ways in add to a search: `uv run --group langchain --group llamaindex --group haystack python -m bench.leaves`.

Adapters and the MCP server answer the same questions as `Retriever.search`, in interleaved rounds of one run, so that a busy machine slows
both sides of a comparison alike. A framework that is not installed is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.spine import QUESTIONS, ROOT, table
from recto import __version__
from recto.book.tree import MarkdownTree
from recto.indexer import Work, index_book
from recto.mcp.desk import Desk
from recto.mcp.server import build_server
from recto.retriever import Retriever
from recto.settings import Settings
from recto.wiring import open_embedder, open_store, sample_source

Way = Callable[[str], Awaitable[object]]

_PAUSE = 0.01  # seconds: the model's threads go on spinning for a while, in the server's process too, and would slow the next one down
_IMPORTS = {"import recto": "import recto", "import dataclasses, pathlib, json": "import dataclasses, pathlib, json", "nothing": "pass"}


def main() -> None:
    """Run all measurements and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="rounds of five questions (default 40)")
    parser.add_argument("--book", type=Path, help="measure on this book instead of the sample book")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as home:
        settings = Settings("local", "edge", Path(home), threads=threads)
        embedder, store = open_embedder(settings, print), open_store(settings, print)
        source = MarkdownTree(options.book) if options.book else sample_source()
        index_book(Work(source, embedder), store, "bench", journal=Path(home) / "journal")
        with Retriever(embedder, store, "bench") as retriever:
            retriever.warm_up()
            figures = {
                "machine": f"{platform.machine()}, {threads} threads, Python {platform.python_version()}",
                "recto": __version__,
                "date": datetime.now(UTC).date().isoformat(),
                "rounds": options.rounds,
                **asyncio.run(ways_in(retriever, Path(home), options.rounds)),
                **importing(options.rounds),
            }
    print(json.dumps(figures, indent=2) if options.json else table(figures))


async def ways_in(retriever: Retriever, home: Path, rounds: int) -> dict[str, Any]:
    """Ask every question by every way in turn; the core's sync and async searches are what the others are compared with."""
    async with AsyncExitStack() as stack:
        ways: dict[str, Way] = {"Retriever.search": _blocking(retriever.search), "Retriever.asearch": retriever.asearch}
        ways |= langchain_ways(retriever) | llamaindex_ways(retriever) | haystack_ways(retriever)
        ways |= await mcp_ways(retriever, home, stack)
        times: dict[str, list[float]] = {name: [] for name in ways}
        shuffle = random.Random(0)  # whoever comes second finds the text in the caches
        for round_ in range(rounds + 1):
            for question in QUESTIONS:
                for name, way in shuffle.sample(sorted(ways.items()), len(ways)):
                    await asyncio.sleep(_PAUSE)
                    began = perf_counter()
                    await way(question)
                    if round_:  # the first round warms up
                        times[name].append(perf_counter() - began)
    core = times.pop("Retriever.search")
    figures: dict[str, Any] = {"Retriever.search, ms: p50 · p10": f"{_at(core, 50):.2f} · {_at(core, 10):.2f}"}
    for name, found in times.items():
        added = [f"{_at(found, share) - _at(core, share):+.2f} ({_at(found, share) / _at(core, share):.2f} x)" for share in (50, 10)]
        figures[f"{name} adds, ms (goal <= 2 at p50): p50 · p10"] = " · ".join(added)
    return figures


def _at(times: list[float], share: int) -> float:
    """Return the milliseconds that so many percent of the answers did not exceed; the quickest tenth is what others on a machine slow least."""
    return statistics.quantiles(times, n=100, method="inclusive")[share - 1] * 1e3


def langchain_ways(retriever: Retriever) -> dict[str, Way]:
    """Ask by the LangChain adapter."""
    try:
        from recto.integrations.langchain import RectoRetriever
    except ImportError:
        return {}
    adapter = RectoRetriever(retriever=retriever)
    return {"LangChain invoke": _blocking(adapter.invoke), "LangChain ainvoke": adapter.ainvoke}


def llamaindex_ways(retriever: Retriever) -> dict[str, Way]:
    """Ask by the LlamaIndex adapter."""
    try:
        from recto.integrations.llamaindex import RectoRetriever
    except ImportError:
        return {}
    adapter = RectoRetriever(retriever=retriever)
    return {"LlamaIndex retrieve": _blocking(adapter.retrieve), "LlamaIndex aretrieve": adapter.aretrieve}


def haystack_ways(retriever: Retriever) -> dict[str, Way]:
    """Ask by the Haystack component."""
    try:
        from recto.integrations.haystack import RectoRetriever
    except ImportError:
        return {}
    adapter = RectoRetriever(retriever=retriever)
    return {"Haystack run": _blocking(adapter.run), "Haystack run_async": adapter.run_async}


async def mcp_ways(retriever: Retriever, home: Path, stack: AsyncExitStack) -> dict[str, Way]:
    """Ask by the protocol: within this process, and a server that was started as clients start it."""
    from mcp import Client, StdioServerParameters

    environment = {**os.environ, "RECTO_HOME": str(home), "COLLECTION_NAME": "bench"}
    process = StdioServerParameters(command=sys.executable, args=["-m", "recto", "mcp"], env=environment, cwd=ROOT)
    near = await stack.enter_async_context(Client(build_server(Desk(retriever, retriever.open, print))))
    far = await stack.enter_async_context(Client(process))

    def asking(client: Client) -> Way:
        return lambda question: client.call_tool("search_book", {"query": question})

    return {"MCP, in memory": asking(near), "MCP, stdio": asking(far)}


def importing(rounds: int) -> dict[str, Any]:
    """Compare importing the package with importing three modules of the standard library, in fresh processes."""
    times: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for _ in range(rounds):
        for name, code in _IMPORTS.items():
            with _timed(times[name]):
                subprocess.run([sys.executable, "-c", code], check=True)
    medians = {name: statistics.median(found) for name, found in times.items()}
    return {
        **{f"{name}, ms": round(time * 1e3, 1) for name, time in medians.items()},
        "import recto / the three (goal <= 1.5)": round(medians["import recto"] / medians["import dataclasses, pathlib, json"], 2),
    }


def _blocking(search: Callable[[str], object]) -> Way:
    async def ask(question: str) -> object:
        return search(question)

    return ask


@contextmanager
def _timed(times: list[float]) -> Iterator[None]:
    began = perf_counter()
    yield
    times.append(perf_counter() - began)


if __name__ == "__main__":
    main()

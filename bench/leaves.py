"""Measure the overhead of the framework adapters and the MCP server.

Run `python -m bench.leaves` with the groups langchain, llamaindex and haystack. All of them answer
the same queries in interleaved rounds of one run. The overhead is the time of a call minus the time of the
search in it, so that a busy machine changes it little. A framework that is not installed is skipped.
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
from recto.api import open_embedder, open_store, sample_source
from recto.book.sources.tree import MarkdownTree
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.server.mcp_server import build_server
from recto.server.mcp_tools import LazyRetriever
from recto.settings import Settings
from recto.types.search import SearchResponse

Call = Callable[[str], Awaitable[object]]

_PAUSE = 0.01  # seconds: the model's threads spin for a while and would slow down the next call
_STDIO = "MCP, stdio"
_IMPORTS = {
    "import recto": "import recto",
    "import dataclasses, pathlib, json": "import dataclasses, pathlib, json",
    "nothing": "pass",
}


def main() -> None:
    """Run all measurements and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="rounds of five queries (default 40)")
    parser.add_argument("--book", type=Path, help="measure on this book instead of the sample book")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as home:
        settings = Settings("local", "edge", Path(home), threads=threads)
        embedder, store = open_embedder(settings, print), open_store(settings, print)
        source = MarkdownTree(options.book) if options.book else sample_source()
        index_book(IndexJob(source, embedder), store, "bench", journal=Path(home) / "journal")
        with TimedRetriever(embedder, store, "bench") as retriever:
            retriever.warm_up()
            figures = {
                "machine": f"{platform.machine()}, {threads} threads, Python {platform.python_version()}",
                "recto": __version__,
                "date": datetime.now(UTC).date().isoformat(),
                "rounds": options.rounds,
                **asyncio.run(measure_overhead(retriever, Path(home), options.rounds)),
                **importing(options.rounds),
            }
    print(json.dumps(figures, indent=2) if options.json else table(figures))


class TimedRetriever(Retriever):
    """A retriever that measures its own searches."""

    took = 0.0

    def search(self, *arguments: Any, **more: Any) -> SearchResponse:
        """Search, and measure the time."""
        began = perf_counter()
        response = super().search(*arguments, **more)
        self.took = perf_counter() - began
        return response

    async def asearch(self, *arguments: Any, **more: Any) -> SearchResponse:
        """Search, and measure the time."""
        began = perf_counter()
        response = await super().asearch(*arguments, **more)
        self.took = perf_counter() - began
        return response


async def measure_overhead(retriever: TimedRetriever, home: Path, rounds: int) -> dict[str, Any]:
    """Run every query through every adapter in random order, and return the overhead of each."""
    async with AsyncExitStack() as stack:
        calls = langchain_calls(retriever) | llamaindex_calls(retriever) | haystack_calls(retriever)
        calls |= await mcp_calls(retriever, home, stack)
        core: dict[str, list[float]] = {name: [] for name in calls}
        whole: dict[str, list[float]] = {name: [] for name in calls}
        shuffle = random.Random(0)
        for round_ in range(rounds + 1):
            for question in QUESTIONS:
                for name, call in shuffle.sample(sorted(calls.items()), len(calls)):
                    await asyncio.sleep(_PAUSE)
                    began = perf_counter()
                    answer = await call(question)
                    took = perf_counter() - began
                    if round_:  # the first round warms up
                        whole[name].append(took)
                        core[name].append(_server_seconds(answer) if name == _STDIO else retriever.took)
    figures: dict[str, Any] = {}
    for name in calls:
        added = statistics.median(took - within for took, within in zip(whole[name], core[name], strict=True))
        p50 = statistics.median(core[name])
        figures[f"{name}: adds to a search of {p50 * 1e3:.1f} ms (goal <= 2 ms)"] = (
            f"{added * 1e3:.2f} ms, {1 + added / p50:.2f} x"
        )
    return figures


def _server_seconds(answer: Any) -> float:
    """Return the search time that the server reports."""
    return float(answer.structured_content["took_ms"]) / 1e3


def langchain_calls(retriever: Retriever) -> dict[str, Call]:
    """Return the calls of the LangChain adapter."""
    try:
        from recto.integrations.langchain import RectoLangChainRetriever
    except ImportError:
        return {}
    adapter = RectoLangChainRetriever(retriever=retriever)
    return {"LangChain invoke": _blocking(adapter.invoke), "LangChain ainvoke": adapter.ainvoke}


def llamaindex_calls(retriever: Retriever) -> dict[str, Call]:
    """Return the calls of the LlamaIndex adapter."""
    try:
        from recto.integrations.llamaindex import RectoLlamaIndexRetriever
    except ImportError:
        return {}
    adapter = RectoLlamaIndexRetriever(retriever=retriever)
    return {"LlamaIndex retrieve": _blocking(adapter.retrieve), "LlamaIndex aretrieve": adapter.aretrieve}


def haystack_calls(retriever: Retriever) -> dict[str, Call]:
    """Return the calls of the Haystack component."""
    try:
        from recto.integrations.haystack import RectoHaystackRetriever
    except ImportError:
        return {}
    adapter = RectoHaystackRetriever(retriever=retriever)
    return {"Haystack run": _blocking(adapter.run), "Haystack run_async": adapter.run_async}


async def mcp_calls(retriever: Retriever, home: Path, stack: AsyncExitStack) -> dict[str, Call]:
    """Return calls of the MCP server: in this process, and in a process as clients start it."""
    from mcp import Client, StdioServerParameters

    environment = {**os.environ, "RECTO_HOME": str(home), "COLLECTION_NAME": "bench"}
    process = StdioServerParameters(
        command=sys.executable, args=["-m", "recto", "mcp"], env=environment, cwd=ROOT
    )
    near = await stack.enter_async_context(
        Client(build_server(LazyRetriever(retriever, retriever.open, print)))
    )
    far = await stack.enter_async_context(Client(process))

    def asking(client: Client) -> Call:
        return lambda question: client.call_tool("search_book", {"query": question})

    return {"MCP, in memory": asking(near), _STDIO: asking(far)}


def importing(rounds: int) -> dict[str, Any]:
    """Compare importing the package with importing three standard modules, in fresh processes."""
    times: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for _ in range(rounds):
        for name, code in _IMPORTS.items():
            with _timed(times[name]):
                subprocess.run([sys.executable, "-c", code], check=True)
    medians = {name: statistics.median(found) for name, found in times.items()}
    return {
        **{f"{name}, ms": round(time * 1e3, 1) for name, time in medians.items()},
        "import recto / the three modules (goal <= 1.5)": round(
            medians["import recto"] / medians["import dataclasses, pathlib, json"], 2
        ),
    }


def _blocking(search: Callable[[str], object]) -> Call:
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

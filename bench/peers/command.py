"""Compare Recto with other systems, and with direct calls of its parts, in interleaved rounds.

Every system has its own environment and the same embedding model. The results are a table, JSON and a chart.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.chunk_quality import load_suites
from bench.chunks import SUITES
from bench.peers import table
from bench.peers.chart import chart
from bench.peers.dataset import read_book
from bench.peers.environments import ROOT, Environment, build
from bench.peers.figures import Results
from bench.peers.goals import goals
from bench.peers.listing import Listing, System, load
from bench.peers.running import Bench
from bench.peers.workloads import indexing, installing, pipelines, querying, scifact, starting, throughput
from bench.vectors import Vectors
from recto.api import open_embedder, sample_source
from recto.book.sources.tree import open_book
from recto.embedders.onnx import LocalEmbedder
from recto.settings import Settings

WORKLOADS = ("install", "cold", "query", "throughput", "index", "quality")
PAGE = ROOT / "docs" / "explanation" / "benchmark.md"
_MODEL_SIZE = 1000  # chunks in searches that include the model


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen workloads and print the report."""
    options = parse(arguments)
    listing = load()
    systems = listing.chosen(options.peers)
    cache: Path = options.cache
    cache.mkdir(parents=True, exist_ok=True)
    environments = {system.name: build(system, listing, cache) for system in systems}
    results = Results(_about(options, systems, environments))
    if options.onto:
        results.take(json.loads(options.onto.read_text("utf-8")))
    with tempfile.TemporaryDirectory(prefix="recto-bench-") as scratch:
        run(options, listing, systems, environments, results, Path(scratch))
    shown = listing.systems if options.onto else systems
    report = table.markdown(results, shown)
    print(report)
    if options.svg:
        options.svg.write_text(f"{chart(results, shown)}\n", "utf-8")
    if options.docs:
        PAGE.write_text(table.into(PAGE.read_text("utf-8"), report), "utf-8")


def save(options: argparse.Namespace, results: Results, systems: tuple[System, ...]) -> None:
    """Write the results so far: an interrupted run can be resumed with `--onto`."""
    if options.json:
        reached = [{**asdict(goal), "met": goal.met} for goal in goals(results, systems)]
        options.json.write_text(json.dumps({**results.to_dict(), "goals": reached}, indent=1) + "\n", "utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    home = Path(os.environ.get("RECTO_HOME", "~/.recto")).expanduser()
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help=f"workloads, separated by commas: {', '.join(WORKLOADS)}")
    parser.add_argument("--peers", default="", help="systems, separated by commas; Recto is always included")
    parser.add_argument(
        "--sizes",
        default="1000,10000,100000",
        help="index sizes for searches, separated by commas (default %(default)s)",
    )
    parser.add_argument(
        "--embed",
        default="100,1000",
        help="sizes of index runs with embedding; 1000 and more run once (default %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="rounds of each measurement (default %(default)s)"
    )
    parser.add_argument(
        "--limit", type=float, default=300, help="maximum seconds to make an index (default %(default)s)"
    )
    parser.add_argument("--book", type=Path, help="use this book instead of the sample book")
    parser.add_argument(
        "--corpora",
        type=Path,
        default=os.environ.get("RECTO_CORPORA"),
        help="directory with books/ and eval/ (RECTO_CORPORA)",
    )
    parser.add_argument(
        "--cache", type=Path, default=home / "bench", help="directory that caches environments and vectors"
    )
    parser.add_argument("--whole", action="store_true", help="all pages and whole corpora (slow)")
    parser.add_argument(
        "--quick", action="store_true", help="a few minutes: small sizes, three rounds, less quality"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument(
        "--onto",
        type=Path,
        help="add to the figures of an earlier run in this file; use the same systems",
    )
    parser.add_argument("--svg", type=Path, help="write the chart to this file")
    parser.add_argument("--docs", action="store_true", help=f"write the tables into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    options.only = [name.strip() for name in options.only.split(",") if name.strip()] or list(WORKLOADS)
    if unknown := [name for name in options.only if name not in WORKLOADS]:
        parser.error(f"there is no workload {', '.join(unknown)}; workloads: {', '.join(WORKLOADS)}")
    options.sizes, options.embed = _numbers(options.sizes), _numbers(options.embed)
    if options.quick:
        options.sizes, options.embed, options.rounds = (1000,), (32,), 3
    return options


def run(
    options: argparse.Namespace,
    listing: Listing,
    systems: tuple[System, ...],
    environments: dict[str, Environment],
    results: Results,
    scratch: Path,
) -> None:
    """Run the workloads, one after the other."""
    settings = Settings("local", "edge", scratch / "home", threads=options.threads)
    embedder = open_embedder(settings, print)
    if not isinstance(embedder, LocalEmbedder):
        raise SystemExit("The comparison needs the built-in model.")
    with Vectors(embedder, options.cache) as vectors:
        source = open_book(options.book) if options.book else sample_source()
        book = read_book(source, load_suites(*SUITES), vectors, 10 if options.quick else 40)
        results.about["book"] = (
            f"{book.name}, {len(book.inputs)} chunks; filtered queries search {book.share:.0%} of it"
        )
        bench = Bench(
            systems,
            environments,
            book,
            vectors,
            scratch,
            options.cache,
            results,
            rounds=options.rounds,
            sizes=options.sizes,
            threads=options.threads,
            limit=options.limit,
            corpora=options.corpora,
            whole=options.whole,
        )
        _measure(bench, options, listing)


def _measure(bench: Bench, options: argparse.Namespace, listing: Listing) -> None:
    for name, part in _parts(bench, options, listing):
        if name in options.only:
            part()
            save(options, bench.results, listing.systems)


def _parts(
    bench: Bench, options: argparse.Namespace, listing: Listing
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield each part with its workload; the results of a part are saved before the next one begins."""
    yield "install", lambda: installing.run(bench, listing)
    yield "cold", lambda: starting.run(bench, _MODEL_SIZE)
    yield "query", lambda: querying.run(bench, _MODEL_SIZE, model=True)
    for size in bench.sizes:
        yield "query", partial(querying.run, bench, size, model=False)
    for processes in (1, 2):
        yield (
            "throughput",
            partial(throughput.run, bench, _MODEL_SIZE, processes, 1.0 if options.quick else 3.0),
        )
    for size in options.embed:
        yield "index", partial(indexing.run, bench, size, 1 if size >= 1000 else bench.rounds)
    if "quality" in options.only:  # reading the books takes time, too
        yield from (("quality", part) for part in _quality(bench, options))


def _quality(bench: Bench, options: argparse.Namespace) -> Iterator[Callable[[], None]]:
    evaluation = bench.corpora / "eval" if bench.corpora else None
    if evaluation and (evaluation / "scifact").is_dir():
        yield partial(scifact.run, bench, evaluation / "scifact", quick=options.quick)
    else:
        yield lambda: bench.notify("SciFact does not exist: skipped.")
    for book in pipelines.books(bench, sample_alone=options.quick):
        yield partial(pipelines.run, bench, book)
    if evaluation and (evaluation / "chroma_chunking").is_dir() and not options.quick:
        yield partial(pipelines.run_chroma, bench, evaluation / "chroma_chunking")


def _about(
    options: argparse.Namespace, systems: tuple[System, ...], environments: dict[str, Environment]
) -> dict[str, object]:
    versions = {
        system.name: ", ".join(
            f"{name} {environments[system.name].versions.get(name, '?')}" for name in system.versions
        )
        for system in systems
    }
    machine = (
        f"{platform.machine()} {_processor()}, {options.threads} threads, {_memory()}, {platform.system()}"
    )
    return {
        "machine": f"{machine}, Python {platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
        "rounds": options.rounds,
        "load average at the beginning": f"{os.getloadavg()[0]:.1f}",
        "versions": versions,
    }


def _processor() -> str:
    try:
        described = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    names = [
        line.partition(":")[2].strip() for line in described.splitlines() if line.startswith("Model name")
    ]
    return names[0] if names else ""


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB"


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        print(f"{text!r} is not a list of numbers separated by commas", file=sys.stderr)
        raise SystemExit(2) from None

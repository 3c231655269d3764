"""Compare Recto with other systems, and with direct calls of its parts, in interleaved rounds.

Every system has its own environment and the same embedding model. The results are tables and JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.common import BENCHMARK_PAGE, ROOT, add_machine_options, insert, names, new_parser, numbers
from bench.peers import workloads
from bench.peers.book import read_book
from bench.peers.environments import Environment, build
from bench.peers.figures import Results, markdown
from bench.peers.listing import System, load
from bench.peers.workloads import Bench

WORKLOADS = ("install", "start", "query", "index")
START, END = "<!-- figures: made by `python -m bench --docs`, do not edit -->", "<!-- end of figures -->"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen workloads and print the report."""
    options = parse(arguments)
    listing = load()
    systems = listing.chosen(options.peers)
    options.cache.mkdir(parents=True, exist_ok=True)
    environments = {system.name: build(system, listing, options.cache) for system in systems}
    results = Results(_about(options, systems, environments))
    with tempfile.TemporaryDirectory(prefix="recto-bench-") as scratch:
        book = read_book(options.book, Path(scratch) / "home", 10 if options.quick else 40, options.threads)
        results.about["book"] = (
            f"{book.name}, {len(book.chunks)} chunks; filtered queries search {book.share:.0%} of it"
        )
        bench = Bench(
            systems,
            environments,
            book,
            Path(scratch),
            options.cache.resolve(),
            results,
            rounds=options.rounds,
            threads=options.threads,
        )
        run(bench, options)
    report = markdown(results, systems)
    print(report)
    if options.json:
        options.json.write_text(json.dumps(results.to_dict(systems), indent=1) + "\n", "utf-8")
    if options.docs:
        BENCHMARK_PAGE.write_text(insert(BENCHMARK_PAGE.read_text("utf-8"), report, START, END), "utf-8")


def run(bench: Bench, options: argparse.Namespace) -> None:
    """Run the chosen workloads, one after the other."""
    if "install" in options.only:
        workloads.install(bench)
    if "start" in options.only:
        workloads.start(bench)
    if "query" in options.only:
        workloads.query(bench)
    if "index" in options.only:
        for size in options.embed:
            workloads.index(bench, size, 1 if size >= 1000 else bench.rounds)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__, "bench")
    parser.add_argument(
        "--only",
        type=names,
        default=WORKLOADS,
        help=f"workloads, separated by commas: {', '.join(WORKLOADS)}",
    )
    parser.add_argument(
        "--peers", type=names, default=[], help="systems, separated by commas; Recto is always included"
    )
    parser.add_argument(
        "--embed",
        type=numbers,
        default="100,1000",
        help="chunks of index runs with embedding; 1000 and more run once (default %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="rounds of each measurement (default %(default)s)"
    )
    parser.add_argument("--book", type=Path, help="use this book instead of the sample book")
    parser.add_argument(
        "--quick", action="store_true", help="a few minutes: three rounds, fewer queries, 32 embedded chunks"
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument(
        "--docs", action="store_true", help=f"write the tables into {BENCHMARK_PAGE.relative_to(ROOT)}"
    )
    add_machine_options(parser)
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.only if name not in WORKLOADS]:
        parser.error(f"there is no workload {', '.join(unknown)}; workloads: {', '.join(WORKLOADS)}")
    if options.quick:
        options.embed, options.rounds = [32], 3
    return options


def _about(
    options: argparse.Namespace, systems: Sequence[System], environments: dict[str, Environment]
) -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    machine = f"{platform.machine()}, {options.threads} threads, {memory:.0f} GB, {platform.system()}"
    versions = {}
    for system in systems:
        installed = environments[system.name].versions
        versions[system.name] = ", ".join(f"{name} {installed.get(name, '?')}" for name in system.versions)
    return {
        "machine": f"{machine}, Python {platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
        "rounds": options.rounds,
        "load average at the beginning": f"{os.getloadavg()[0]:.1f}",
        "versions": versions,
    }

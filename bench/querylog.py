"""Measure what the query log costs, and kill services that write it: `python -m bench.querylog`.

The cost is CPU time of searches in the service's own process, with and without the log in turn. `--kills 50`
kills two processes that log 500 queries a second each, as the workers of a service do: no query that was
added more than a second before the kill may be missing from the log, and no line may be damaged but the last
one of a file. `--service` kills a service with two workers instead, while readers search.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from bench.spine import table
from recto._util import percentile
from recto.api import open_embedder, open_store
from recto.book.sources.tree import open_book
from recto.evaluation.calibration import calibrate
from recto.indexing.indexer import IndexJob, index_book
from recto.search.query_log import QueryLog, log_files, read_query_log
from recto.search.retriever import Retriever
from recto.settings import QueryLogOptions, Settings
from tests.library import PAGES, write_library
from tests.server.http.service import Program

NAME = "house"
QUERIES = tuple(sentence for sections in PAGES.values() for _, sentence in sections)
_ROUND = 100  # searches
_ALLOWED = 1.0  # seconds before a kill


def make_home(folder: Path) -> Path:
    """Index a small book: the smaller the book, the larger the share of the log in a search."""
    book, home = write_library(folder / "book"), folder / "home"
    settings = Settings("local", "edge", home, threads=1)
    embedder, store = open_embedder(settings, print), open_store(settings, print)
    job = IndexJob(open_book(book), embedder, calibrate=calibrate)
    index_book(job, store, NAME, journal=home / "journal")
    embedder.close()
    store.close()
    return home


def measure(home: Path, folder: Path, rounds: int) -> dict[str, object]:
    """Search in rounds with and without the log, and compare the medians of their CPU time."""
    settings = Settings("local", "edge", home, threads=1)
    log = QueryLog(QueryLogOptions(folder / "log"))
    times: dict[bool, list[float]] = {False: [], True: []}
    added: list[float] = []
    with Retriever(open_embedder(settings, print), open_store(settings, print), NAME) as retriever:
        for query in QUERIES:
            retriever.search(query)
        for number in range(2 * rounds):
            is_on = bool(number % 2) != bool(number // 2 % 2)  # off on, on off, off on, …
            began = time.process_time()
            for index in range(_ROUND):
                response = retriever.search(QUERIES[index % len(QUERIES)])
                if is_on:
                    start = time.perf_counter()
                    log.add(response, "search")
                    added.append((time.perf_counter() - start) * 1e3)
            if is_on:
                while log.waiting:  # the writer's CPU time counts
                    time.sleep(0.01)
            times[is_on].append((time.process_time() - began) / _ROUND * 1e3)
    log.close()
    logged = sum(1 for _ in read_query_log(folder / "log"))
    off, on = (statistics.median(times[is_on]) for is_on in (False, True))
    return {
        "searches with the log": len(added),
        "logged": logged,
        "CPU per search without the log, ms": round(off, 3),
        "CPU per search with the log, ms": round(on, 3),
        "ratio (goal 1.03)": round(on / off, 4),
        "delay of a search by the log, p50 ms": round(percentile(sorted(added), 0.5), 4),
        "delay of a search by the log, p99 ms (goal 0.2)": round(percentile(sorted(added), 0.99), 4),
    }


WRITER = """
import sys, time
from pathlib import Path
from recto.search.query_log import QueryLog
from recto.settings import QueryLogOptions
from recto.testing.parts import chunk
from recto.types.search import Hit, NO_FILTERS, Outcome, SearchResponse, Timings
log, hits = QueryLog(QueryLogOptions(Path(sys.argv[1]))), tuple(Hit(0.5, chunk(i), 0.5) for i in range(5))
number = 0
while True:
    query = f"{sys.argv[2]} {number} " + "what readers ask " * (number % 50)
    log.add(SearchResponse(query, hits, NO_FILTERS, "house", Outcome.FOUND, Timings(1, 1, 2)), "search")
    print(time.monotonic(), query, flush=True)
    number += 1
    time.sleep(0.002)
"""


def kill_writers(folder: Path, count: int, seed: int = 1) -> dict[str, object]:
    """Kill two processes that log at random moments; they tell what they have added."""
    chance, counts, log = random.Random(seed), Counter[str](), folder / "kill-log"
    for number in range(count):
        outputs = [folder / f"added-{number}-{writer}" for writer in range(2)]
        processes = []
        for writer, output in enumerate(outputs):
            command = [sys.executable, "-c", WRITER, str(log), f"{number} {writer}"]
            with output.open("wb") as stream:
                processes.append(subprocess.Popen(command, stdout=stream))
        while not all(output.stat().st_size for output in outputs):
            time.sleep(0.02)
        time.sleep(0.5 + 1.5 * chance.random())
        killed = time.monotonic()
        for process in processes:
            process.kill()
        for process in processes:
            process.wait(60)
        added = {}
        for output in outputs:
            for line in output.read_text().split("\n")[:-1]:
                at, _, query = line.partition(" ")
                added[query] = float(at)
        _count(counts, log, added, killed)
    return _with_lines(counts, log)


def kill_service(home: Path, folder: Path, count: int, seed: int = 1) -> dict[str, object]:
    """Kill a service with two workers at random moments while two readers search."""
    chance, counts, log = random.Random(seed), Counter[str](), folder / "kill-log"
    arguments = ("--workers", "2", "--collection", NAME, "--query-log", str(log))
    for number in range(count):
        answered: dict[str, float] = {}
        stop = threading.Event()
        with Program(home, arguments, {"RECTO_THREADS": "1"}) as program:
            readers = [
                threading.Thread(target=_search, args=(program, f"{number} {reader}", answered, stop))
                for reader in range(2)
            ]
            for reader in readers:
                reader.start()
            while not answered:  # the workers have loaded the model
                time.sleep(0.05)
            time.sleep(1.2 + chance.random())
            children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children").read_text()
            killed = time.monotonic()
            for process in (program.process.pid, *map(int, children.split())):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            stop.set()
            for reader in readers:
                reader.join()
            program.process.wait(60)
        _count(counts, log, answered, killed)
    return _with_lines(counts, log)


def _count(counts: Counter[str], log: Path, added: dict[str, float], killed: float) -> None:
    """Count what a kill has cost."""
    logged = {entry["query"] for entry in read_query_log(log)}
    missing = [at for query, at in added.items() if query not in logged]
    counts["kills"] += 1
    counts["queries"] += len(added)
    counts["lost from the last second"] += sum(at >= killed - _ALLOWED for at in missing)
    counts["lost from before (goal 0)"] += sum(at < killed - _ALLOWED for at in missing)


def _with_lines(counts: Counter[str], log: Path) -> dict[str, object]:
    """Add how many lines are damaged, and how many files end with an incomplete line."""
    damaged = incomplete = 0
    for _, path in log_files(log):
        *lines, last = path.read_bytes().split(b"\n")
        incomplete += bool(last)
        damaged += sum(not _is_json(line) for line in lines)
    return {**counts, "damaged lines (goal 0)": damaged, "incomplete last lines": incomplete}


def _search(program: Program, name: str, answered: dict[str, float], stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        query = f"jam {name} {number}"
        with suppress(OSError):  # the service was killed
            if program.post("/v1/search", {"query": query}).status == 200:
                answered[query] = time.monotonic()
        number += 1


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def main() -> None:
    """Measure or kill, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="rounds with the log (default 20)")
    parser.add_argument("--kills", type=int, default=0, help="kill writers so often instead (default 0)")
    parser.add_argument("--service", action="store_true", help="kill a whole service")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.kills and not options.service:
            figures = kill_writers(folder, options.kills)
        elif options.kills:
            figures = kill_service(make_home(folder), folder, options.kills)
        else:
            figures = measure(make_home(folder), folder, options.rounds)
    print(json.dumps(figures, indent=2) if options.json else table(figures))


if __name__ == "__main__":
    main()

"""Compare the local model with the plain way to run it: `uv run python -m bench.embed`.

Each round runs every contender in turn and compares it with the plain one of the same round, so that a busy
machine slows both sides of a ratio alike. CPU time hardly depends on it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from bench.contenders import CONTENDERS, Contender, open_contender, write_plain
from bench.spine import QUESTIONS, embedded_texts
from recto.api import sample_source
from recto.book.sources.tree import MarkdownTree
from recto.embedders.granite.embedder import built_in_embedder

COLUMNS = (
    "graph and precision",
    "chunks/s",
    "speed-up",
    "reduction in CPU time (factor)",
    "query, ms",
    "time to first vector, s",
    "peak RSS, MB",
    "cosine, mean / min",
)
_MOST = 96  # chunks of a round: what an index run embeds at a time
_ASKED = 5  # times that each query is embedded in a round


@dataclass
class Row:
    """The measurements of one contender, one value for each round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    question: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    peak: float = 0.0
    cosines: tuple[float, float] = (1.0, 1.0)


def main() -> None:
    """Run all measurements and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--book", type=Path, help="embed the chunks of this book instead of the sample book")
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        embedder = built_in_embedder(home, threads)
        texts = embedded_texts(MarkdownTree(options.book) if options.book else sample_source(), embedder)
        texts = texts[:: -(-len(texts) // _MOST)]
        tokens = sum(embedder.count_tokens(text) for text in texts) / len(texts)
        write_plain(home)
        (home / "texts.json").write_text(json.dumps(texts), "utf-8")
        rows = throughput(texts, home, threads, options.rounds)
        fresh(rows, home, threads, options.rounds)
    print(
        f"{platform.machine()}, {threads} threads, {len(texts)} chunks of {tokens:.0f} tokens, "
        f"{options.rounds} rounds\n"
    )
    print(table(rows, len(texts)))


def throughput(texts: Sequence[str], home: Path, threads: int, rounds: int) -> dict[Contender, Row]:
    """Embed the chunks, then the queries, with each contender in turn."""
    import numpy as np

    embeds = {name: open_contender(name, home, threads) for name in CONTENDERS}
    rows = {name: Row() for name in CONTENDERS}
    plain = np.zeros((0, 0))
    for embed in embeds.values():  # warm up
        embed(texts[:2])
        embed(texts[:1])
    for _ in range(rounds):
        for name, embed in embeds.items():
            began, worked = perf_counter(), process_time()
            vectors = embed(texts)
            rows[name].wall.append(perf_counter() - began)
            rows[name].cpu.append(process_time() - worked)
            plain = np.asarray(vectors) if name == "plain" else plain
            cosines = (np.asarray(vectors) * plain).sum(axis=1)
            rows[name].cosines = float(cosines.mean()), float(cosines.min())
        for name, embed in embeds.items():
            times = []
            for question in QUESTIONS * _ASKED:
                began = perf_counter()
                embed([question])
                times.append(perf_counter() - began)
            rows[name].question.append(median(times))
    return rows


def fresh(rows: dict[Contender, Row], home: Path, threads: int, rounds: int) -> None:
    """Measure fresh processes: the time to the first vector, and the peak memory while embedding."""
    for name, row in rows.items():
        row.peak = float(started(name, home, threads, "texts.json")[1])
    for _ in range(rounds):
        for name, row in rows.items():
            row.start.append(started(name, home, threads, "")[0])


def started(name: Contender, home: Path, threads: int, texts: str) -> tuple[float, str]:
    """Start a process, and return the seconds until its first line, and that line."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as for an installed package
    command = [sys.executable, "-m", "bench.embed_once", name, str(home), str(threads), texts]
    began = perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        line = process.stdout.readline() if process.stdout else ""
        seconds = perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{name}: the process failed")
    return seconds, line


def table(rows: dict[Contender, Row], texts: int) -> str:
    """Return the figures as a Markdown table."""
    plain = rows["plain"]
    lines = [
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
    ]
    for name, row in rows.items():
        cells = [
            CONTENDERS[name],
            f"{texts / median(row.wall):.1f}",
            ratios(plain.wall, row.wall),
            ratios(plain.cpu, row.cpu),
            f"{median(row.question) * 1e3:.1f}",
            f"{median(row.start):.2f}",
            f"{row.peak:.0f}",
            f"{row.cosines[0]:.4f} / {row.cosines[1]:.4f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(plain: Sequence[float], mine: Sequence[float]) -> str:
    """Return the median of the rounds' ratios, and their range."""
    quotients = [theirs / ours for theirs, ours in zip(plain, mine, strict=True)]
    return f"{median(quotients):.2f} ({min(quotients):.2f}–{max(quotients):.2f})"


if __name__ == "__main__":
    main()

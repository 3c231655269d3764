"""What the benchmarks share: options, tables, an indexed sample book, and commands that run as processes."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import recto
from recto import Settings

ROOT = Path(__file__).parent.parent
BENCHMARK_PAGE = ROOT / "docs" / "explanation" / "benchmark.md"
COLLECTION = "bench"
QUESTIONS = (
    "What is ROS 2?",
    "How do I set up Gazebo for robot simulation?",
    "robot navigation",
    "Why does my node receive nothing?",
    "How do VLA models work for robot control?",
)
_START_SECONDS = 120  # the longest start of a service on a busy machine


def new_parser(description: str | None, module: str) -> argparse.ArgumentParser:
    """Return a parser whose help is the docstring of a module."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of what is kept between runs, and of the threads."""
    home = Path(os.environ.get("RECTO_HOME", "~/.recto")).expanduser()
    parser.add_argument(
        "--cache", type=Path, default=home / "bench", help="directory that keeps environments and vectors"
    )
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="threads of the model (default %(default)s)"
    )


def names(text: str) -> list[str]:
    """Return the names of a list that is separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def numbers(text: str) -> list[int]:
    """Return the numbers of a list that is separated by commas."""
    try:
        return [int(name) for name in names(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers with commas") from None


def notify(text: str) -> None:
    """Print what is being done."""
    print(text, file=sys.stderr, flush=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)) + "\n"


def cell(text: str) -> str:
    """Return a message in the form of one cell of a table."""
    line = " ".join(text.split()).replace("|", "/")
    return line if len(line) <= 120 else f"{line[:119]}…"


def insert(text: str, report: str, start: str, end: str) -> str:
    """Replace the text between two markers of a page by a report."""
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"The page has no markers for the figures: add {start} and {end}.")
    return f"{before}{start}\n\n{report.strip()}\n\n{end}{after}"


def print_figures(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """Print figures by their names."""
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        print(table(["measurement", "figure"], [[name, str(value)] for name, value in figures.items()]))


def local_settings(home: Path, threads: int) -> Settings:
    """Return the settings of the environment, with the embedded store in a directory."""
    return replace(recto.load_settings(), store="edge", home=home, threads=threads, collection="")


def index_sample(home: Path) -> None:
    """Index the sample book into the collection that `run_server` serves."""
    from recto.api import sample_source

    recto.index(sample_source(), COLLECTION, settings=Settings("local", "edge", home))


def recto_command(home: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return a command of this checkout and its environment, without the settings of the caller."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RECTO_", "COHERE_", "QDRANT_"))
    }
    environment = clean | {"RECTO_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    return [sys.executable, "-m", "recto", *arguments], environment


@contextmanager
def run_server(home: Path, *options: str) -> Iterator[int]:
    """Run the service until the block ends, and yield its port."""
    command, environment = recto_command(home, "serve", "--port", "0", *options)
    log = home.parent / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**environment, "COLLECTION_NAME": COLLECTION}, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while "startup complete" not in (text := log.read_text("utf-8")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(text)
            time.sleep(0.05)
        address = re.search(r"listens at http://127\.0\.0\.1:(\d+)", text)
        if address is None:
            raise RuntimeError(text)
        yield int(address[1])
    finally:
        process.terminate()
        process.wait(60)


def run_module(module: str, *arguments: str, timeout: float | None = None) -> Any:
    """Run a module of this package in a fresh process, and return the JSON that it prints."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=timeout, cwd=ROOT)
    return json.loads(done.stdout)

"""Read mutated books of all formats and generators: `python -m bench.fuzz --count 20000 --seed 1`.

Each case mutates files of a small book, and reads and chunks it as `recto index` does, in a child process
with limits. The table shows errors that `recto index` would not report, pages that take longer than a second,
pages that vanish without a line in the report, and the peak memory. A finding is printed with its case;
`--case NUMBER --write DIRECTORY` writes the book of a case.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import resource
import signal
import tempfile
import time
import tomllib
import traceback
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from time import process_time
from typing import Any

from bench.common import ROOT, new_parser, notify, print_figures
from recto.book.chunking import ChunkSize
from recto.book.parsing import pdf
from recto.book.sources import tree
from recto.errors import RectoError
from recto.indexing.reading import PageJob, PageReader

SLOW, MEMORY = 1.0, 300  # seconds of CPU time for a page, megabytes
_PATIENCE = 20  # seconds of CPU time until a page is given up
_LARGEST = 1 << 20
_LONG = 0.04  # share of the mutations that insert long pieces
_CONFIG = re.compile(r"\.(ya?ml|toml|js|mjs|mts|json|ini)$|(^|/)(conf\.py|SUMMARY\.md|nav\.adoc)$")
_SEEDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_PIECES, _LONG_PIECES = _SEEDS["pieces"], _SEEDS["long_pieces"]
_READER = PageReader("b", ChunkSize(), 512, lambda text: len(text) // 4, seconds=_PATIENCE)


@dataclass
class Case:
    """What was found in a case."""

    number: int
    book: str
    files: int
    seconds: float = 0.0
    slowest: str = ""
    megabytes: int = 0
    pages: int = 0
    refused: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


@cache
def books() -> dict[str, dict[str, bytes]]:
    """Return the small books: those of this benchmark, and those of the tests."""
    from tests.book.parsing.builders import column, epub, pdf

    navigation = '<li><a href="a.xhtml">A</a><ol><li><a href="b.xhtml#c">B</a></li></ol></li>'
    lines = [*column(["A title", "Some words of a para-", "graph."]), *column(["x = 1"], font="F2", top=600)]
    outputs = [{"text": ["d"]}, {"data": {"text/plain": "e"}}]
    cells = [
        {"cell_type": "markdown", "source": _SEEDS["pages"]["myst"]},
        {"cell_type": "code", "source": "c", "outputs": outputs},
    ]
    binary = {
        "@epub": epub({"a.xhtml": _SEEDS["pages"]["html"], "b.xhtml": "<h2 id='c'>B</h2>"}, navigation),
        "@pdf": pdf([lines, lines], [(0, "A title", 0, 720), (1, "B", 1, 720)]),
        "@notebook": json.dumps(
            {"cells": cells, "metadata": {"language_info": {"name": "f"}}}, indent=1
        ).encode(),
    }
    found: dict[str, dict[str, str]] = dict(_SEEDS["books"])
    for place in ("book/small_books.toml", "sites/generators.toml"):
        data = tomllib.loads((ROOT / "tests" / place).read_text("utf-8"))
        found |= {f"{name} of the tests": book["files"] for name, book in data.items() if "files" in book}
    return {
        name: {file: binary.get(text) or _filled(text).encode() for file, text in files.items()}
        for name, files in found.items()
    }


def _filled(text: str) -> str:
    for name, page in _SEEDS["pages"].items():
        text = text.replace(f"@{name}", page)
    return text.replace("@URL", "https://x.org").replace("@HEADINGS", "\n## A\n").replace("@INCLUDED", "B.\n")


def mutate(text: str, chance: random.Random, largest: int = 1 << 16) -> str:
    """Cut, repeat and insert at random places."""
    for _ in range(chance.randint(1, 6)):
        start, end = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
        end = min(end, start + chance.choice((1, 5, 40, 400, len(text))))
        kind = chance.random()
        if kind < _LONG and largest == _LARGEST:
            piece = "".join(chance.choices([*_PIECES, *_LONG_PIECES], k=chance.choice((1, 1, 2, 3))))
            new = piece * (chance.choice((10_000, 100_000, largest)) // len(piece))
        elif kind < 0.5:
            new = chance.choice(_PIECES) * chance.choice((0, 1, 1, 1, 2, 50))
        elif kind < 0.7:
            page = chance.choice([*_SEEDS["pages"].values()])
            place = chance.randrange(len(page))
            new = page[place : place + chance.choice((10, 60, 300))]
        else:
            new = text[start:end] * chance.choice((0, 2, 2, 20))
        text = text[:start] + new[:largest] + text[end if chance.random() < 0.5 else start :]
    return text[:largest]


def _mutated_bytes(data: bytes, chance: random.Random) -> bytes:
    """Mutate a file: text, the inner files of an archive as text, or single bytes."""
    if data[:2] == b"PK" and chance.random() < 0.8:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        name = chance.choice([*files])
        files[name] = mutate(files[name].decode(), chance, _LARGEST).encode("utf-8", "replace")
        buffer = BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return buffer.getvalue()
    if data[:2] not in (b"PK", b"%P") and chance.random() < 0.95:
        return mutate(data.decode(), chance, _LARGEST).encode("utf-8", "replace")
    changed = bytearray(data)
    for _ in range(chance.randint(1, 12)):
        start = chance.randrange(len(changed) + 1)
        if chance.random() < 0.6:
            changed[start : start + 1] = bytes([chance.randrange(256)])
        else:
            end = start + chance.randrange(64)
            changed[start : end * chance.randrange(2)] = changed[start:end] * chance.choice((0, 1, 2, 9))
    return bytes(changed)


def mutated_book(seed: int, number: int) -> tuple[str, dict[str, bytes], int]:
    """Return the book of a case: its name, its files, and how many of them are mutated."""
    chance = random.Random(f"{seed} {number}")
    name = [*books()][number % len(books())]
    files = books()[name]
    chosen = [file for file in files if chance.random() < (0.4 if _CONFIG.search(file) else 0.5)]
    chosen = chosen[:3] or [chance.choice([*files])]
    return name, files | {file: _mutated_bytes(files[file], chance) for file in chosen}, len(chosen)


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write the files of a book."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def _read_book(folder: Path, case: Case) -> None:
    """Read and chunk a book as `recto index` does, with a tokenizer that costs nothing."""
    began = process_time()
    try:
        book = tree.open_book(folder)
        pages, seen = iter(book.pages()), list[str]()
        while True:
            page = next(pages, None)
            if page is None:
                break
            read = _READER.read(PageJob(page, "", unchanged=False))
            seen.append(page.path)
            if read.failure and not re.search(r"\((ValueError|JSONDecodeError):", read.failure):
                case.findings.append(f"{page.path}: {read.failure}")
            case.refused += [read.failure] * bool(read.failure)
            if (seconds := process_time() - began) > case.seconds:
                case.seconds, case.slowest = seconds, page.path
            began = process_time()
    except (RectoError, ValueError) as error:
        if not isinstance(error, RectoError):
            raise
        case.refused.append(error.message)
        case.seconds = max(case.seconds, process_time() - began)
        return
    case.pages = len(seen)
    case.findings += [f"vanished: {name}" for name in _vanished(book, seen)]
    case.refused += [failure.reason for failure in book.failed]
    case.findings += [f"{failure}" for failure in book.failed if "Error: " in failure.reason]


def _vanished(book: Any, seen: list[str]) -> Iterator[str]:
    """Yield the files that are neither pages nor reported."""
    if not isinstance(book, tree.BookTree):
        return
    left_out = sum(int(count) for note in book.notes for count in re.findall(r"^Left out: (\d+) ", note))
    names = [directory.prefix + name for directory, name in book._files]
    refused = {failure.path.rstrip("/") for failure in book.failed}
    missing = [
        name
        for name in names
        if not any(path == name or path.startswith(f"{name}/") for path in seen) and name not in refused
    ]
    yield from missing[: max(len(missing) - left_out, 0)]


def run_case(seed: int, number: int) -> Case:
    """Read the book of a case in a child process."""
    name, files, count = mutated_book(seed, number)
    case = Case(number, name, count)
    with tempfile.TemporaryDirectory() as place:
        folder, result = write(Path(place) / "book", files), Path(place) / "result.json"
        child = os.fork()
        if not child:
            _in_child(folder, case, result)
        _, status, usage = os.wait4(child, 0)
        if result.exists():
            case = Case(**json.loads(result.read_text("utf-8")))
        else:
            case.findings.append(f"the process ended: signal {status & 127}")
        case.megabytes = usage.ru_maxrss >> 10
    if case.seconds > SLOW:
        case.findings.append(f"slow: {case.slowest or 'finding the pages'} takes {case.seconds:.2f} s")
    if case.megabytes > MEMORY:
        case.findings.append(f"memory: {case.megabytes} MB")
    return case


def _in_child(folder: Path, case: Case, result: Path) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (3 * _PATIENCE, 3 * _PATIENCE))
    signal.alarm(20 * _PATIENCE)  # what waits uses no CPU time
    vars(tree)["PAGE_SECONDS"] = _PATIENCE
    pdf.split_pdf = pdf.split_in_process  # a process for each file takes too long
    try:
        _read_book(folder, case)
    except BaseException as error:  # noqa: BLE001 - this is what is searched for
        last = traceback.extract_tb(error.__traceback__)[-1]
        case.findings.append(
            f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"[:300]
        )
    result.write_text(json.dumps(asdict(case)), "utf-8")
    os._exit(0)


def run(count: int, seed: int, jobs: int = 1, first: int = 0, seconds: float = 1e9) -> dict[str, Any]:
    """Run cases until so many files were mutated; print the findings."""
    end, done, cases = time.monotonic() + seconds, 0, 0
    figures, kinds, slowest, megabytes = Counter[str](), Counter[str](), Case(0, "", 0), 0
    for files in books().values():  # what a child imports, each child would import
        with tempfile.TemporaryDirectory() as place:
            _read_book(write(Path(place), files), Case(0, "", 0))
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=500) as pool:
        numbers = range(first, first + count)
        for case in (
            pool.imap_unordered(partial(run_case, seed), numbers, 4)
            if jobs > 1
            else map(partial(run_case, seed), numbers)
        ):
            done, cases = done + case.files, cases + 1
            figures.update(pages=case.pages, refused=len(case.refused))
            for finding in case.findings:
                kinds[
                    finding.partition(":")[0] if finding.startswith(("slow", "memory", "van")) else "errors"
                ] += 1
                notify(f"case {case.number} of seed {seed} ({case.book}): {finding}")
            slowest = max(slowest, case, key=lambda case: case.seconds)
            megabytes = max(megabytes, case.megabytes)
            if done >= count or time.monotonic() > end:
                break
    return {
        "files": done,
        "cases": f"{cases}, of {len(books())} books; the next is {first + cases}",
        **figures,
        "unexpected errors": sum(kinds.values()) - kinds["slow"] - kinds["vanished"] - kinds["memory"],
        f"pages slower than {SLOW:g} s": kinds["slow"],
        "pages that vanished": kinds["vanished"],
        f"books with more than {MEMORY} MB": kinds["memory"],
        "slowest": f"{slowest.seconds:.2f} s ({slowest.book}: {slowest.slowest})",
        "megabytes": megabytes,
    }


def main() -> None:
    """Run as many cases as asked, or write the book of one."""
    parser = new_parser(__doc__, "bench.fuzz")
    parser.add_argument("--count", type=int, default=20_000, help="mutated files (default 20000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the mutations (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--first", type=int, default=0, help="first case (default 0)")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many seconds")
    parser.add_argument("--case", type=int, help="write the book of this case")
    parser.add_argument("--write", type=Path, default=Path("case"), help="directory for it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.case is not None:
        write(options.write, mutated_book(options.seed, options.case)[1])
        return
    figures = run(options.count, options.seed, options.jobs, options.first, options.seconds)
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()

"""Read and send hostile input: `python -m bench.hostile`.

`inputs` reads hostile pages and configurations of the largest permitted size, each in its own process, and
prints the CPU time and the peak memory of each. `requests` sends mutated requests to a service, and prints
how many caused an unexpected error. `python -m bench.fuzz` reads mutated books.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

from bench.attack import exchange_all
from bench.common import index_sample, new_parser, print_figures, run_module, run_server
from bench.fuzz import mutate
from recto.book.chunking import ChunkSize, chunk_page
from recto.book.parsing import read
from recto.book.sources.tree import open_book
from recto.errors import RectoError

PAGE = 2 << 20
LINES = 15_000
_DOCS = "docs"
CONFIG = (1 << 19) - 64
_SITE = "module.exports = {url: 'https://x.org', baseUrl: '/', presets: [['classic', {docs: {}}]]}"
_MAX_SECONDS, _MAX_MEGABYTES = 2.0, 300
_PATIENCE = 60  # seconds


def _filled(unit: str, before: str = "", size: int = PAGE, lines: int = LINES) -> str:
    count = (size - len(before)) // len(unit)
    if "\n" in unit:
        count = min(count, lines // unit.count("\n"))
    return before + unit * count


PAGES = {
    "quotes": _filled('\\"', 'export const a = "'),
    "comments": _filled("{/*"),
    "comment lines": _filled("{/*\n"),
    "expressions": _filled('{"\\"'),
    "tags": _filled('<A b="'),
    "tag lines": _filled('<A b={"\n'),
    "headings": _filled("## a\n"),
    "headings with links": _filled("## " + "[" * 490 + "\n"),
    "headings with emphasis": _filled("## " + "*a" * 245 + "\n"),
    "tables": _filled("|c|d|\n", "|a|b|\n|-|-|\n"),
    "wide tables": _filled("|" + "a|" * 990 + "\n|" + "-|" * 990 + "\n\n"),
    "lists": "".join(" " * (line % 80) + "- a\n" for line in range(LINES - 1)),
    "quotations": _filled("> - " * 25 + "a\n"),
    "admonitions": _filled(":::tip\n"),
    "fences": "".join("`" * (3 + line % 60) + "\n" for line in range(LINES - 1)),
    "diagrams": _filled("A" + "(" * 90 + "\n", "```mermaid\ngraph TD\n"),
    "references": "".join(f"[a{line}]: b\n" for line in range(LINES - 1)),
    "front matter": "---\n" + "a: [" * 30_000 + "\n---\n",
    "aliases": "---\na: &a [1]\n" + "".join(f"{i}: &{i} [*a, *a]\n" for i in range(2_000)) + "---\n",
    "lines": "a\n" * (PAGE // 2),
    "a line": "a" * PAGE,
    "words": _filled("word "),
}
CONFIGS: dict[str, dict[str, str]] = {
    "mkdocs.yml: depth": {"mkdocs.yml": "nav: " + "[" * CONFIG},
    "mkdocs.yml: values": {"mkdocs.yml": "nav: [" + "a," * (CONFIG // 2) + "]"},
    "mkdocs.yml: aliases": {
        "mkdocs.yml": "a0: &a0 [x]\n"
        + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    },
    "mkdocs.yml: globs": {"mkdocs.yml": "exclude_docs: |\n" + ("  " + "*a" * 500 + "b\n") * 900},
    "docusaurus.config.js: quotes": {"docusaurus.config.js": '"' * CONFIG},
    "docusaurus.config.js: brackets": {"docusaurus.config.js": "[" * CONFIG},
    "docusaurus.config.js: values": {
        "docusaurus.config.js": "module.exports = [" + "1," * (CONFIG // 2) + "]"
    },
    "docusaurus.config.js: globs": {
        "docusaurus.config.js": _SITE.replace("docs: {}", f"docs: {{exclude: ['{'*a' * 900}b']}}")
    },
    "recto.toml: values": {"recto.toml": "a = [" + "1," * (CONFIG // 2) + "]"},
    **{
        f"page.{suffix}: {name}": {f"{_DOCS}/page.{suffix}": text}
        for suffix, pages in {
            "qmd": {
                "backticks": "".join("`" * (1 + n % 2_000) + "a" for n in range(2_000)),
                "roles": _filled("{a}`b "),
                "names": _filled(":a.", ".:a"),
                "divs": _filled("::: {.a}\n"),
                "fences": _filled("```{a}\n```\n"),
                "spans": _filled("[a]{.b "),
                "shortcodes": _filled("{{< a "),
                "references": _filled("@fig-a-"),
                "headings": "# " + " #" * (PAGE // 2 - 8),
            },
            "rst": {
                "lists": "".join("  " * level + "- a\n\n" for level in range(500)),
                "quotations": "".join("  " * level + "a\n\n" for level in range(500)),
                "sections": "".join(f"a\n{mark * 3}\n\n" for mark in "=-~^'#*+:.,_" * 900),
                "roles": ":a:`b` " * 2_800,
                "substitutions": "".join(f".. |{n}| replace:: |{n + 1}||{n + 1}|\n" for n in range(900))
                + "\n|0|\n",
                "tables": "=== ===\n" + "a   b\n" * 9_000 + "=== ===\n",
                "directives": ".. a:: b\n\n   c\n\n" * 4_000,
                "a line": "a" * (1 << 20),
            },
            "adoc": {
                "marks": _filled("*a "),
                "macros": _filled("xref:a["),
                "addresses": _filled("http://"),
                "attributes": "".join(f":a{n}: {{a{n - 1}}}{{a{n - 1}}}x\n" for n in range(9_000))
                + "{a8999}" * 900,
                "blocks": "".join("=" * (4 + n) + "\n" for n in range(1_000)),
                "lists": "".join("*" * (1 + n) + " a\n" for n in range(1_200)),
                "tables": "|===\n" + _filled("999999*|a "),
                "headings": _filled("== a\nb\n\n"),
            },
            "ipynb": {
                "depth": "[" * (8 << 20),
                "cells": json.dumps({"cells": [{"cell_type": "code", "source": "a"}] * 100_000}),
                "lines": json.dumps({"cells": [{"cell_type": "markdown", "source": "a\n" * 1_000_000}]}),
                "outputs": json.dumps(
                    {"cells": [{"cell_type": "code", "source": "a", "outputs": [{"text": "b" * 9_000_000}]}]}
                ),
            },
        }.items()
        for name, text in pages.items()
    },
    "SUMMARY.md: parts that are missing": {
        "book.toml": "[book]\n",
        "src/SUMMARY.md": "- [A](a.md)\n",
        "src/a.md": _filled("{{#include x.rs:q}}\n"),
        "src/x.rs": "x = 1\n" * 170_000,
    },
    "conf.py: objects that are missing": {
        "conf.py": "extensions = ['myst_parser']\n",
        "index.md": _filled("```{literalinclude} x.py\n:pyobject: A.b\n```\n"),
        "x.py": "class A:\n" + "  a\n" * 250_000,
    },
    "conf.py: substitutions": {
        "conf.py": f"extensions = ['myst_parser']\nmyst_substitutions = {{'a': '{'b' * (CONFIG - 99)}'}}\n",
        "index.md": _filled("{{a}} "),
    },
    "config.js: rewrites": {
        ".vitepress/config.js": "export default {rewrites: {"
        + ", ".join(f"'{n}/:a/:b*': ':b*'" for n in range(20_000))
        + "}}",
    },
    "versions.json: depth": {"docusaurus.config.js": _SITE, "versions.json": "[" * CONFIG},
}


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write a small book with some files."""
    for name, text in {
        f"{_DOCS}/a.md": "# A\n\nText.\n",
        f"{_DOCS}/{'a' * 200}.md": "# B\n",
        **files,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def read_book(folder: Path) -> None:
    """Read and chunk a book as `recto index` does, with a tokenizer that costs nothing."""
    book = open_book(folder)
    for page in book.pages():
        chunk_page(page, read(page), "b", lambda text: len(text) // 4, 512, ChunkSize())


def _measure(name: str) -> None:
    """Read one input, and print the CPU time and the peak memory."""
    with tempfile.TemporaryDirectory() as place:
        files = {f"{_DOCS}/page.mdx": PAGES[name]} if name in PAGES else CONFIGS[name]
        files = {**files, "docusaurus.config.js": _SITE} if name in PAGES else files
        folder = write(Path(place), files)
        began = process_time()
        try:
            read_book(folder)
            outcome = "read"
        except (RectoError, ValueError):  # a reader raises ValueError for a page that it cannot read
            outcome = "refused"
        seconds = process_time() - began
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"seconds": round(seconds, 2), "megabytes": megabytes, "outcome": outcome}))


def inputs(names: list[str]) -> dict[str, Any]:
    """Measure every input in its own process."""
    figures: dict[str, Any] = {}
    for name in names or [*PAGES, *CONFIGS]:
        try:
            found = run_module("bench.hostile", "--measure", name, timeout=_PATIENCE)
        except subprocess.SubprocessError as error:
            figures[name] = f"**{type(error).__name__}**"
            continue
        fine = found["seconds"] <= _MAX_SECONDS and found["megabytes"] <= _MAX_MEGABYTES
        mark = "" if fine else " **over the limit**"
        figures[name] = f"{found['seconds']} s, {found['megabytes']} MB, {found['outcome']}{mark}"
    return figures


_BODIES: tuple[tuple[str, dict[str, object]], ...] = (
    ("/v1/search", {"query": "What is ROS 2?", "top_k": 3, "module": ["ros2"], "mode": "hybrid"}),
    ("/v1/related", {"selection": "A node is a process.", "question": None, "top_k": 2}),
    ("/v1/batch", {"queries": ["a", "b"], "top_k": 1, "min_score": 0.1}),
    ("/v1/context", {"query": "What is a node?", "max_tokens": 500, "min_score": 0.1, "module": ["ros2"]}),
    ("/retrieve", {"query": "robots", "limit": 2}),
)
_PATHS = (
    "/v1/pages/",
    "/v1/pages?module=",
    "/v1/modules?collection=",
    "/v1/health?collection=",
    "/static/",
    "/",
)


def _request(chance: random.Random) -> bytes:
    text = mutate("local://docs/docs/intro", chance)[:500].encode("utf-8", "surrogatepass")
    if chance.random() < 0.3:
        target = chance.choice(_PATHS).encode() + b"".join(b"%%%02x" % byte for byte in text)
        return b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    path, body = chance.choice(_BODIES)
    data = mutate(json.dumps(body), chance).encode("utf-8", "surrogatepass")
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data


def requests(count: int, seed: int) -> dict[str, Any]:
    """Send mutated requests over one connection after the other; count the statuses."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        index_sample(home)
        with run_server(home) as port:
            statuses = exchange_all(port, (_request(chance) for _ in range(count)))
    failed = sum(number for status, number in statuses.items() if status >= 500)
    return {
        "requests": sum(statuses.values()),
        **{str(k): v for k, v in sorted(statuses.items())},
        "5xx": failed,
    }


def main() -> None:
    """Run the chosen measurement."""
    parser = new_parser(__doc__, "bench.hostile")
    parser.add_argument("what", nargs="?", choices=("inputs", "requests"), default="inputs")
    parser.add_argument("--count", type=int, default=10_000, help="requests (default 10000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the mutations (default 1)")
    parser.add_argument("--only", action="append", default=[], help="measure only this input")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        _measure(options.measure)
    elif options.what == "inputs":
        print_figures(inputs(options.only), as_json=options.json)
    else:
        print_figures(requests(options.count, options.seed), as_json=options.json)


if __name__ == "__main__":
    main()

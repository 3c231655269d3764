"""Search a book with Pagefind: write its chunks as HTML pages, index them, and ask questions in Node.

The pages have the text, the titles and the headings that Recto reads, so that both search the same content.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from recto.search.markdown import plain_text
from recto.types.search import Chunk

VERSION = "1.6.0"
_SCRIPTS = ("pagefind.js", "pagefind-ui.js", "pagefind-ui.css")
_RUN = """
import { readFile } from "node:fs/promises";
let loaded = [];
globalThis.fetch = async (file) => {
  const body = await readFile(new URL(String(file).split("?")[0], "file:///"));
  loaded.push(body.length);
  return new Response(body);
};
// What it reads of a page: the address, and the language.
globalThis.window = { location: { origin: "file://" } };
globalThis.document = { querySelector: () => ({ getAttribute: () => "en" }), currentScript: null };
const bundle = new URL("site/pagefind/", import.meta.url);
const open = async (name) => {
  const pagefind = await import(new URL(`pagefind.js?${name}`, bundle));
  await pagefind.options({ basePath: bundle.href });
  return pagefind;
};
const read = (found, count) => Promise.all(found.results.slice(0, count).map((result) => result.data()));
const weight = ({ weighted_locations: all }) => all.reduce((sum, one) => sum + one.balanced_score, 0);
const warm = await open("warm");
const answers = [];
for (const [number, query] of JSON.parse(await readFile("queries.json")).entries()) {
  loaded = [];
  const isCold = number % 20 === 0; // a new instance takes seconds
  if (isCold) await read(await (await open(number)).search(query), 6);
  const bytes = isCold ? loaded.reduce((total, size) => total + size, 0) : null;
  const pages = await read(await warm.search(query), 30);
  const began = performance.now();
  await read(await warm.search(query), 6);
  const ms = performance.now() - began;
  const hits = pages.flatMap(({ raw_url: page, sub_results: parts }) =>
    parts.sort((one, other) => weight(other) - weight(one)).map(({ anchor }) => [page, anchor?.id ?? ""]));
  answers.push({ bytes, ms, hits });
}
console.log(JSON.stringify(answers));
"""


class PagefindAnswer(NamedTuple):
    """The first chunks of the sections that were found, and what a first answer loaded, if measured."""

    chunks: list[Chunk]
    bytes: int | None
    ms: float


def install(directory: Path) -> Path:
    """Install Pagefind with npm, once; return its program."""
    program = directory / "node_modules" / ".bin" / "pagefind"
    if not program.exists():
        directory.mkdir(parents=True, exist_ok=True)
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(directory),
            f"pagefind@{VERSION}",
        ]
        subprocess.run(command, check=True, capture_output=True)
    return program


def search(
    program: Path, chunks: Sequence[Chunk], questions: Sequence[str], work: Path
) -> tuple[list[PagefindAnswer], int]:
    """Return the answers to questions about a book, and the bytes of the index."""
    sections = _write_pages(chunks, work / "site")
    subprocess.run([program, "--site", "site"], check=True, cwd=work, capture_output=True)
    (work / "package.json").write_text('{"type": "module"}')
    (work / "run.js").write_text(_RUN, "utf-8")
    (work / "queries.json").write_text(json.dumps(list(questions)), "utf-8")
    done = subprocess.run(["node", "run.js"], check=True, cwd=work, capture_output=True)
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    index = [
        path for folder in ("index", "fragment") for path in (work / "site" / "pagefind" / folder).iterdir()
    ]
    return [
        PagefindAnswer(
            [sections[page, anchor] for page, anchor in one["hits"] if (page, anchor) in sections],
            one["bytes"],
            one["ms"],
        )
        for one in answers
    ], sum(path.stat().st_size for path in index)


def scripts(work: Path) -> list[bytes]:
    """Return the scripts and the style that a page loads, apart from WebAssembly, which counts as data."""
    return [(work / "site" / "pagefind" / name).read_bytes() for name in _SCRIPTS]


def _write_pages(chunks: Sequence[Chunk], site: Path) -> dict[tuple[str, str], Chunk]:
    """Write an HTML file for each page; return the first chunk of each section by address and anchor."""
    first: dict[tuple[str, str], Chunk] = {}
    ordered = sorted(chunks, key=lambda one: (one.page_url, one.chunk_index))
    for number, (_, page) in enumerate(groupby(ordered, key=lambda one: one.page_url)):
        address, parts, before = f"/{number}/", [], None
        for one in page:
            if before is None:
                parts.append(f"<h1>{escape(one.title)}</h1>")
                first[address, ""] = one
            if one.headings[1:] and (before is None or one.headings != before.headings):
                level = min(len(one.headings), 6)
                parts.append(f'<h{level} id="{escape(one.anchor)}">{escape(one.headings[-1])}</h{level}>')
                first.setdefault((address, one.anchor), one)
            parts.append(f"<p>{escape(plain_text(one.text))}</p>")
            before = one
        file = site / str(number) / "index.html"
        file.parent.mkdir(parents=True)
        body = f"<main data-pagefind-body>{''.join(parts)}</main>"
        file.write_text(f'<!doctype html><html lang="en"><body>{body}</body></html>', "utf-8")
    return first

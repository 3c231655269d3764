"""Generated and hostile pages are read completely, in bounded time."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from recto.book.chunking import ChunkSize, chunk_page
from recto.book.parsing.markdown import parse
from recto.types.book import Page
from tests.running import ROOT

SIZE = 1 << 18
TIMEOUT = 600  # seconds, for pages that take about ten together

PAGES = {
    "lists on a line": "- " * 10_000 + "end",
    "lists below lists": "".join("  " * depth + "- x\n" for depth in range(1_000)) + "end",
    "quotations below quotations": "".join("> " * depth + "x\n" for depth in range(1_000)) + "\nend",
    "lists in quotations": ("> - " * 500 + "end\n") * 100,
    "admonitions in admonitions": "".join(":" * (1_003 - depth) + "tip\n" for depth in range(1_000)) + "end",
    "admonitions without end": ":::tip\n" * 20_000 + "end",
    "indented admonitions": "".join(" " * 4 * depth + "!!! tip\n" for depth in range(700)) + "\nend",
    "lines of brackets": "[\n" * 40_000 + "end",
    "tags with braces": "<a {>" * (SIZE // 5) + " end",
    "lines of braces": "{a\n" * 40_000 + "\nend",
    "comments that open": "{/*\n" * 40_000 + "\nend",
    "a paragraph": "word word. Word two! " * (SIZE // 21) + "end",
    "a word": "x" * SIZE + " end",
    "a table": "|a|b|\n|---|---|\n" + "|cell one|cell two|\n" * (SIZE // 20) + "\nend",
    "a wide table": "|" + "a|" * 50_000 + "\n|" + "-|" * 50_000 + "\n\nend",
    "code without end": "```\n" + "x = call(y)\n\n" * (SIZE // 13) + "end",
    "a heading": "# " + "*a [b](" * (SIZE // 7) + " end",
    "many backticks": "`a``b```c" * (SIZE // 9) + "&amp; end",
    "math that opens": "$$a\n\n" * 20_000 + "end",
    "exports that open": "export const a = {\n\n" * 5_000 + "end",
    "exports of a word": "export const a = [" + "x" * SIZE + "]\n\nend",
    "exports of strings": "export const a = [\n" + '"one two three",\n' * (SIZE // 17) + "]\n\nend",
    "templates that open": "{{< a " * (SIZE // 6) + " end",
    "a diagram of brackets": "```mermaid\ngraph TD\n" + ("A" + "(" * 900 + "\n") * 900 + "```\n\nend",
    "too many lines": "- \n" * 300_000 + "end",
}


def words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text)) + 2


def read_to_the_end(name: str) -> None:
    """Read a page as Markdown and as MDX; its last word must be in its last chunk, and no chunk too long."""
    for mdx in (False, True):
        page = Page("p.md", "u", "T", "m", ("m",), PAGES[name], "r", "mdx" if mdx else "markdown")
        inputs = chunk_page(page, parse(page.text, title="T", mdx=mdx), "b", words, 512, ChunkSize())
        assert "end" in inputs[-1].chunk.text or name.startswith("exports")
        assert max(words(input_.embedded) for input_ in inputs) <= 512


SERIES = [pytest.param(n, marks=pytest.mark.long if n else pytest.mark.slow) for n in range(8)]


@pytest.mark.parametrize("first", SERIES)
def test_generated_pages_are_read_completely_and_in_bounded_time(first: int) -> None:
    """Read in a separate process that can be stopped; the last printed name is the page that hangs."""
    code = f"from tests.book import test_bounds as t\nfor name in list(t.PAGES)[{first}::8]: print(name, flush=True); t.read_to_the_end(name)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=TIMEOUT)

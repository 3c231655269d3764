"""Read and send hostile input: `python -m bench.hostile`.

`inputs` reads hostile pages and configurations of the largest permitted size, each in its own process, and
prints the CPU time and the peak memory of each. `formats` reads mutated files of all formats, `sites` mutated
sites of all generators, and `requests` sends mutated requests to a service; they print how many caused an
unexpected error.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from time import process_time
from typing import Any

from bench.attack import exchange_all
from bench.common import index_sample, new_parser, print_figures, run_module, run_server
from recto.book.chunking import ChunkSize, chunk_page
from recto.book.parsing import read
from recto.book.sources.tree import open_book
from recto.errors import RectoError
from recto.types.book import Page

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


_PIECES = (
    "[", "{", "}", "*", "&a ", "*a", "\xff", "\0", "---\n", '"', "'", "`", "0x", "9" * 60, "\n", "<", ">",
    "{/*", "<!--", "|", ":::", "```", "$$", "export ", "import a from './p.mdx'\n", "../", "\\",
    "\u202e", "\ud800",
)  # fmt: skip


def mutate(text: str, chance: random.Random) -> str:
    """Cut, repeat and insert at random places."""
    for _ in range(chance.randint(1, 5)):
        start, end = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
        new = chance.choice(_PIECES) * chance.choice((0, 1, 1, 2, 50))
        text = text[:start] + new + text[end if chance.random() < 0.5 else start :]
    return text[: 1 << 16]


_RST = (
    ".. _a:\n\nTitle\n=====\n\n:ref:`b <c>` |d| ``e`` [1]_\n\n.. |d| replace:: x\n.. note:: f\n\n   g\n\n"
    "1. h\n\n   - i\n\nj\n  k\n\n==== ====\nA    B\n==== ====\n1    2\n==== ====\n\n.. code:: python\n\n"
    "   l\n\n.. list-table::\n\n   * - m\n     - n\n\n.. [1] o\n\nSub\n---\n\n.. function:: p(q)\n\n   :r: s"
    "\n\n::\n\n  t\n"
)
_MYST = (
    "---\na: b\n---\n(c)=\n# D\n\n{ref}`e <f>` {math}`x`\n\n:::{note} g\n:name: h\ni\n:::\n\n````{tab-set}\n"
    "```{code-block} python\n:caption: j\n\nk\n```\n````\n\n```{list-table} l\n* - m\n  - n\n```\n% o\n"
)
_QUARTO = (
    "# A {#sec-a}\n\n::: {.callout-tip title='b'}\n## c\n@fig-d {{< kbd e >}}\n:::\n\n"
    "```{python}\n#| label: f\ng\n```\n![h](i){#fig-j}\n\n$$\nk\n$$ {#eq-l}\n"
)
_ASCIIDOC = (
    "[[a]]\n= B\nC D\n:e: f\n\n{e} <<g>> *h* `i` +j+ xref:k.adoc[l]\n\n.M\n[source#n,python]\n----\no <1>\n"
    '----\n<1> p\n\n== Q [[r]]\n\n* s\n+\n--\nt\n--\n** u\n\nv:: w\n\nNOTE: x\n\n[cols="1,2a"]\n|===\n|A 2+|B'
    "\n\n.2+|C\n|* D\n|===\n\n[quote,E]\n____\nF footnote:[G]\n____\n\nifdef::e[]\n"
    "include::h.adoc[tag=i,leveloffset=+1]\nendif::[]\n"
)
_NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "markdown", "source": ["# A\n", "{ref}`b`"]},
            {"cell_type": "code", "source": "c", "outputs": [{"text": ["d"]}, {"data": {"text/plain": "e"}}]},
        ],
        "metadata": {"language_info": {"name": "f"}},
    },
    indent=1,
)


def _binary_seeds() -> dict[str, bytes]:
    """Return a small EPUB and a small PDF."""
    from tests.book.parsing.builders import column, epub, pdf

    navigation = '<li><a href="a.xhtml">A</a><ol><li><a href="b.xhtml#c">B</a></li></ol></li>'
    lines = [*column(["A title", "Some words of a para-", "graph."]), *column(["x = 1"], font="F2", top=600)]
    return {
        "epub": epub({"a.xhtml": "<h1>A</h1><p>b<br/></p>", "b.xhtml": "<h2 id='c'>B</h2>"}, navigation),
        "pdf": pdf([lines, lines], [(0, "A title", 0, 720), (1, "B", 1, 720)]),
    }


def _mutated_bytes(data: bytes, chance: random.Random) -> bytes:
    """Change, cut and repeat bytes; the inner files of an archive are mutated as text."""
    if data[:2] == b"PK" and chance.random() < 0.8:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        name = chance.choice(list(files))
        files[name] = mutate(files[name].decode(), chance).encode("utf-8", "surrogatepass")
        buffer = BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return buffer.getvalue()
    changed = bytearray(data)
    for _ in range(chance.randint(1, 12)):
        start = chance.randrange(len(changed) + 1)
        if chance.random() < 0.6:
            changed[start : start + 1] = bytes([chance.randrange(256)])
        else:
            end = start + chance.randrange(64)
            changed[start : end * chance.randrange(2)] = changed[start:end] * chance.choice((0, 1, 2, 9))
    return bytes(changed)


def _read_part(text: str, format: str) -> None:
    page = Page("a", "local://a", "A", "intro", ("intro",), text, "", format=format)
    chunk_page(page, read(page), "b", lambda text: len(text) // 4, 512, ChunkSize())


def _read_file(data: bytes, format: str) -> None:
    from recto.book.parsing.epub import split_epub
    from recto.book.parsing.pdf import split_in_process

    for part in (split_epub if format == "epub" else split_in_process)(data).parts:
        _read_part(part.text, format)


def formats(count: int, seed: int) -> dict[str, Any]:
    """Read mutated files of each format; count the outcomes, and the seconds of the slowest file."""
    chance, outcomes = random.Random(seed), Counter[str]()
    texts = {"rst": _RST, "myst": _MYST, "qmd": _QUARTO, "d2l": _MYST + ":label:`a`\n", "ipynb": _NOTEBOOK}
    texts["asciidoc"] = _ASCIIDOC
    files = _binary_seeds()
    slowest: tuple[float, str] = (0.0, "")
    for number in range(count):
        name = [*texts, *files][number % (len(texts) + len(files))]
        began = process_time()
        if name in texts:
            text = mutate(texts[name], chance).encode("utf-8", "replace").decode()
            if name == "ipynb" and chance.random() < 0.7:  # most mutations of JSON are not JSON
                text = json.dumps({"cells": [{"cell_type": "markdown", "source": mutate(_MYST, chance)}]})
            outcome = _outcome(partial(_read_part, text, name), text)
        else:
            data = _mutated_bytes(files[name], chance)
            outcome = _outcome(partial(_read_file, data, name), data.hex())
        slowest = max(slowest, (process_time() - began, name))
        outcomes[f"{name}: {outcome}"] += 1
    return {"files": count, **outcomes, **_limits(slowest)}


def _limits(slowest: tuple[float, str]) -> dict[str, Any]:
    """Return the slowest input and the peak memory for the table."""
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {"slowest": f"{slowest[0]:.2f} s ({slowest[1]})", "megabytes": megabytes}


_SMALL_SITES: dict[str, dict[str, str]] = {
    "small docusaurus": {
        "docusaurus.config.js": _SITE,
        f"{_DOCS}/p.mdx": "---\ntitle: A\nid: b\n---\n# A {#x}\n<B c={d}>e</B>\n\n:::tip\n- a\n\n"
        "|a|\n|-|\n|c|",
        f"{_DOCS}/_category_.json": '{"label": "A", "position": 1}',
    },
    "small mkdocs": {
        "mkdocs.yml": "site_url: https://x.org\nnav:\n  - Home: index.md\n  - B: [a.md]\n"
        "exclude_docs: '*.tmp'\n",
    },
    "plain": {
        "recto.toml": '[site]\nurl = "https://x.org"\nexclude = ["a/**"]\n[modules]\na = ["docs/a"]\n',
        f"{_DOCS}/page.html": "<html><body><main><h1 id=a>A</h1><p>b<table><tr><td>c</table></main>",
    },
    "mdbook": {
        "book.toml": '[book]\ntitle = "A"\nsrc = "src"\n[output.html]\nsite-url = "/b/"\n',
        "src/SUMMARY.md": "# A\n\n[B](b.md)\n\n# C\n\n- [D](d.md)\n  - [E](<e f.md>)\n",
        "src/b.md": "# B\n{{#include ../x.rs:2:3}}\n{{#rustdoc_include x.rs:a}}\n{{#title C}}\n",
        "src/d.md": "# D\n\n```rust\n{{#playground ../x.rs}}\n```\n",
        "x.rs": "// ANCHOR: a\nlet b;\n// ANCHOR_END: a\n",
    },
    "quarto": {
        "_quarto.yml": "project:\n  type: website\n  render: ['*.qmd', '!x.qmd']\nwebsite:\n  title: A\n"
        "  site-url: https://a.org\n  sidebar:\n    contents:\n    - section: B\n      contents: [a.qmd]\n",
        "a.qmd": _QUARTO + "{{< include _b.qmd >}}\n",
        "_b.qmd": "B.\n",
    },
    "gitbook": {
        ".gitbook.yaml": "root: ./\nstructure:\n  summary: SUMMARY.md\n",
        "SUMMARY.md": "# A\n\n* [B](b.md)\n  * [C](c.md)\n",
        "b.md": '# B\n\n{% hint style="info" title="x" %}\nc\n{% endhint %}\n',
    },
    "bookdown": {
        "_bookdown.yml": "rmd_files: [index.Rmd, a.Rmd]\nrmd_subdir: true\n",
        "index.Rmd": "---\ntitle: A\nurl: https://a.org\n---\n# (PART) B {-}\n\n# C {#d .e}\n\n## F\n",
        "a.Rmd": "# G\n\n```{r, echo = FALSE}\nh\n```\n\n\\@ref(fig:i) (\\#eq:j)\n\n(ref:k) l\n\n## F {-}\n",
    },
    "jekyll": {
        "_config.yml": "title: A\npermalink: pretty\nexclude: [x]\ncollections:\n  b:\n    output: true\n"
        "defaults:\n- scope: {path: _b}\n  values: {permalink: /:path/}\n",
        "a.md": "---\ntitle: A\nnav_order: 1\n---\n# A\n{: #b .c }\n\n1. TOC\n{:toc}\n\n{% raw %}{{ d }}"
        "{% endraw %}\n{% include e.md f='g' %}\n",
        "_b/c.md": "---\nparent: A\n---\n{% highlight h %}\n{{ site.title | i }}\n{% endhighlight %}\n",
    },
    "nextra": {
        "next.config.mjs": "import nextra from 'nextra'\nexport default nextra({})({basePath: '/a'})\n",
        "content/_meta.js": "export default {index: 'A', b: {title: 'B', display: 'hidden'}}\n",
        "content/index.mdx": "# A\n\nText.\n",
        "content/b.mdx": "# B\n\nText.\n",
    },
    "d2l": {
        "config.ini": "[project]\nname = a\ntitle = A\n[build]\nresources =\n",
        "index.md": "# A\n\n```toc\n:maxdepth: 1\n\nb\nc/index\n```\n",
        "b.md": "# B\n:label:`sec_b`\n\n:numref:`sec_b`\n",
    },
    "antora": {
        "antora-playbook.yml": "site:\n  title: A\nasciidoc:\n  attributes:\n    a: b@\n"
        "urls: {html_extension_style: drop}\n",
        "c/antora.yml": "name: c\nversion: '1'\nnav: [modules/ROOT/nav.adoc]\n"
        "asciidoc: {attributes: {d: e}}\n",
        "c/modules/ROOT/nav.adoc": ".N\n* xref:a.adoc[]\n** xref:b.adoc[B]\n",
        "c/modules/ROOT/pages/a.adoc": _ASCIIDOC + "include::partial$p.adoc[tags=**;!q]\nxref:b.adoc[]\n",
        "c/modules/ROOT/pages/b.adoc": "= B\n\nText.\n",
        "c/modules/ROOT/partials/p.adoc": "// tag::q[]\nP\n// end::q[]\n",
    },
    "asciidoc": {
        "book.adoc": "= A\n:doctype: book\n\ninclude::a.adoc[]\n\ninclude::b.adoc[leveloffset=+1]\n",
        "a.adoc": _ASCIIDOC,
        "b.adoc": "= B\n\n<<g>>\n\ninclude::a.adoc[lines=1..3;5]\n",
    },
    "myst": {
        "myst.yml": "project:\n  title: A\n  toc:\n  - file: a.md\n  - title: B\n"
        "    children:\n    - file: b.md\n",
        "a.md": _MYST + "```{include} b.md\n:lines: 1-2\n```\n",
        "b.md": "# B\n\nText.\n",
    },
}
"""Sites of the generators that `tests.sites` does not build, and small sites of two that it does."""


def sites(count: int, seed: int) -> dict[str, Any]:
    """Read sites with mutated files, most of all their configurations; count the outcomes by generator."""
    from tests.sites.test_generators import BOOKS

    books = {name: book.files for name, book in BOOKS.items()} | _SMALL_SITES
    chance, outcomes, done = random.Random(seed), Counter[str](), 0
    slowest: tuple[float, str] = (0.0, "")
    while done < count:
        name = chance.choice([*books])
        mutated = {
            file: mutate(text, chance).encode("utf-8", "replace").decode()
            for file, text in books[name].items()
            if chance.random() < (0.2 if file.endswith((".md", ".mdx", ".qmd")) else 0.7)
        }
        done += len(mutated)
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), books[name] | mutated)
            began = process_time()
            outcomes[f"{name}: {_outcome(lambda: read_book(Path(folder)), mutated)}"] += 1
            slowest = max(slowest, (process_time() - began, name))
    return {"files": done, **dict(sorted(outcomes.items())), **_limits(slowest)}


def _outcome(call: Callable[[], object], content: object) -> str:
    try:
        call()
    except (RectoError, ValueError):  # a reader raises ValueError for a page that it cannot read
        return "refused"
    except Exception:  # noqa: BLE001 - this is what is searched for
        print(json.dumps(content)[:2_000], file=sys.stderr)
        traceback.print_exc()
        return "unexpected errors"
    return "read"


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


_MEASUREMENTS = {"formats": formats, "sites": sites, "requests": requests}


def main() -> None:
    """Run the chosen measurement."""
    parser = new_parser(__doc__, "bench.hostile")
    parser.add_argument("what", nargs="?", choices=("inputs", *_MEASUREMENTS), default="inputs")
    parser.add_argument("--count", type=int, default=10_000, help="files or requests (default 10000)")
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
        figures = _MEASUREMENTS[options.what](options.count, options.seed)
        print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()

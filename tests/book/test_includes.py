"""Included files: each syntax, its search paths, what is refused, and line numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recto.book.chunking import DEFAULT_SIZE, chunk_page
from recto.book.parsing import read
from recto.book.sources.tree import BookTree, open_book
from recto.types.book import Page
from tests.book.files import write

DOCUSAURUS = "export default {url: 'https://x.org', baseUrl: '/', presets: [['classic', {docs: {}}]]};"
MKDOCS = """site_name: x
markdown_extensions:
  - mdx_include
  - markdown_include_variants
  - pymdownx.snippets
plugins: [include-markdown]
"""
CODE = "".join(f"line{number} = {number}\n" for number in range(1, 8))


def mkdocs(root: Path, page: str, files: dict[str, str] | None = None, config: str = MKDOCS) -> Path:
    (root / ".git").mkdir(parents=True, exist_ok=True)
    return write(root, {"mkdocs.yml": config, "docs/guide/page.md": page, **(files or {})})


def docusaurus(root: Path, page: str, files: dict[str, str]) -> Path:
    return write(root, {"docusaurus.config.js": DOCUSAURUS, "docs/guide/page.mdx": page, **files})


def opened(root: Path, name: str = "guide/page") -> tuple[BookTree, Page]:
    source = open_book(root)
    assert isinstance(source, BookTree)
    return source, next(page for page in list(source.pages()) if page.path.startswith(name))


def text_of(root: Path, name: str = "guide/page") -> str:
    return opened(root, name)[1].text


def stored(page: Page) -> str:
    inputs = chunk_page(page, read(page), "book", lambda text: len(text.split()), 512, DEFAULT_SIZE)
    return "\n\n".join(input_.chunk.text for input_ in inputs)


def unresolved(root: Path) -> str:
    source, _ = opened(root)
    return next((note for note in source.notes if "could not be resolved" in note), "")


def check_lines(written: str, page: Page) -> None:
    """Each line of the text is the file's own line of that number, or comes from a directive there."""
    own, lines = written.split("\n"), page.text.split("\n")
    assert len(page.lines) == len(lines)
    assert list(page.lines) == sorted(page.lines)
    for line, number in zip(lines, page.lines, strict=True):
        directive = any(mark in own[number - 1] for mark in ("{!", "{*", "8<", "{%", "/>", ".md", ".py"))
        assert line == own[number - 1] or directive


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        ("{!snippets/a.md!}", "Words of a."),
        ("{!> snippets/a.md !}", "Words of a."),
        ("{!snippets/code.py[ln:2-3,5]!}", "line2 = 2\nline3 = 3\nline5 = 5\n"),
        ("{!snippets/code.py!lines=1 6-7}", "line1 = 1\nline6 = 6\nline7 = 7\n"),
        ("Before {!snippets/a.md!} after", "Before Words of a. after"),
        ("{* snippets/code.py *}", f'```python title="Python 3.8+"\n{CODE}```'),
        (
            "{* snippets/code.py ln[1:2,5] hl[2] *}",
            "\nline1 = 1\nline2 = 2\n\n# Code here omitted 👈\n\nline5 = 5\n\n# Code below omitted 👇\n```",
        ),
        ("{* snippets/code.py ln[6:7] *}", "# Code above omitted 👆\n\nline6 = 6\nline7 = 7\n```"),
        ('{* snippets/code.py ln[0] title["a b.py"] *}', f'title="Python 3.8+ a b.py"\n{CODE}```'),
        ("{* snippets/code_an_py310.py *}", '```python title="Python 3.10+"\npass\n```'),
        ('--8<-- "snippets/a.md"', "Words of a."),
        ("-8<- 'snippets/a.md'", "Words of a."),
        ('--8<-- "snippets/code.py:3:4"', "\nline3 = 3\nline4 = 4\n"),
        ('--8<-- "snippets/code.py:6"', "\nline6 = 6\nline7 = 7\n"),
        ('--8<-- "snippets/code.py::2"', "\nline1 = 1\nline2 = 2\n"),
        ('--8<-- "snippets/code.py:-2:"', "\nline6 = 6\nline7 = 7\n"),
        ('--8<-- "snippets/code.py:1:1,7:7"', "\nline1 = 1\nline7 = 7\n"),
        ('--8<-- "snippets/marked.py:body"', "\ndef f():\n    return 1\n"),
        ("--8<--\nsnippets/a.md\n\nsnippets/code.py:2:2\n; x.md\n--8<--", "\nWords of a.\n\nline2 = 2\n"),
        ('{% include "snippets/a.md" %}', "Words of a."),
        ('{% include-markdown "../../snippets/a.md" %}', "Words of a."),
        ('{%\n  include-markdown "snippets/b.md"\n start="<!-- s -->"\n end="<!-- e -->"\n%}', "\nMiddle.\n"),
        ("{% include-markdown 'snippets/b.md' start='<!-- e -->\\n' %}", "The end."),
    ],
)
def test_directive_is_replaced_by_its_file(tmp_path: Path, directive: str, expected: str) -> None:
    page = f"# Page\n\nFirst.\n\n{directive}\n\nLast.\n"
    files = {
        "snippets/a.md": "---\ntitle: not shown\n---\nWords of a.\n",
        "snippets/b.md": "The start.\n<!-- s -->\nMiddle.\n<!-- e -->\nThe end.\n",
        "snippets/code.py": CODE,
        "snippets/code_an_py310.py": "pass\n",
        "snippets/marked.py": "x = 1\n# --8<-- [start:body]\ndef f():\n    # --8<-- [start:inner]\n    return 1\n# --8<-- [end:body]\n",
    }
    source, expanded = opened(mkdocs(tmp_path, page, files))
    assert expected in expanded.text
    assert expanded.text.startswith("# Page\n\nFirst.\n\n")
    assert expanded.text.endswith("\n\nLast.\n")
    assert all(mark not in expanded.text for mark in ("{!", "{*", "8<", "{%", "not shown"))
    check_lines(page, expanded)
    assert expanded.lines[-2] == page.count("\n")
    count = 2 if directive.startswith("--8<--\n") else 1
    assert f"{count} included file{'s' * (count > 1)} resolved in 1 page." in source.notes
    assert source.info.unresolved_includes == 0


def test_include_in_a_fence_keeps_the_indentation(tmp_path: Path) -> None:
    page = '!!! note\n\n    ```python\n    {!> code.py !}\n    ```\n\n    ```python\n    --8<-- "code.py:1:2"\n    ```\n'
    expanded = opened(mkdocs(tmp_path, page, {"code.py": "def f():\n\n    return 1\n"}))[1]
    assert "    ```python\n    def f():\n\n        return 1\n    ```" in expanded.text
    assert expanded.lines[:7] == (1, 2, 3, 4, 4, 4, 5)
    assert "return 1" in stored(expanded)


def test_escaped_snippet_is_not_included(tmp_path: Path) -> None:
    page = '# Page\n\n```md\n;--8<-- "a.md"\n```\n\nText\n;--8<-- "a.md"\n'
    source, expanded = opened(mkdocs(tmp_path, page, {"a.md": "No."}))
    assert (expanded.text, source.notes) == (page, [])
    assert '```md\n--8<-- "a.md"\n```' in stored(expanded)
    assert 'Text\n--8<-- "a.md"' in stored(expanded)


def test_section_marks_are_removed(tmp_path: Path) -> None:
    page = '<!-- --8<-- [start:x] -->\nShown.\n<!-- --8<-- [end:x] -->\n\n--8<-- "marked.py"\n\nEnd.\n'
    expanded = opened(mkdocs(tmp_path, page, {"marked.py": "a\n# --8<-- [start:y]\nb\n"}))[1]
    assert expanded.text == "Shown.\n\na\nb\n\nEnd.\n"
    assert expanded.lines == (2, 4, 5, 5, 6, 7, 8)


@pytest.mark.parametrize(
    ("base", "folder"),
    [
        ("snips", "snips"),
        ("[snips, more]", "snips"),
        ("[!relative $config_dir/snips]", "snips"),
        ("[!relative $docs_dir/../snips]", "snips"),
        ("[!relative ]", "docs/guide"),
    ],
)
def test_snippets_are_searched_in_their_base_paths(tmp_path: Path, base: str, folder: str) -> None:
    config = f"markdown_extensions:\n  pymdownx.snippets:\n    base_path: {base}\n"
    files = {f"{folder}/a.txt": "Right.", "a.txt": "Wrong."}
    assert "Right." in text_of(mkdocs(tmp_path, '--8<-- "a.txt"', files, config))


def test_mdx_include_and_macros_have_their_own_base_paths(tmp_path: Path) -> None:
    config = "markdown_extensions: {mdx_include: {base_path: docs}}\nplugins: {macros: {include_dir: parts}}"
    files = {"src/a.py": "a = 1", "parts/b.md": "Part.", "b.md": "Wrong."}
    page = '{!../src/a.py!}\n\n{% include "b.md" %}\n'
    assert text_of(mkdocs(tmp_path, page, files, config)) == "a = 1\n\nPart.\n"


def test_disabled_syntaxes_in_code_are_examples(tmp_path: Path) -> None:
    page = '{! gone.md !}\n\n--8<-- "a.md"\n\n```html\n{% include "base.html" %}\n{! other.md !}\n```\n\n    {% include "x.html" %}\n'
    source, expanded = opened(mkdocs(tmp_path, page, {"a.md": "Words."}, "site_name: x\n"))
    assert "Words." in expanded.text
    assert '{% include "base.html" %}' in stored(expanded)
    assert '{% include "x.html" %}' in stored(expanded)
    assert [note for note in source.notes if "not be" in note] == [
        "1 included file could not be resolved: guide/page.md: gone.md (missing)."
    ]


def test_plain_tree_includes_files(tmp_path: Path) -> None:
    root = write(tmp_path / "book", {"a.md": '--8<-- "parts/b.txt"\n', "parts/b.txt": "Words."})
    assert next(iter(open_book(root).pages())).text == "Words.\n"


OUTSIDE = ("../outside.md", "../" * 8 + "etc/passwd", "/etc/passwd", "link.md", "linked/a.md", ".git/config")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        *((path, "outside the repository") for path in OUTSIDE),
        ("gone.md", "missing"),
        ("loop.md", "missing"),
        ("docs", "not a file"),
        ("binary.md", "binary"),
        ("latin.md", "not UTF-8"),
        ("large.md", "larger than 1 MiB"),
        ("https://example.org/a.md", "on the web"),
        ("code.py:missing", "the file has no such part"),
        ("code.py:90:99", "the file has no such part"),
        ("a" * 300 + ".md", "missing"),
    ],
)
def test_unresolved_include_is_removed_and_reported(tmp_path: Path, path: str, reason: str) -> None:
    root = tmp_path / "repository"
    page = f'# Page\n\nWords.\n\n--8<-- "{path}"\n\nMore.\n'
    mkdocs(root, page, {"code.py": CODE, ".git/config": "secret", "large.md": "x" * (1 << 20) + "y"})
    write(tmp_path, {"outside.md": "A secret.", "far/a.md": "A secret."})
    write(root, {"binary.md": b"PK\x00secret", "latin.md": "é secret".encode("latin-1")})
    for link, target in {"link.md": "../outside.md", "linked": "../far", "loop.md": "loop.md"}.items():
        os.symlink(target, root / link)
    source, expanded = opened(root)
    assert "secret" not in expanded.text
    assert stored(expanded) == "Words.\n\nMore."
    shown = path.partition(":")[0] if path.startswith("code") else path
    assert unresolved(root) == f"1 included file could not be resolved: guide/page.md: {shown} ({reason})."
    assert source.info.unresolved_includes == 1


def test_without_a_repository_files_must_be_in_the_site(tmp_path: Path) -> None:
    page = "{! ../a.md !}\n\n{! b.md !}\n"
    files = {"site/mkdocs.yml": MKDOCS, "site/docs/guide/page.md": page, "site/b.md": "In.", "a.md": "Out."}
    write(tmp_path, files)
    assert text_of(tmp_path / "site") == "{! ../a.md !}\n\nIn.\n"
    (tmp_path / ".git").mkdir()
    assert text_of(tmp_path / "site") == "Out.\n\nIn.\n"


@pytest.mark.parametrize("directive", ["{! %s !}", '--8<-- "%s"', '{%% include "%s" %%}'])
def test_include_cycles_and_depth_are_limited(tmp_path: Path, directive: str) -> None:
    files = {"a.md": f"A {0}.\n{directive % 'b.md'}\n", "b.md": f"B.\n{directive % 'a.md'}\n"}
    chain = {f"deep{n}.md": f"Deep {n}.\n{directive % f'deep{n + 1}.md'}\n" for n in range(1, 15)}
    root = mkdocs(tmp_path, f"{directive % 'a.md'}\n\n{directive % 'deep1.md'}\n", files | chain)
    source, expanded = opened(root)
    assert (expanded.text.count("B."), expanded.text.count("A 0.")) == (1, 1)
    assert "Deep 10." in expanded.text
    assert "Deep 11." not in expanded.text
    assert "a.md (it includes itself)" in unresolved(root)
    assert "deep11.md (more than 10 files deep)" in unresolved(root)
    assert source.info.unresolved_includes == 2


def test_included_text_is_limited(tmp_path: Path) -> None:
    """Each of nine files includes the next one ten times: a billion copies without a limit."""
    files = {f"f{n}.md": f"{{! f{n + 1}.md !}}\n" * 10 for n in range(9)} | {"f9.md": ""}
    source, expanded = opened(mkdocs(tmp_path, "{! f0.md !}\n", files))
    assert len(expanded.text) < 4 << 20
    assert source.info.unresolved_includes > 0


MANY = 99_999
HARD = ["{!" + " " * MANY, "~" * MANY + "`\n8<-", "-" * MANY + "8<-x", "{* " + "a " * MANY]


@pytest.mark.parametrize("text", [*HARD, "{% include 'a'" * 9_999], ids=range(5))
def test_patterns_do_not_backtrack(tmp_path: Path, text: str) -> None:
    """A pattern that backtracks would take hours."""
    assert text_of(mkdocs(tmp_path, text)) == text


def test_counts_are_those_of_the_last_run_and_a_change_changes_the_revision(tmp_path: Path) -> None:
    source, page = opened(mkdocs(tmp_path, "{! a.md !}\n\n{! gone.md !}\n", {"a.md": "One."}))
    assert opened(tmp_path)[1].revision == page.revision
    list(source.pages())
    assert (source.info.unresolved_includes, source.notes[0]) == (1, "1 included file resolved in 1 page.")
    assert source.included_files.keys() == {tmp_path.resolve() / "a.md"}
    write(tmp_path, {"a.md": "Two."})
    assert opened(tmp_path)[1].revision != page.revision


PARTIALS = """---
title: Page
---
import Setup from './\\_setup.mdx';
import Gone from "./_gone.mdx"
import Out from '../../../outside.mdx';
import Tabs from '@theme/Tabs';

Before.

<Setup os="linux" />

<Gone />
<Out/>

<TabItem value="a"><Setup /></TabItem>

```mdx
import Setup from './_setup.mdx';

<Setup />
```

## After

The end.
"""


def test_partial_adds_text_and_anchors_to_the_page(tmp_path: Path) -> None:
    write(tmp_path, {"outside.mdx": "A secret."})
    files = {
        "docs/guide/_setup.mdx": "---\nx: 1\n---\nimport Deep from '@site/docs/_deep.mdx';\n\n## Install\n\n"
        "Use the package.\n\n<Deep/>\n",
        "docs/_deep.mdx": "### Deeper\n\nEven deeper words.\n\nimport Self from './_deep.mdx'\n\n<Self />\n",
    }
    source, page = opened(docusaurus(tmp_path / "site", PARTIALS, files))
    text, anchors = stored(page), {name for section in read(page).sections for _, name in section.anchors}
    places = [text.index(part) for part in ("Before.", "Use the package.", "Even deeper words.", "The end.")]
    assert places == sorted(places)
    assert {"install", "deeper", "after"} <= anchors
    assert "secret" not in text
    assert page.text.count("Use the package.") == 2, "alone, and in the tab, but not in the example"
    assert source.info.unresolved_includes == 4, "one is missing, one outside, and one includes itself, twice"
    check_lines(PARTIALS, page)


def test_page_without_partials_is_unchanged(tmp_path: Path) -> None:
    text = "import X from './x.mdx'\r\n\r\ntext\r\n"
    page = opened(docusaurus(tmp_path, text, {}))[1]
    assert (page.text, page.lines) == (text, ())


IMPORT = "import Code from '!!raw-loader!./x.js';\nimport CodeBlock from '@theme/CodeBlock';\n\n"


@pytest.mark.parametrize(
    ("shown", "fence"),
    [
        ('<CodeBlock language="jsx">{Code}</CodeBlock>', "```jsx\na = 1;\n```"),
        ('<CodeBlock className="language-ts" title="">\n{Code}\n</CodeBlock>', "```ts\na = 1;\n```"),
        ('<CodeBlock language="ts" title="x">\n{Code}\n</CodeBlock>', '```ts title="x"\na = 1;\n```'),
        ("<CodeBlock\n  showLines\n>\n{Code\n  .split('\\n').join('')}\n</CodeBlock>", "```js\na = 1;\n```"),
        ("<pre>{Code}</pre>", "```js\na = 1;\n```"),
        ("{Code}", "```js\na = 1;\n```"),
        ("{Code.trim()}", "```js\na = 1;\n```"),
        ("<Tabs><CodeBlock>{Code}</CodeBlock></Tabs>", "<Tabs>\n\n```js\na = 1;\n```\n\n</Tabs>"),
        ("```mdx-code-block\n{Code}\n```", "\n```js\na = 1;\n```\n"),
    ],
)
def test_raw_file_becomes_a_fence(tmp_path: Path, shown: str, fence: str) -> None:
    page = f"{IMPORT}{shown}\n\nEnd.\n"
    source, expanded = opened(docusaurus(tmp_path, page, {"docs/guide/x.js": "a = 1;\n"}))
    assert expanded.text == f"{IMPORT}{fence}\n\nEnd.\n"
    assert source.info.unresolved_includes == 0
    assert "a = 1;" in stored(expanded)
    assert expanded.lines[-2] == page.count("\n")


def test_raw_file_by_require_alias_or_without_suffix(tmp_path: Path) -> None:
    page = (
        "import A from '!!raw-loader!@site/src/a';\nimport B from '../b.py?raw';\n\n<CodeBlock>{A}</CodeBlock>\n\n{B}\n\n"
        "<CodeBlock language=\"ts\">\n  {require('!!raw-loader!@site/sidebars.ts').default}\n</CodeBlock>\n"
    )
    files = {"src/a.tsx": "a = `\n````\n`", "docs/b.py": "b = 2", "sidebars.ts": "export default {};"}
    fences = "`````tsx\na = `\n````\n`\n`````\n\n```python\nb = 2\n```\n\n```ts\nexport default {};\n```\n"
    assert fences in text_of(docusaurus(tmp_path, page, files))


def test_unresolved_raw_files_are_reported(tmp_path: Path) -> None:
    page = "import Gone from '!!raw-loader!./gone.js';\n\nWords.\n\n<CodeBlock>{Gone}</CodeBlock>\n"
    root = docusaurus(tmp_path, page, {})
    assert unresolved(root) == "1 included file could not be resolved: guide/page.mdx: ./gone.js (missing)."
    assert stored(opened(root)[1]) == "Words."


@pytest.mark.parametrize(("file", "size", "count"), [("large.md", (1 << 20) - 10, 8), ("gone.md", 0, 2048)])
def test_a_page_does_not_search_files_without_end(tmp_path: Path, file: str, size: int, count: int) -> None:
    page = f'--8<-- "{file}:no-such-section"\n' * (count + 50)
    source, _ = opened(mkdocs(tmp_path, page, {"docs/large.md": "a" * size}))
    reasons = [line.rpartition(" (")[2] for line in source._includes[0].unresolved]
    refused = sum(reason.startswith("the files that the page includes have more") for reason in reasons)
    assert (len(reasons), 50 <= refused <= 52) == (count + 50, True)

"""MkDocs sites with plugins and extensions that change pages: as those built their pages."""

from __future__ import annotations

import re
from pathlib import Path
from time import process_time

import pytest

from recto.book.parsing import read
from recto.book.parsing.markdown import parse
from recto.book.sources.tree import open_book
from tests.book.files import write

CODE = '''"""A package."""
from pkg.other import Base

class Foo(Base):
    """Foo is a class of frobnication.

    Args:
        size: How large.

    # Usage
    """
    def __init__(self, size: int = 1) -> None:
        self.size = size
    def bar(self, x: int) -> int:
        """Return the bar of x."""
    def _hidden(self) -> None:
        """Hidden."""
    def bare(self) -> None: ...

def baz() -> None:
    """Baz buzzes."""
'''
CONFIG = """
site_url: https://x.org/
plugins:
  - mkdocstrings:
      handlers: {python: {paths: [lib], options: {show_signature_annotations: true}}}
"""


def test_mkdocstrings_is_read_from_the_source(tmp_path: Path) -> None:
    write(tmp_path, {"lib/pkg/__init__.py": CODE})
    page = """# A

??? abstract "API"
    ::: pkg.Foo
        options:
            show_root_heading: true
            filters:
                - "!^_"

### ::: pkg.baz

> Quoted:
>
> #### ::: pkg.baz

::: pkg.Foo
    options:
      members:
        - bare

::: pkg.missing
    handler: python

```
::: pkg.example
```
"""
    source = open_book(write(tmp_path, {"docs/a.md": page, "mkdocs.yml": CONFIG}))
    (loaded,) = source.pages()
    document = read(loaded)
    text = "\n".join(block.text for section in document.sections for block in section.blocks)
    assert [anchor for section in document.sections for _, anchor in section.anchors] == [
        *("a", "pkg.Foo", "pkg.Foo--usage", "pkg.Foo.bar", "pkg.baz", "pkg.baz", "pkg.Foo"),
        *("pkg.Foo--usage", "pkg.Foo.bare"),
    ]
    assert text.count(":::") == 1  # in the fence
    assert "    ## `pkg.Foo` { #pkg.Foo }" in text
    assert "- `size` (`int`, default: `1`): How large." in text
    assert "    ### `bar(x: int) -> int` { #pkg.Foo.bar }\n\n    Return the bar of x." in text
    assert "> Baz buzzes." in text
    for left_out in ("options", "filters", "members", "handler", "missing", "Hidden"):
        assert left_out not in text
    assert source.notes == ["1 included file could not be resolved: a.md: pkg.missing (missing)."]


def test_documented_code_without_mkdocstrings(tmp_path: Path) -> None:
    """mkautodoc shows members without headings; a directive of another extension leaves nothing."""
    page = """# A

::: pkg.Foo
    :docstring:
    :members: bar bare

::: mkdocs-click
    :module: pkg.cli
    :command: main
"""
    config = "markdown_extensions: [mkautodoc, mkdocs-click]\n"
    files = {"docs/a.md": page, "mkdocs.yml": config, "src/pkg/__init__.py": CODE.replace("# Usage", "")}
    source = open_book(write(tmp_path, files))
    (loaded,) = source.pages()
    (section,) = read(loaded).sections
    text = "\n".join(block.text for block in section.blocks)
    assert text.startswith("**`class pkg.Foo(size=1)`**\nFoo is a class of frobnication.")
    assert text.endswith("**`bar(x)`**\nReturn the bar of x.\n**`bare()`**")
    assert source.notes == ["1 included file could not be resolved: a.md: pkg.cli (missing)."]


def test_members_without_a_docstring_of_their_own(tmp_path: Path) -> None:
    """mkdocstrings does not look into base classes; a heading of a member is not the title of the page."""
    code = 'class A:\n    x = 1\n    """X."""\n\nclass B(A):\n    x = 2\n    y = 3\n    """Y."""\n'
    config = "watch: [lib/src/pkg]\nplugins: [mkdocstrings]\n"
    files = {"docs/my-page.md": "::: pkg.B\n    options: {heading_level: 1}\n", "mkdocs.yml": config}
    (page,) = open_book(write(tmp_path, {**files, "lib/src/pkg/__init__.py": code})).pages()
    document = read(page)
    assert document.title == "My page"
    assert [anchor for part in document.sections for _, anchor in part.anchors] == ["pkg.B", "pkg.B.y"]


def test_parameters_are_described_in_their_types(tmp_path: Path) -> None:
    code = """
class App:
    def __init__(self, *, name: Annotated[str, Doc(\'\'\'
        The **name**.
        \'\'\')] = "x", count: Annotated[int, Gt(0)]) -> None:
        \'\'\'Start.\'\'\'
        self.name = name
        self.open: Annotated[bool, Doc("Whether it is open.")] = True
    def run(self) -> None:
        \'\'\'Run.\'\'\'
        self.state = 1
"""
    options = (
        "{show_root_heading: true, separate_signature: true, merge_init_into_class: true, filters: ['!^_']}"
    )
    config = f"plugins: [{{mkdocstrings: {{handlers: {{python: {{options: {options}}}}}}}}}]\n"
    files = {"docs/a.md": "# A\n\n::: app.App\n", "mkdocs.yml": config, "app.py": code}
    sections = read(next(iter(open_book(write(tmp_path, files)).pages()))).sections
    assert [(part.headings[-1], part.anchor) for part in sections] == [
        ("app.App", "app.App"),
        ("open", "app.App.open"),
        ("run", "app.App.run"),
    ]
    texts = [block.text for block in sections[0].blocks]
    assert texts[:2] == ["```python\nApp(*, name='x', count)\n```", "Start."]
    assert texts[3] == "- `name` (`str`, default: `'x'`): The **name**."
    assert [block.text for block in sections[1].blocks] == [
        "```python\nopen = True\n```",
        "Whether it is open.",
    ]


def test_parts_of_documented_code(tmp_path: Path) -> None:
    """Undocumented attributes, bases under their own names, and the styles of sections."""
    code = """
from lib import Base as LibBase
class A(LibBase):
    '''A.

    Args:
        x: The x.

    Attributes:
        y: The y.
    '''
    y: str
    def __init__(self, x: int) -> None:
        self.size = x
    def run(self) -> bool:
        '''Run.

        Returns:
            Whether it ran.
        '''
"""
    files = {"mkdocs.yml": "plugins: [mkdocstrings]\n", "docs/a.md": "# A\n\n", "app.py": code}
    for style, expected in (("table", "`int`, required"), ("list", "`int`"), ("spacy", "type: `int`")):
        options = (
            f"{{docstring_section_style: {style}, merge_init_into_class: true, show_if_no_docstring: true}}"
        )
        files["docs/a.md"] += f"::: app.A\n    options: {options}\n\n"
        (page,) = open_book(write(tmp_path, files)).pages()
        assert f"- `x` ({expected}): The x." in page.text
    assert page.text.count("- `y` (`str`): The y.") == 3
    assert "- (`bool`): Whether it ran." in page.text
    assert page.text.count("Bases: `Base`") == page.text.count("`size = x` { #app.A.size }") == 3


def test_names_that_a_package_exports(tmp_path: Path) -> None:
    """Imported names in `__all__` are members, and with `filters: public`, no others are."""
    files = {
        "mkdocs.yml": "plugins: [mkdocstrings]\n",
        "app/__init__.py": "from ._parts import *\nfrom ._parts import hidden\nfrom . import sub\n"
        "__all__ = ['Lamp', 'light', 'sub', 'gone']\ndef plain():\n    'Plain.'\n",
        "app/_parts.py": "class Lamp:\n    size = 1\n    'How large.'\n\ndef light():\n    'Light.'\n"
        "def hidden():\n    'Hidden.'\n",
        "app/sub.py": "'Sub.'\n",
    }
    names = ["Lamp", "Lamp.size", "light", "plain"]
    for options, expected in (("filters: public", names[:3]), ("show_bases: true", names)):
        files["docs/a.md"] = f"# A\n\n::: app\n    options:\n      {options}\n"
        (page,) = open_book(write(tmp_path, files)).pages()
        assert re.findall(r"app\.([\w.]+) \}", page.text) == expected


def test_signatures_of_overloads_and_data_classes(tmp_path: Path) -> None:
    code = """
import dataclasses
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, overload

@dataclass
class Wick:
    size: int

@dataclasses.dataclass(frozen=True)
class Lamp(Wick):
    lit: bool = False
    kind: ClassVar[str] = 'oil'
    parts: list = field(default_factory=list)
    secret: int = field(default=1, init=False)
    _: KW_ONLY
    name: str = field(default='a')

@dataclass
class Own:
    x: int
    def __init__(self) -> None: ...

@overload
def light(lamp: int) -> int: ...
@overload
def light(lamp: str) -> str: ...
def light(lamp): ...
"""
    options = "merge_init_into_class: true, show_if_no_docstring: true, separate_signature: true"
    page = f"# A\n\n::: app\n    options: {{{options}}}\n"
    (read_page,) = open_book(
        write(tmp_path, {"mkdocs.yml": "plugins: [mkdocstrings]\n", "docs/a.md": page, "app.py": code})
    ).pages()
    shown = re.findall(r"```python\n(.+)\n```", read_page.text)
    assert [line for line in shown if "(" in line and " = " not in line] == [
        *("Lamp(size, lit=False, parts=list(), *, name='a')", "Own()", "Wick(size)"),
        *("light(lamp: int) -> int", "light(lamp: str) -> str", "light(lamp)"),
    ]
    assert {"size", "lit = False", "kind = 'oil'"} < set(shown)


@pytest.mark.parametrize(
    ("heading", "title", "anchor"),
    [
        (":material-check: on a page", "on a page", "on-a-page"),
        ("Icons, emojis :smile:", "Icons, emojis", "icons-emojis"),
        ("The `:smile:` of 10:30:15", "The :smile: of 10:30:15", "the-smile-of-103015"),
        ("Expanding the [`File`][pkg.Foo] API", "Expanding the File API", "expanding-the-file-api"),
        ("All of [pkg.Foo][] and a[i][j]", "All of pkg.Foo and a[i][j]", "all-of-pkgfoo-and-aij"),
    ],
)
def test_icons_and_references_in_headings(heading: str, title: str, anchor: str) -> None:
    section = parse(f"# A\n\n## {heading}\n\nText.\n", anchors="python-markdown").sections[-1]
    assert (section.headings[-1], section.anchor) == (title, anchor)


POSTS = {
    "a.md": "---\ndate: 2024-02-03\ncategories: [News]\n---\n# A Post, First!\n",
    "deep/b.md": "---\ndate:\n  created: 2024-03-04T10:00:00\nslug: my-slug\n---\n# B\n",
    "c.md": "---\ndate: 2024-11-05\ntitle: How we're\n---\n# C\n",
    "draft.md": "---\ndate: 2024-11-05\ndraft: true\n---\n# D\n",
}


@pytest.mark.parametrize(
    ("options", "posts", "addresses"),
    [
        (
            "",
            "blog/posts",
            "blog/2024/02/03/a-post-first/ blog/2024/11/05/how-were/ blog/2024/03/04/my-slug/",
        ),
        (
            "blog_dir: ., post_dir: '{blog}/news', post_url_format: '{categories}/{date}/{file}'",
            "news",
            "news/2024/02/03/a/ 2024/11/05/c/ 2024/03/04/b/",
        ),
        (
            "blog_dir: log, post_url_format: '{slug}-{date}', post_url_date_format: d.M.yy, draft: true",
            "log/posts",
            "log/a-post-first-3.2.24/ log/how-were-5.11.24/ log/my-slug-4.3.24/ log/d-5.11.24/",
        ),
    ],
)
def test_posts_have_the_addresses_of_the_blog_plugin(
    tmp_path: Path, options: str, posts: str, addresses: str
) -> None:
    files = {f"docs/{posts}/{name}": text for name, text in POSTS.items()}
    config = f"site_url: https://x.org/\nplugins: [material/blog: {{{options}}}]\n"
    source = open_book(write(tmp_path, {"mkdocs.yml": config, "docs/index.md": "# Home\n", **files}))
    urls = {page.url.removeprefix("https://x.org/") for page in source.pages()}
    assert urls == {"", *addresses.split()}


def test_posts_are_in_the_order_of_the_blog(tmp_path: Path) -> None:
    """The link to the next page of Material's blog leads to a newer post, at the end to pinned ones."""
    files = {f"docs/blog/posts/{name}": text for name, text in POSTS.items()}
    files |= {f"docs/{name}.md": "# A\n" for name in ("about", "blog/index", "z")}
    files["docs/blog/posts/z.md"] = "---\ndate: 2020-01-01\npin: true\n---\n# Z\n"
    source = open_book(write(tmp_path, {"mkdocs.yml": "plugins: [blog]\n", **files}))
    assert [page.path.removeprefix("blog/posts/") for page in source.pages()] == [
        *("about.md", "z.md", "blog/index.md", "a.md", "deep/b.md", "c.md", "z.md"),
    ]


def test_literate_nav(tmp_path: Path) -> None:
    """The plugin mkdocs-literate-nav 0.6 made this navigation."""
    config = """
nav:
  - Home: index.md
  - User Guide: guide/
  - About: [z.md, other/]
plugins:
  - literate-nav: {nav_file: README.md, implicit_index: true}
"""
    guide = "# Guide\n\n- [Second](b.md)\n- [Part](part/)\n- [First](a.md)\n\n[Web](https://x.org/)\n"
    names = ("index", "z", "guide/a", "guide/b", "guide/part/d", "guide/part/c", "other/b", "other/a", "last")
    files = {f"docs/{name}.md": f"# {name}\n" for name in names}
    files |= {
        "docs/guide/README.md": guide,
        "docs/guide/part/README.md": "* [D](d.md)\n* [Up](../)\n* [C](c.md)\n",
    }
    source = open_book(write(tmp_path, {"mkdocs.yml": config, **files}))
    assert [page.path for page in source.pages()] == [
        *("index.md", "guide/README.md", "guide/b.md", "guide/part/README.md", "guide/part/d.md"),
        *("guide/part/c.md", "guide/a.md", "z.md", "other/a.md", "other/b.md", "last.md"),
    ]


def test_what_is_not_of_mkdocstrings_stays(tmp_path: Path) -> None:
    code = '''def first() -> None:
    """First.

    ```python
    is_open = True
    """

def last() -> None:
    """Last."""
'''
    page = "# A\n\n::: pkg\n\n    Code of the page.\n\n::: tip\n\nText.\n\n:::\n\n## The `x [0][1]` item\n\nMore.\n"
    files = {"lib/pkg/__init__.py": code, "docs/a.md": page, "mkdocs.yml": CONFIG}
    (loaded,) = open_book(write(tmp_path, files)).pages()
    assert "    Code of the page." in loaded.text
    assert "::: tip" in loaded.text
    headings = [section.headings[-1] for section in read(loaded).sections]
    assert [heading.partition("(")[0] for heading in headings[-3:]] == ["first", "last", "The x [0][1] item"]


MANY = range(400)


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("from pkg import *\n" * 10, ""),
        ("".join(f"q{number} = 1\n" for number in MANY), "filters: [" + ", ".join(f"'!q{n}9'" for n in MANY)),
        (
            "class A:\n"
            + "".join(f"    q{number} = 1\n" for number in MANY)
            + f"class B({', '.join('A' for _ in MANY)}): ...\n"
            + "".join(f"class C{number}(B): ...\n" for number in MANY),
            "inherited_members: true",
        ),
        (" = ".join(f"q{number}" for number in MANY) + f" = [{'1, ' * 40_000}]\n", ""),
    ],
    ids=["stars", "filters", "bases", "values"],
)
def test_hostile_code_is_read_at_once(tmp_path: Path, code: str, options: str) -> None:
    """Each took from 10 seconds to hours of CPU time; the limit is for slow machines."""
    close = "]" if options.startswith("filters") else ""
    page = f"# A\n\n::: pkg\n    options:\n      show_if_no_docstring: true\n      {options}{close}\n\n::: pkg.x\n"
    files = {"lib/pkg/__init__.py": code, "docs/a.md": page, "mkdocs.yml": CONFIG}
    began = process_time()
    assert len(list(open_book(write(tmp_path, files)).pages())) == 1
    assert process_time() - began < 8


def test_navigation_files_that_link_to_their_own_directory(tmp_path: Path) -> None:
    listed = "".join(f"* [A](a{number}/)\n" for number in range(6))
    write(tmp_path, {"docs/SUMMARY.md": listed, "mkdocs.yml": "plugins: [literate-nav]\n"})
    for number in range(6):
        (tmp_path / "docs" / f"a{number}").symlink_to(".")
    assert len(list(open_book(tmp_path).pages())) == 1


@pytest.mark.parametrize(
    ("plugin", "files", "expected"),
    [
        (
            "awesome-nav",
            {
                ".nav.yml": "nav:\n- First: z.md\n- Part:\n  - guide/*\n  - more\n  - '*.md'\n",
                "guide/.nav.yml": "title: G\nsort: {direction: desc}\n",
                "more/.nav.yml": "hide: true\n",
            },
            "z.md guide/a.md guide/b.md guide/deep/c2.md guide/deep/c10.md more/d.md a.md index.md",
        ),
        (
            "awesome-pages",
            {
                ".pages": "nav:\n- ... | a*.md\n- guide\n- More: more\n- ...\n- index.md\n",
                "guide/.pages": "order: desc\n",
            },
            "a.md guide/deep/c10.md guide/deep/c2.md guide/b.md guide/a.md more/d.md z.md index.md",
        ),
        (
            "search",
            {},
            "index.md a.md z.md guide/a.md guide/b.md guide/deep/c10.md guide/deep/c2.md more/d.md",
        ),
        ("exclude: {glob: ['guide/*', z.md]}", {}, "index.md a.md more/d.md"),
    ],
)
def test_navigation_of_directories(tmp_path: Path, plugin: str, files: dict[str, str], expected: str) -> None:
    """The plugins mkdocs-awesome-nav 3.3 and mkdocs-awesome-pages 2.10 made these navigations."""
    names = ["index", "a", "z", "guide/b", "guide/a", "guide/deep/c2", "guide/deep/c10", "more/d"]
    write(tmp_path, {f"docs/{name}.md": "Text.\n" for name in names})
    write(tmp_path, {f"docs/{name}": text for name, text in files.items()})
    source = open_book(write(tmp_path, {"mkdocs.yml": f"plugins:\n- {plugin}\n"}))
    assert [page.path for page in source.pages()] == expected.split()
    titles = {page.path: page.title for page in source.pages()}
    assert titles.get("z.md") in ("First" if plugin == "awesome-nav" else "Z", None)


def test_badges_and_code_of_the_site(tmp_path: Path) -> None:
    """Shortcodes of Material for MkDocs are their text; hooks and plugins that run code are named."""
    page = "# A\n\n<!-- md:version insiders-9.2.0 -->\n<!-- md:default `x y` -->\n<!-- md:default none -->\n"
    config = "hooks: [docs/hooks.py]\nplugins: [search, macros]\n"
    source = open_book(write(tmp_path, {"docs/a.md": page, "mkdocs.yml": config}))
    (section,) = read(next(iter(source.pages()))).sections
    assert [block.text for block in section.blocks] == ["9.2.0\n`x y`"]
    assert source.notes == [
        "Hooks and plugins are not run, so what these write is missing: docs/hooks.py, macros."
    ]

"""Patterns of file names, reading order and module titles."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.book.sources.directory import any_of, ignored
from recto.book.sources.tree import open_book
from tests.book.files import write

CONFIG = "module.exports = {url: 'https://x.org', baseUrl: '/', presets: [['classic', {docs: {%s}}]]};"


def order(root: Path) -> list[str]:
    pages = list(open_book(root).pages())
    assert [page.position for page in pages] == list(range(1, len(pages) + 1))
    return [page.path for page in pages]


def titles(root: Path) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for page in open_book(root).pages():
        found.setdefault(page.module, set()).add(page.module_title)
    assert all(len(one) == 1 for one in found.values())
    return {module: next(iter(one)) for module, one in found.items()}


def mkdocs(root: Path, nav: str, *names: str) -> Path:
    return write(
        root,
        {
            "mkdocs.yml": f"site_name: x\nnav:\n{nav}",
            **{f"docs/{name}": f"# Title of {name}\n" for name in names},
        },
    )


def test_mkdocs_order_is_that_of_nav(tmp_path: Path) -> None:
    nav = """
  - Home: index.md
  - Last first: z/two.md
  - Zed:
      - z/one.md
      - Deep: [./a/b.md, gone.md, https://example.org/]
"""
    root = mkdocs(tmp_path, nav, "index.md", "a/a.md", "a/b.md", "z/one.md", "z/two.md", "b.md")
    assert order(root) == ["index.md", "z/two.md", "z/one.md", "a/b.md", "a/a.md", "b.md"]


def test_module_title_is_that_of_its_section(tmp_path: Path) -> None:
    nav = """
  - Start: [index.md, install.md]
  - about.md
  - Module 1 — Foundations:
      - Unit 1: [m1/one.md, m1/two.md]
      - Unit 2: [m1/three.md, m2/stray.md]
  - Second Module: [m2/one.md, m2/two.md, m2/three.md]
"""
    names = ["index.md", "install.md", "about.md", "m1/one.md", "m1/two.md", "m1/three.md"]
    root = mkdocs(
        tmp_path, nav, *names, "m2/one.md", "m2/two.md", "m2/three.md", "m2/stray.md", "other-things/x.md"
    )
    assert titles(root) == {
        "intro": "Start",
        "m1": "Module 1 — Foundations",
        "m2": "Second Module",
        "other-things": "Other things",
    }


def test_modules_of_one_section_have_titles_of_subsections(tmp_path: Path) -> None:
    nav = """
  - index.md
  - Learn:
      - python.md
      - Tutorial - User Guide: [tutorial/a.md, tutorial/b.md, tutorial/deep/c.md]
      - Advanced Guide: [advanced/a.md, advanced/b.md]
      - recipes/a.md
"""
    names = "index.md python.md tutorial/a.md tutorial/b.md advanced/a.md advanced/b.md recipes/a.md"
    root = mkdocs(tmp_path, nav, *names.split())
    assert titles(root) == {
        "intro": "Title of index.md",
        "tutorial": "Tutorial - User Guide",
        "advanced": "Advanced Guide",
        "recipes": "Recipes",
    }


def test_part_of_a_site_has_the_same_titles(tmp_path: Path) -> None:
    nav = "  - One: [m/a.md]\n  - Two: [m/b.md, m/c.md, m/d.md]\n"
    root = mkdocs(tmp_path, nav, "m/a.md", "m/b.md", "m/c.md", "m/d.md")
    (page,) = open_book(root / "docs" / "m" / "a.md").pages()
    assert (page.module_title, page.position) == ("Two", 1)


@pytest.mark.parametrize("nav", ["  - [1, {a: 2}]\n", "  x: y\n", "  - a.md\n  - a.md\n  - A: a.md\n"])
def test_invalid_navigation_loses_no_page(tmp_path: Path, nav: str) -> None:
    assert order(mkdocs(tmp_path, nav, "a.md", "b.md")) == ["a.md", "b.md"]


def docusaurus(root: Path, names: dict[str, str], options: str = "") -> Path:
    return write(
        root,
        {"docusaurus.config.js": CONFIG % options, **{f"docs/{name}": text for name, text in names.items()}},
    )


def test_docusaurus_orders_by_position_number_and_name(tmp_path: Path) -> None:
    root = docusaurus(
        tmp_path,
        {
            "zebra/page.md": "z",
            "zebra/_category_.json": '{"label": "The Zebra", "position": 1.5}',
            "2-second/10-ten.md": "t",
            "2-second/9-nine.md": "n",
            "2-second/index.md": "# The second\n",
            "alpha/b.md": "b",
            "alpha/a.md": "---\nsidebar_position: 3\n---\n",
            "alpha/_category_.yml": "label: Alpha & Omega\n",
            "intro.md": "---\nsidebar_position: 1\n---\n",
            "appendix.md": "a",
        },
    )
    second = ["2-second/index.md", "2-second/9-nine.md", "2-second/10-ten.md"]
    assert order(root) == ["intro.md", "zebra/page.md", *second, "alpha/a.md", "alpha/b.md", "appendix.md"]
    assert titles(root) == {
        "intro": "Introduction",
        "zebra": "The Zebra",
        "second": "The second",
        "alpha": "Alpha & Omega",
    }


SIDEBARS = """
const sidebars: SidebarsConfig = {
  docs: [
    'welcome',
    {type: 'category', label: 'ROS 2 Fundamentals', link: {type: 'doc', id: 'ros2/home'}, items: ['ros2/02-nodes', 'ros2/install']},
    {'Simulation': [{type: 'autogenerated', dirName: 'sim'}]},
    {type: 'link', label: 'Elsewhere', href: 'https://example.org'},
  ],
};
export default sidebars;
"""


@pytest.mark.parametrize("path", ["'./sidebars.ts'", "require.resolve('./sidebars.ts')"])
def test_docusaurus_sidebars_give_order_and_titles(tmp_path: Path, path: str) -> None:
    pages = {
        "ros2/index.md": "---\nid: home\n---\n",
        "ros2/01-install.md": "i",
        "ros2/02-nodes.md": "n",
        "ros2/extra.md": "e",
        "sim/b.md": "b",
        "sim/a.md": "a",
        "intro.md": "---\nid: welcome\n---\n",
    }
    root = write(docusaurus(tmp_path, pages, f"sidebarPath: {path}"), {"sidebars.ts": SIDEBARS})
    listed = ["ros2/index.md", "ros2/02-nodes.md", "ros2/01-install.md"]
    assert order(root) == ["intro.md", *listed, "sim/a.md", "sim/b.md", "ros2/extra.md"]
    assert titles(root) == {"intro": "Introduction", "ros2": "ROS 2 Fundamentals", "sim": "Simulation"}


def test_each_version_has_its_own_sidebar(tmp_path: Path) -> None:
    root = write(
        docusaurus(tmp_path, {"a/a.md": "a"}, "sidebarPath: './sidebars.js'"),
        {
            "sidebars.js": "module.exports = {x: [{type: 'category', label: 'Now', items: ['a/a']}]};",
            "versions.json": '["1.0"]',
            "versioned_docs/version-1.0/a/a.md": "a",
            "versioned_sidebars/version-1.0-sidebars.json": '{"x": [{"type": "category", "label": "Then", "items": ["a/a"]}]}',
        },
    )
    assert titles(root) == {"a": "Then"}


def test_computed_sidebars_are_noted(tmp_path: Path) -> None:
    root = write(
        docusaurus(tmp_path, {"a.md": "a"}, "sidebarPath: './sidebars.js'"),
        {"sidebars.js": "module.exports = make();"},
    )
    assert open_book(root).notes == [
        "sidebars.js cannot be read without running it; pages are in the order of their file names."
    ]


def test_plain_tree_has_titles_of_index_pages(tmp_path: Path) -> None:
    root = write(
        tmp_path / "book",
        {
            "README.md": "# The Whole Book\n",
            "module-1-ros2/README.md": "---\ntitle: Robots that talk\n---\n# Other\n",
            "module-1-ros2/a.md": "a",
            "ros2-fundamentals/a.md": "a",
            "sim/index.md": "No heading.\n",
            "recto.toml": '[modules]\nmine = ["ros2-fundamentals/b.md"]\n',
            "ros2-fundamentals/b.md": "b",
        },
    )
    assert titles(root) == {
        "intro": "The Whole Book",
        "ros2": "Robots that talk",
        "ros2-fundamentals": "Ros2 fundamentals",
        "sim": "Sim",
        "mine": "Mine",
    }
    assert order(root) == sorted(order(root))


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("**/*.{md,mdx}", "a.md", True),
        ("**/*.{md,mdx}", "a/b/c.mdx", True),
        ("**/*.{md,mdx}", "a/b/c.txt", False),
        ("**/_*/**", "a/_b/c.md", True),
        ("**/_*/**", "_b/c.md", True),
        ("**/_*/**", "a/b_/c.md", False),
        ("*.md", "a/b.md", False),
        ("./a/*.md", "a/b.md", True),
        ("a?.md", "ab.md", True),
        ("[!a]*.md", "a.md", False),
        ("[a-c]1.md", "b1.md", True),
        ("{a,b{c,d}}.md", "bd.md", True),
        ("a{b", "a{b", True),
        ("a[b", "a[b", True),
        ("tutorial-*/**", "tutorial-basics/x/y.md", True),
        ("a.md", "aXmd", False),
        ("**", "a/b", True),
    ],
)
def test_globs(pattern: str, name: str, matches: bool) -> None:
    assert any_of([pattern])(name) is matches


@pytest.mark.parametrize(
    ("lines", "name", "matches"),
    [
        (["drafts/"], "a/drafts/b.md", True),
        (["drafts/"], "a/drafts", False),
        (["/a.md"], "b/a.md", False),
        (["b/a.md"], "c/b/a.md", False),
        (["*.md", "!keep.md"], "x/keep.md", False),
        (["!keep.md", "*.md"], "x/keep.md", True),
        (["# a.md", "", "  "], "a.md", False),
        (["a/**/b.md"], "a/x/y/b.md", True),
        (["a/**"], "a/x.md", True),
        (["{a}.md"], "{a}.md", True),
        ([".*"], "x/.hidden/y.md", True),
    ],
)
def test_gitignore_patterns(lines: list[str], name: str, matches: bool) -> None:
    assert ignored(lines)(name) is matches


@given(st.text("*?[]{}!,/ab.-\\", max_size=20), st.text("ab/.", max_size=10))
def test_any_pattern_is_accepted(pattern: str, name: str) -> None:
    assert any_of([pattern])(name) in (True, False)
    assert ignored([pattern])(name) in (True, False)

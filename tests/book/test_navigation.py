"""Reading order and module titles: as the navigation of a site has them, else as its directories do."""

from __future__ import annotations

from pathlib import Path

import pytest

from recto.book.sources.tree import open_book

CONFIG = "module.exports = {url: 'https://x.org', baseUrl: '/', presets: [['classic', {docs: {%s}}]]};"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


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


def test_mkdocs_pages_come_as_in_nav_and_the_others_after_them(tmp_path: Path) -> None:
    nav = """
  - Home: index.md
  - Last first: z/two.md
  - Zed:
      - z/one.md
      - Deep: [./a/b.md, gone.md, https://example.org/]
"""
    root = mkdocs(tmp_path, nav, "index.md", "a/a.md", "a/b.md", "z/one.md", "z/two.md", "b.md")
    assert order(root) == ["index.md", "z/two.md", "z/one.md", "a/b.md", "a/a.md", "b.md"]


def test_a_module_is_called_what_its_section_is(tmp_path: Path) -> None:
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


def test_modules_in_one_section_are_told_apart_by_those_within(tmp_path: Path) -> None:
    nav = """
  - index.md
  - Learn:
      - python.md
      - Tutorial - User Guide: [tutorial/a.md, tutorial/b.md, tutorial/deep/c.md]
      - Advanced Guide: [advanced/a.md, advanced/b.md]
      - recipes/a.md
"""
    root = mkdocs(
        tmp_path,
        nav,
        "index.md",
        "python.md",
        "tutorial/a.md",
        "tutorial/b.md",
        "advanced/a.md",
        "advanced/b.md",
        "recipes/a.md",
    )
    assert titles(root) == {
        "intro": "Title of index.md",
        "tutorial": "Tutorial - User Guide",
        "advanced": "Advanced Guide",
        "recipes": "Recipes",
    }


def test_a_part_of_a_site_has_the_titles_of_the_whole(tmp_path: Path) -> None:
    nav = "  - One: [m/a.md]\n  - Two: [m/b.md, m/c.md, m/d.md]\n"
    root = mkdocs(tmp_path, nav, "m/a.md", "m/b.md", "m/c.md", "m/d.md")
    (page,) = open_book(root / "docs" / "m" / "a.md").pages()
    assert (page.module_title, page.position) == ("Two", 1)


@pytest.mark.parametrize("nav", ["  - [1, {a: 2}]\n", "  x: y\n", "  - a.md\n  - a.md\n  - A: a.md\n"])
def test_odd_navigation_loses_no_page(tmp_path: Path, nav: str) -> None:
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
    assert order(root) == [
        "intro.md",
        "zebra/page.md",
        "2-second/index.md",
        "2-second/9-nine.md",
        "2-second/10-ten.md",
        "alpha/a.md",
        "alpha/b.md",
        "appendix.md",
    ]
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
    assert order(root) == [
        "intro.md",
        "ros2/index.md",
        "ros2/02-nodes.md",
        "ros2/01-install.md",
        "sim/a.md",
        "sim/b.md",
        "ros2/extra.md",
    ]
    assert titles(root) == {"intro": "Introduction", "ros2": "ROS 2 Fundamentals", "sim": "Simulation"}


def test_the_sidebar_of_a_version_is_that_of_the_version(tmp_path: Path) -> None:
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


def test_sidebars_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    root = write(
        docusaurus(tmp_path, {"a.md": "a"}, "sidebarPath: './sidebars.js'"),
        {"sidebars.js": "module.exports = make();"},
    )
    assert open_book(root).notes == [
        "sidebars.js cannot be read without running it; pages come in the order of their files."
    ]


def test_a_plain_tree_has_the_titles_of_its_index_pages(tmp_path: Path) -> None:
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

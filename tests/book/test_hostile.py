"""Hostile books: links out of the repository, and small files that crash or block a reader."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from time import process_time
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.book.chunking import ChunkSize, chunk_page
from recto.book.parsing import read
from recto.book.parsing.frontmatter import load_mapping, load_yaml, stated
from recto.book.parsing.markdown import parse
from recto.book.sources import tree
from recto.book.sources.directory import any_of, ignored
from recto.book.sources.docusaurus.javascript import Unknown, read_exported
from recto.book.sources.options import is_inside, repository_of
from recto.book.sources.tree import MarkdownTree, open_book
from recto.errors import ConfigurationError, RectoError
from recto.indexing.indexer import IndexJob, index_book
from recto.stores.edge import EdgeStore
from recto.testing import HashEmbedder
from tests.book.files import write

DOCUSAURUS = "module.exports = {url: 'https://x.org', baseUrl: '/', presets: [['classic', {docs: {}}]]}"
LOCALES = DOCUSAURUS.replace("baseUrl", "i18n: {defaultLocale: 'en', locales: ['en', 'fr']}, baseUrl")
SECRET = "# Secret\n\nThe password is hunter2.\n"


def read_all(place: Path) -> str:
    """Return all texts and notes of a book."""
    book = open_book(place)
    texts = [book.info.title, *(page.text for page in book.pages())]
    return "\n".join([*texts, *map(str, book.failed), *getattr(book, "notes", ())])


class TestLinksOutOfTheRepository:
    @pytest.fixture
    def outside(self, tmp_path: Path) -> Path:
        return write(tmp_path / "outside", {"secret.md": SECRET, "current/secret.md": SECRET})

    @pytest.fixture
    def site(self, tmp_path: Path) -> Path:
        site = write(tmp_path / "repository", {"docs/a.md": "# A\n", "docusaurus.config.js": DOCUSAURUS})
        (site / ".git").mkdir()
        return site

    def test_versioned_docs(self, site: Path, outside: Path) -> None:
        write(site, {"versions.json": '["1.0"]', "versioned_docs/x.txt": ""})
        os.symlink(outside, site / "versioned_docs" / "version-1.0")
        with pytest.raises(ConfigurationError, match="outside the repository"):
            read_all(site)

    @pytest.mark.parametrize("link", ["current", "current/below"])
    def test_translations(self, site: Path, outside: Path, link: str) -> None:
        pages = {"docs/secret.md": "# A\n", "docs/below/secret.md": "# B\n"}
        write(site, {"docusaurus.config.js": LOCALES, "recto.toml": '[site]\nlocale = "fr"\n', **pages})
        place = site / "i18n" / "fr" / "docusaurus-plugin-content-docs" / link
        place.parent.mkdir(parents=True)
        os.symlink(outside, place)
        text = read_all(site)
        assert "hunter2" not in text
        assert "outside the repository" in text or "leaves the book" in text

    @pytest.mark.parametrize("folder", ["../elsewhere", "link"])
    @pytest.mark.parametrize("git", [True, False])
    def test_docs_dir(self, tmp_path: Path, folder: str, git: bool) -> None:
        write(tmp_path, {"elsewhere/secret.md": SECRET, "site/mkdocs.yml": f"docs_dir: {folder}\n"})
        os.symlink(tmp_path / "elsewhere", tmp_path / "site" / "link")
        if git:
            (tmp_path / "site" / ".git").mkdir()
        with pytest.raises(ConfigurationError, match="outside the repository"):
            read_all(tmp_path / "site")

    def test_the_docs_of_a_repository_may_be_beside_the_site(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        write(tmp_path, {"elsewhere/a.md": "# A\n\nText.", "site/mkdocs.yml": "docs_dir: ../elsewhere\n"})
        assert "Text." in read_all(tmp_path / "site")

    def test_the_docs_of_an_unreadable_site(self, site: Path, outside: Path) -> None:
        write(site, {"docusaurus.config.js": "module.exports = f()"})
        shutil.rmtree(site / "docs")
        os.symlink(outside, site / "docs")
        with pytest.raises(RectoError):
            read_all(site)
        with pytest.raises(RectoError, match="leaves the book"):
            MarkdownTree(site)

    @pytest.mark.parametrize("target", ["../outside/secret.md", ".git/config"])
    def test_a_page(self, site: Path, outside: Path, target: str) -> None:
        (site / ".git" / "config").write_text(SECRET)
        os.symlink(site / target, site / "docs" / "link.md")
        text = read_all(site)
        assert "hunter2" not in text
        assert "link.md: it is a symbolic link that leaves the book" in text

    @pytest.mark.parametrize(
        "name", ["docusaurus.config.js", "versions.json", "docs/_category_.json", "recto.toml"]
    )
    def test_configuration(self, site: Path, outside: Path, name: str) -> None:
        """No value of a file outside is used, and none appears in a message."""
        secret = 'module.exports = {"label": "hunter2", "x": ["hunter2"]}'
        (outside / "file").write_text('site.title = "hunter2"' if name == "recto.toml" else secret)
        (site / name).unlink(missing_ok=True)
        os.symlink(outside / "file", site / name)
        try:
            text = read_all(site)
        except ConfigurationError as error:
            text = f"{error} {error.hint}"
            assert "leaves the book" in text
        assert "hunter2" not in text

    def test_a_home_directory_is_no_repository(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / ".git").mkdir()
        book = write(tmp_path / "downloads" / "book", {"a.md": "# A\n"})
        assert repository_of(book) == book
        assert not is_inside(tmp_path / ".ssh" / "id_rsa", repository_of(book))


class TestYaml:
    @pytest.mark.parametrize(
        "source",
        [
            "a: " + "[" * 20_000,
            "a: " + "{a: " * 20_000,
            "- " * 20_000,
            "".join(" " * depth + "a:\n" for depth in range(2_000)),
            "a: &a [*a]",
            "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)),
            "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 9)),
            "a: [" + "1," * 50_001 + "]",
            "a: " + "x" * (1 << 20),
        ],
        ids=["sequences", "mappings", "blocks", "indentation", "itself", "aliases", "merges", "values", "text"],
    )  # fmt: skip
    def test_too_large_values_are_refused(self, source: str) -> None:
        """To load the aliases and merges would take hours, and much memory."""
        with pytest.raises(ValueError, match="more than"):
            load_yaml(source)
        assert load_mapping(source) == {}

    def test_usual_aliases_and_merges_still_work(self) -> None:
        source = "base: &base {a: 1, b: [1, 2]}\nother:\n  <<: *base\n  c: 3\nagain: *base\n"
        assert load_yaml(source)["other"] == {"a": 1, "b": [1, 2], "c": 3}

    @pytest.mark.parametrize("value", ["0x" + "F" * 9_000, "9" * 9_000, "1" + ":59" * 3_000])
    def test_a_number_that_is_too_long_is_text(self, value: str) -> None:
        assert stated(load_mapping(f"id: {value}\nb: 1_000\nc: 0x10\nd: 1:30"), "id") == value
        assert load_mapping("b: 1_000\nc: 0x10\nd: 1:30") == {"b": 1000, "c": 16, "d": 90}

    @pytest.mark.parametrize(
        "statement", ["id: 0x" + "F" * 5_000, "sidebar_position: 0x" + "F" * 40, "slug: 1" + ":59" * 2_000, "id: [" * 3_000]
    )  # fmt: skip
    def test_the_other_pages_of_a_book_are_still_read(self, tmp_path: Path, statement: str) -> None:
        files = {
            "docusaurus.config.js": DOCUSAURUS,
            "docs/a.md": f"---\n{statement}\n---\n# A\n\nText A.",
            "docs/c/_category_.yml": "label: " + "[" * 50_000,
            "docs/c/c.md": "# C\n\nText C.",
            "docs/d/_category_.json": '{"position": ' + "9" * 4_000 + "}",
            "docs/d/d.md": "# D\n\nText D.",
        }
        book = open_book(write(tmp_path, files))
        texts = "".join(section.blocks[0].text for page in book.pages() for section in read(page).sections)
        assert all(f"Text {letter}." in texts for letter in "ACD")

    def test_a_page_that_cannot_be_used_is_reported_and_the_others_are_read(self, tmp_path: Path) -> None:
        site = write(tmp_path, {"mkdocs.yml": "site_name: x\n", "docs/a.md": "# A", "docs/b.md": "# B"})
        book = open_book(site)
        ((directory, _),) = book._directories  # type: ignore[union-attr]
        other = replace(next(iter(book.pages())), path="b.md")
        with patch.object(directory.rules, "page", side_effect=[OverflowError("too large"), other]):
            assert [found.path for found in book.pages()] == ["b.md"]
        reason = "its front matter cannot be used (OverflowError: too large)"
        assert [str(failure) for failure in book.failed] == [f"a.md: {reason}"]

    def test_mkdocs_yml(self, tmp_path: Path) -> None:
        write(tmp_path, {"mkdocs.yml": "nav: " + "[" * 20_000, "docs/a.md": "# A\n"})
        with pytest.raises(ConfigurationError, match="more than 50 levels deep"):
            open_book(tmp_path)


@pytest.mark.parametrize(
    "name", ["recto.toml", "versions.json", "mkdocs.yml", "docusaurus.config.js", "docs/_category_.json"]
)
def test_huge_files_are_not_read(tmp_path: Path, name: str) -> None:
    """A sparse file takes no space on the disk, but would fill the memory."""
    files = {"docs/a.md": "# A\n\nText."}
    if name != "mkdocs.yml":
        files["docusaurus.config.js"] = DOCUSAURUS
    write(tmp_path, files)
    with (tmp_path / name).open("wb") as file:
        file.truncate(30 << 30)
    if name == "docs/_category_.json":  # its label is optional
        assert "Text." in read_all(tmp_path)
    else:
        with pytest.raises(ConfigurationError, match="larger than"):
            read_all(tmp_path)


@pytest.mark.parametrize("name", ["recto.toml", "docs/_category_.yml"])
def test_a_pipe_does_not_block(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"docs/a.md": "# A\n\nText.", "docusaurus.config.js": DOCUSAURUS})
    os.mkfifo(tmp_path / name)
    assert "Text." in read_all(tmp_path)


def test_a_number_in_a_book_file_that_cannot_be_printed(tmp_path: Path) -> None:
    write(tmp_path, {"docs/a.md": "# A\n", "recto.toml": "[site]\nurl = 0x" + "F" * 9_000})
    with pytest.raises(ConfigurationError, match=r"site\.url must be text"):
        open_book(tmp_path)


class TestGlobs:
    @pytest.mark.parametrize(
        "pattern", ["*a" * 500 + "b", "**/" * 300 + "b", "*" * 1_000 + "b", "{a,b}" * 300, "{" * 1_000, "[" * 1_000, "?*" * 500 + "b"]
    )  # fmt: skip
    def test_hostile_patterns_end(self, pattern: str) -> None:
        names = ["a" * 255, "/".join("a" * 120), "a/" * 60 + "a" * 130]
        for matches in (any_of([pattern]), ignored([pattern])):
            assert not any(map(matches, names))

    def test_too_many_alternatives_have_no_meaning(self) -> None:
        assert any_of(["{a,b}" * 9])("ab" * 4 + "a")
        assert any_of(["{a,b}" * 10])("{a,b}" * 10)
        assert not any_of(["{a,b}" * 10])("ab" * 5)

    @given(
        st.lists(st.sampled_from(["**", "a", "b", "*"]), min_size=1, max_size=5),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    )
    def test_same_as_a_regular_expression(self, pattern: list[str], parts: list[str]) -> None:
        any_name = [part.replace("*", "[^/]*") for part in pattern]
        names = zip(pattern[:-1], any_name[:-1], strict=True)
        folders = ["(?:[^/]+/)*" if part == "**" else f"{name}/" for part, name in names]
        source = "".join([*folders, "(?:[^/]+/)*[^/]+" if pattern[-1] == "**" else any_name[-1]])
        assert any_of(["/".join(pattern)])("/".join(parts)) == bool(re.fullmatch(source, "/".join(parts)))


class TestScanning:
    @pytest.mark.parametrize("unit", ['"', "[", 'a""'])
    def test_javascript_with_many_errors_is_given_up(self, unit: str) -> None:
        """To recover from all errors would take hours."""
        text = f"module.exports = {{}};{unit * ((1 << 18) // len(unit))}"
        assert isinstance(read_exported(text), Unknown)

    def test_headings_with_much_markup_keep_it(self) -> None:
        page = "\n\n".join(f"## {'[' * 450} *{number}*\n\nText." for number in range(1_000))
        sections = parse(page, title="T").sections
        assert [sections[number].headings[-1][-5:] for number in (0, 999)] == ["[[[ 0", "*999*"]

    def test_generated_tables_stay_text(self) -> None:
        wide = "|" + "a|" * 2_000 + "\n|" + "-|" * 2_000 + "\n"
        (section,) = parse(wide, title="T").sections
        assert [block.kind for block in section.blocks] == ["paragraph"]
        (section,) = parse("|a|b|\n|-|-|\n|c|d|\n", title="T").sections
        assert [block.kind for block in section.blocks] == ["table"]


MUTATED = [
    ("docusaurus.config.js", DOCUSAURUS),
    ("mkdocs.yml", "site_url: https://x.org\nnav:\n  - Home: index.md\n  - Part: [a.md, b.md]\nexclude_docs: |\n  *.tmp\n"),
    ("recto.toml", '[site]\nurl = "https://x.org"\nexclude = ["a/**"]\n[modules]\na = ["docs/a"]\n'),
    ("docs/a.md", "---\ntitle: A\nsidebar_position: 2\n---\n# A\n\nText <b>x</b> {y}\n\nexport const a = {\n\n:::tip\n"),
    ("docs/_category_.json", json.dumps({"label": "A", "position": 1})),
]  # fmt: skip


PIECES = st.sampled_from([b"", b"[", b"{", b"*", b"&a ", b"*a", b"\xff", b"\0", b"---\n", b"0x", b"9" * 60])


@settings(max_examples=50)
@given(data=st.data())
def test_mutated_books(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """They raise no unexpected error. The longer run is `python -m bench.fuzz`."""
    place = write(tmp_path_factory.mktemp("book"), {"docs/b.md": "# B\n"})
    for name, text in MUTATED:
        if data.draw(st.booleans()):
            (place / name).write_bytes(mutated(data, text.encode()))
    try:
        for page in open_book(place).pages():
            read(page)
    except RectoError as error:
        assert error.message


def mutated(data: st.DataObject, text: bytes) -> bytes:
    """Cut, repeat and insert at random places."""
    for _ in range(data.draw(st.integers(0, 4))):
        at, end = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
        new = data.draw(PIECES) * data.draw(st.integers(1, 50))
        text = text[:at] + new + text[end if data.draw(st.booleans()) else at :]
    return text[: 1 << 16]


BOOKS = {
    "vitepress": {".vitepress/config.js": "export default {title: 'A'}"},
    "quarto": {"_quarto.yml": "project: {type: book}\nbook: {title: A, chapters: [index.qmd, a.qmd]}"},
    "starlight": {"astro.config.mjs": "import starlight from '@astrojs/starlight'; export default {}"},
    "bookdown": {"_bookdown.yml": "rmd_files: [index.Rmd, a.Rmd]"},
    "jekyll": {"_config.yml": "title: A\npermalink: pretty"},
    "mkdocs": {"mkdocs.yml": "site_name: A\nmarkdown_extensions: [markdown_include.include]"},
    "sphinx": {"conf.py": "html_theme = 'x'\n"},
    "html": {},
}
PAGE_OF = {
    "quarto": "a.qmd",
    "bookdown": "a.Rmd",
    "mkdocs": "docs/a.md",
    "sphinx": "a.rst",
    "html": "a.html",
    "starlight": "src/content/docs/a.md",
}


@pytest.mark.parametrize(
    ("generator", "line"),
    [
        ("vitepress", "::: a " + " " * 100_000 + "{"),
        ("quarto", "::: a " + " " * 100_000 + "{"),
        ("starlight", "::: a " + " " * 100_000 + "{"),
        ("bookdown", "# a" + " " * 100_000 + "!"),
        ("quarto", "# a" + " " * 100_000 + "!"),
        ("bookdown", "#\t{ " + "\t" * 100_000),
        ("quarto", "#\t{ " + "\t" * 100_000),
        ("jekyll", "{%-\n " + "a" * 300_000),
        ("mkdocs", "{!+>\t[ln:" * 11_000),
        ("quarto", "#\t{ " * 20_000),
        ("mkdocs", "{% include 'a' " * 7_000),
        ("vitepress", "<!--@include:a" * 7_000 + "\n-->"),
        ("jekyll", "{% a -" * 16_000),
        ("mkdocs", "a:`b`</" * 140_000),
        ("sphinx", "*a\nb " * 14_000),
        ("sphinx", "``a\nb " * 14_000),
        ("sphinx", "a `b`_ c\n" * 14_000),
        ("sphinx", "-----\n\n" * 7_000),
        ("sphinx", ("{" * 15_000 + "\n\n") * 4),
        ("html", "<h2>" + "<a>a</" * 39_000 + "></h2><p>"),
        ("bookdown", "# a\n\n" * 60_000),
    ],
)
def test_a_long_line_is_read_at_once(tmp_path: Path, generator: str, line: str) -> None:
    """It took from 17 seconds to hours of CPU time; the limit is for slow machines."""
    name = PAGE_OF.get(generator, "a.md")
    index = str(Path(name).with_stem("index"))
    write(
        tmp_path,
        {**BOOKS[generator], index: "# Start\n\nText.\n", name: f"# Title\n\n{line}\n\nLast words.\n"},
    )
    began = process_time()
    chunks = [
        planned.chunk.text
        for page in open_book(tmp_path).pages()
        for planned in chunk_page(page, read(page), "book", len, 10_000, ChunkSize())
    ]
    assert process_time() - began < 10
    assert any("Last words." in text for text in chunks)


NESTED_DIRECTIVES = "".join(f"{' ' * 3 * depth}.. autoclass:: m.A\n\n" for depth in range(40))
ANTORA = {"antora.yml": "name: c\nversion: '1'\n", "modules/ROOT/pages/a.adoc": "= A\n\nLast words.\n"}
SPHINX = {"conf.py": "html_theme = 'x'\n", "z.rst": "Z\n=\n\nLast words.\n"}
AUTODOC = SPHINX | {"index.rst": "A\n=\n\n.. automodule:: m\n   :members:\n"}


def doubled(value: str) -> str:
    """Return assignments, each of which has the value of the one before it twice."""
    return "".join(f"a{number + 1} = {value.replace('a', f'a{number}')}\n" for number in range(60))


def index(content: str) -> dict[str, str]:
    """Return the first page of a Sphinx project."""
    return SPHINX | {"index.rst": f"A\n=\n\n{content}\n"}


DOCUMENTING = (
    "plugins: [{mkdocstrings: {handlers: {python: {options: {inherited_members: true, members: true}}}}}]"
)


def documenting(page: str, code: str) -> dict[str, str]:
    """Return a MkDocs site that documents a module."""
    return {"docs/a.md": f"# A\n\n{page}\nLast words.\n", "mkdocs.yml": DOCUMENTING, "m.py": code}


@pytest.mark.parametrize(
    "files",
    [
        documenting("::: m\n\n", "class A:\n" + "".join(f"  class B{number}(A): 'd'\n" for number in range(50))),
        documenting("::: m.A\n\n" * 20_000, "class A:\n" + "  def a(): 1\n" * 20_000),
        documenting("::: m.A.f\n\n" * 20_000, f"class A:\n  def f(self, b=[{'1,' * 100_000}]):\n    'd'\n"),
        documenting(f"::: m.A\n    :members: {'f ' * 50_000}\n\n" * 20, f"class A:\n  def f(b=[{'1,' * 90_000}]): 'd'\n"),
        index(NESTED_DIRECTIVES) | {"m.py": "class A:\n  'd'\n"},
        AUTODOC | {"m.py": "#:\n" * 100_000 + "a=1;" * 100_000 + "\n"},
        AUTODOC | {"m.py": "#:\n" * 100_000 + "a=" * 20_000 + "1\n"},
        index(".. autoclass:: m.A\n   :members: z\n\n" * 20_000) | {"m.py": "class A:\n" + "  a=1\n" * 20_000},
        index(".. autoclass:: m.A\n\n" * 3_000) | {"m.py": "class A(A.B.C):\n  class B(A.B):\n    class C(A.B.C): 'd'\n"},
        index(".. automethod:: m.A.f\n\n" * 30_000)
        | {"m.py": f"class A:\n  @property\n  def f(self, b=[{'1,' * 200_000}]):\n    'd'\n"},
        AUTODOC
        | {
            "conf.py": "html_theme = 'x'\nautodoc_typehints = 'description'\n",
            "m.py": f"def f({': int, '.join(f'a{number}' for number in range(20_000))}):\n  '''"
            + ":param x: y\n" * 40_000
            + "'''\n",
        },
        AUTODOC | {"m.py": f"__all__ = {[f'a{number}.b.c.d.e.f.g.h.i.j.k' for number in range(15_000)]}\n"},
        SPHINX | {"conf.py": f"html_theme = 'x'\na0 = 'aaaaaaaaaa'\n{doubled('a + a')}project = a60\n"},
        SPHINX | {"conf.py": f"html_theme = 'x'\na0 = ['x']\n{doubled('[a, a]')}project = f'{{a60}}'\n"},
        index(".. toctree::\n\n   " + "*/" * 11 + "b*\n"),
        index(".. toctree::\n\n" + "   p*\n" * 20_000),
        ANTORA | {
            "antora.yml": f"name: c\nversion: '1'\nnav: [{', '.join(['nav.adoc'] * 9_000)}]\n",
            "nav.adoc": "* xref:a.adoc[]\n" * 3_000,
        },
        {
            "a.adoc": "= A\n\ninclude::b.txt[tags=**]\n\nLast words.\n",
            "b.txt": "tag::a[]\n" * 50_000 + "end::z[]\n" * 50_000,
        },
        {
            "a.adoc": f"= A\n\ninclude::b.txt[lines={'1..;' * 100_000}]\n\nLast words.\n",
            "b.txt": "eight b\n" * 100_000,
        },
    ],
    ids=lambda files: "",
)  # fmt: skip
def test_a_small_book_is_read_at_once(tmp_path: Path, files: dict[str, str]) -> None:
    """Each of these took minutes or gigabytes; the limit is for slow machines."""
    pages = {f"p{number}.rst": f"P{number}\n==\n\nText.\n" for number in range(100)}
    write(tmp_path, files | (pages if "conf.py" in files else {}))
    for number in range(8):  # a pattern of directories follows them in circles
        os.symlink(".", tmp_path / f"link{number}")
    began = process_time()
    assert "Last words." in read_all(tmp_path)
    assert process_time() - began < 10


# The limit may interrupt a callback of the garbage collector that hypothesis installs.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_page_whose_included_files_take_too_long_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "PAGE_SECONDS", 0.1)
    page = "= B\n\n" + "include::c.txt[tags=**]\n" * 8
    write(tmp_path, {"a.adoc": "= A\n\nText.\n", "b.adoc": page, "c.txt": "tag::a[]\n" * 100_000})
    book = open_book(tmp_path)
    assert [page.path for page in book.pages()] == ["a.adoc"]
    assert "b.adoc: it takes more than 0.1 s of CPU time" in str(book.failed[0])
    monkeypatch.setattr(tree, "_OPEN_SECONDS", 0.01)
    write(tmp_path / "c", AUTODOC | {"m.py": "a=1\n" * 100_000})
    with pytest.raises(RectoError, match="finding its pages takes more than"):
        open_book(tmp_path / "c")


def test_a_long_name_in_a_reference_is_no_error(tmp_path: Path) -> None:
    page = f"= A\n\nxref:{'a' * 280}.adoc[]\n\nLast words.\n"
    assert "Last words." in read_all(write(tmp_path, ANTORA | {"modules/ROOT/pages/a.adoc": page}))


NAMES = ["a\0b", r"a\0b", r"a\u0000b", r"a\ud800b", "n" * 300, "n/" * 3_000]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize(
    "files",
    [
        ANTORA | {"antora.yml": 'name: c\nversion: "1"\nnav: ["%"]\n'},
        {"book.adoc": ":doctype: book\n\ninclude::a.adoc[]\ninclude::%[]\ninclude::b.adoc[]\n", "a.adoc": "= A\n\nB.\n", "b.adoc": "= B\n\nLast words.\n"},
        {".vitepress/config.js": 'export default {srcDir: "%"}', "a.md": "# A\n\nLast words.\n"},
        {"astro.config.mjs": "import starlight from '@astrojs/starlight'\nexport default {integrations: [starlight({sidebar: [{autogenerate: {directory: \"%\"}}]})]}", "src/content/docs/a.md": "# A\n\nLast words.\n"},
        {"mkdocs.yml": 'docs_dir: "%"\n', "docs/a.md": "# A\n\nLast words.\n"},
        {"docusaurus.config.js": DOCUSAURUS.replace("{}", '{path: "%"}'), "docs/a.md": "# A\n\nLast words.\n"},
        SPHINX | {"conf.py": 'html_theme = "x"\nrst_prolog = """.. |a| replace:: %"""\n'},
    ],
    ids=["antora", "asciidoc", "vitepress", "starlight", "mkdocs", "docusaurus", "sphinx"],
)  # fmt: skip
def test_a_name_that_cannot_exist_is_missing_or_reported(
    tmp_path: Path, files: dict[str, str], name: str
) -> None:
    write(tmp_path, {file: text.replace("%", name) for file, text in files.items()})
    try:
        assert "Last words." in read_all(tmp_path)
    except RectoError as error:
        assert error.message


def test_a_lone_surrogate_is_stored_as_a_question_mark(tmp_path: Path, home: Path) -> None:
    """It stopped the whole run: the engine stores UTF-8."""
    files = {"docs/c/_category_.json": r'{"label": "A \ud800"}', "docs/c/a.md": "# A\n\nText.\n"}
    book = open_book(write(tmp_path / "book", files | {"docusaurus.config.js": DOCUSAURUS}))
    index_book(IndexJob(book, HashEmbedder()), EdgeStore(home), "book", journal=home / "journal")
    (chunk,) = EdgeStore(home).open("book").scroll()
    assert (chunk.module_title, chunk.module_keys) == ("A ?", ("c", "a ?"))

"""MkDocs sites: the URLs that MkDocs built for a difficult site."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.errors import ConfigurationError, InvalidOption
from tests.book.files import write, write_pages

SITE = Path(__file__).parent / "sites" / "mkdocs"
VARIANTS: dict[str, dict[str, str]] = json.loads((SITE / "variants.json").read_text("utf-8"))


def site(folder: Path, changes: dict[str, str]) -> Path:
    target = folder / "mk"
    shutil.copytree(SITE, target, ignore=shutil.ignore_patterns("expected", "variants.json"))
    text = (target / "mkdocs.yml").read_text("utf-8")
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    (target / "mkdocs.yml").write_text(text, "utf-8")
    return target


def small_site(folder: Path, config: str) -> Path:
    return write(folder, {"docs/a.md": "# A\n", "mkdocs.yml": config})


@pytest.mark.parametrize("variant", VARIANTS)
def test_urls_are_those_that_mkdocs_built(tmp_path: Path, variant: str) -> None:
    built = json.loads((SITE / "expected" / f"{variant}.json").read_text("utf-8"))["pages"]
    source = open_book(site(tmp_path, VARIANTS[variant]))
    by_path = {page.path: page for page in source.pages()}
    urls = {page["source"]: page["url"] for page in built}
    assert {path: page.url for path, page in by_path.items()} == urls
    assert {page.anchors for page in by_path.values()} == {"python-markdown"}
    assert by_path["plain.md"].title == "The Plain Page"  # as its navigation calls it
    names = ("module01/lesson01.md", "01-numbered/02-page.md", "index.md")
    assert [by_path[name].module for name in names] == ["module01", "numbered", "intro"]
    assert source.notes == ["Left out: 1 draft page."]


def test_part_of_the_site_has_the_same_paths_and_urls(tmp_path: Path) -> None:
    root = site(tmp_path, {})
    whole = {page.path: page.url for page in open_book(root).pages()}
    for below, count in (("pages", len(whole)), ("pages/module01", 2), ("pages/deep/top-only.md", 1)):
        part = {page.path: page.url for page in open_book(root / below).pages()}
        assert len(part) == count
        assert part.items() <= whole.items()


TRANSLATED = {
    "folder": (
        *("about.md", "en/index.md", "en/guide/README.md", "en/guide/install.md", "en/guide/english.md"),
        *("fr/index.md", "fr/guide/install.md", "fr/extra.md", "it/index.md"),
    ),
    "suffix": (
        *("about.md", "index.md", "guide/README.md", "guide/install.md", "guide/install.en.md"),
        *("guide/english.md", "index.fr.md", "guide/install.fr.md", "extra.fr.md", "index.it.md"),
    ),
}
ENGLISH = {"", "about/", "guide/", "guide/install/", "guide/english/"}
I18N = """
site_url: https://x.org/
nav: [{Start: index.md}, {Guide: [guide/install.md]}]
plugins:
  - search
  - i18n:
      docs_structure: STRUCTURE
      languages:
        - {locale: fr, name: Français}
        - {locale: en, name: English, default: true}
        - {locale: it, name: Italiano, build: false}
"""


def translated_site(folder: Path, structure: str) -> Path:
    write_pages(folder, *(f"docs/{name}" for name in TRANSLATED[structure]))
    return write(folder, {"mkdocs.yml": I18N.replace("STRUCTURE", structure)})


@pytest.mark.parametrize("structure", TRANSLATED)
def test_locales_have_the_urls_that_mkdocs_static_i18n_built(tmp_path: Path, structure: str) -> None:
    """MkDocs 1.6 with mkdocs-static-i18n 1.3 published these URLs; all French ones are below `fr/`."""
    root = translated_site(tmp_path, structure)
    french = {f"fr/{name}" for name in (*ENGLISH, "extra/")}

    def urls(locale: str) -> list[str]:
        loaded = open_book(root, SiteOptions(locale=locale)).pages()
        return [page.url.removeprefix("https://x.org/") for page in loaded]

    assert (set(urls("")), set(urls("fr"))) == (ENGLISH, french)
    assert len(urls("")) == len(ENGLISH)
    assert urls("fr")[:2] == ["fr/", "fr/guide/install/"]  # as in the navigation
    source = open_book(root, SiteOptions(locale="all"))
    both = {page.url.removeprefix("https://x.org/"): page for page in source.pages()}
    assert set(both) == {*ENGLISH, "fr/", "fr/guide/install/", "fr/extra/"}
    assert source.info.locales == ("en", "fr")
    assert (both[""].locales, both["fr/"].locales) == (("en",), ("fr",))
    assert both["guide/english/"].locales == both["about/"].locales == ("en", "fr")
    assert both["guide/install/"].module == both["fr/guide/install/"].module == "guide"
    assert len({page.path for page in both.values()}) == len(both)


def test_path_below_a_locale_is_read_in_that_locale(tmp_path: Path) -> None:
    folder = translated_site(tmp_path, "folder") / "docs" / "fr" / "guide"
    assert [page.url for page in open_book(folder).pages()] == ["https://x.org/fr/guide/install/"]
    with pytest.raises(InvalidOption, match="--locale has no effect"):  # without the plugin
        open_book(small_site(tmp_path, "site_name: A\n"), SiteOptions(locale="fr"))


def test_files_beside_the_pages_are_not_of_the_site(tmp_path: Path) -> None:
    (page,) = open_book(site(tmp_path, {}) / "docs").pages()
    assert (page.path, page.url, page.anchors) == ("README.md", "local://docs/docs", "github")


def test_without_a_site_url_pages_have_local_urls(tmp_path: Path) -> None:
    root = site(tmp_path, {"site_url: https://books.example/mk/": ""})
    urls = {page.path: page.url for page in open_book(root).pages()}
    assert urls["module01/README.md"] == "local://docs/docs/module01"
    given = {page.path: page.url for page in open_book(root, SiteOptions(url="https://y.org/z")).pages()}
    assert given["module01/lesson01.md"] == "https://y.org/z/module01/lesson01/"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("site_name: [", "mkdocs.yml cannot be read"),
        ("INHERIT: ../other.yml", "INHERIT names ../other.yml"),
        ("INHERIT: mkdocs.yml", "INHERIT names mkdocs.yml"),
        ("docs_dir: ../../..", "The pages are outside the repository"),
        ("site_url: not an address", "site_url is not the URL of a website"),
    ],
)
def test_unusable_configuration_is_an_error(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "other.yml").write_text("site_url: https://x.org", "utf-8")
    with pytest.raises(ConfigurationError, match=message):
        open_book(small_site(tmp_path / "site", config))


@pytest.mark.parametrize(
    "config",
    [
        *(
            "",
            "- a list",
            "nav: {a: [1, {b: 2}]}\nsite_url: 3",
            "x: !!python/object/apply:os.system ['exit 1']",
        ),
        *("nav:\n- [1, {a: 2}]\n", "nav:\n- a.md\n- a.md\n- A: a.md\n"),
    ],
)
def test_odd_configurations_are_read(tmp_path: Path, config: str) -> None:
    (page,) = open_book(small_site(tmp_path, config)).pages()
    assert page.url == "local://docs/docs/a"


@pytest.mark.parametrize(
    ("config", "locale"),
    [("theme: {name: m, language: ur}", "ur"), ("theme: {locale: pt_BR}", "pt_BR"), ("theme: mkdocs", "")],
)
def test_pages_have_the_language_of_the_theme(tmp_path: Path, config: str, locale: str) -> None:
    (page,) = open_book(small_site(tmp_path, config)).pages()
    assert page.locale == locale


def test_a_navigation_may_list_directories(tmp_path: Path) -> None:
    nav = "site_name: Tools\nnav:\n- z.md\n- Guide: guide/\n- guide/first.md\n- a.md\n"
    names = ("a", "b", "z", "guide/first", "guide/one", "guide/two")
    root = write(write_pages(tmp_path, *(f"docs/{name}.md" for name in names)), {"mkdocs.yml": nav})
    paths = [page.path for page in open_book(root).pages()]
    assert paths == ["z.md", "guide/one.md", "guide/two.md", "guide/first.md", "a.md", "b.md"]


def test_settings_of_a_base_configuration_are_merged(tmp_path: Path) -> None:
    """MkDocs merges mappings at every level."""
    files = {
        "base.yml": "site_url: https://x.org/\nplugins:\n  blog: {blog_dir: log, draft: true}\n  search:\n",
        "mkdocs.yml": "INHERIT: base.yml\nplugins:\n  blog: {draft: false}\n  tags:\n",
        "docs/log/posts/a.md": "---\ndate: 2024-02-03\n---\n# A\n",
        "docs/log/posts/b.md": "---\ndate: 2024-02-03\ndraft: true\n---\n# B\n",
    }
    assert [page.url for page in open_book(write(tmp_path, files)).pages()] == [
        "https://x.org/log/2024/02/03/a/"
    ]


def test_properdocs_is_read_as_mkdocs(tmp_path: Path) -> None:
    files = {
        "properdocs.yml": "site_url: https://x.org/\nnav: [b.md, a.md]\n",
        "docs/a.md": "# A\n",
        "docs/b.md": "# B\n",
    }
    pages = open_book(write(tmp_path, files)).pages()
    assert [page.url for page in pages] == ["https://x.org/b/", "https://x.org/a/"]

"""Test what the plugins write into the pages and into the index, and their errors."""

from __future__ import annotations

import html
import json
import logging
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recto.embedders.granite import embedder as granite
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore
from tests.running import ROOT, reuse_embedder
from tests.server.test_static_export import contents
from tests.sites.building import PLUGIN
from tests.sites.serving import KEY, PublishedSite

MkDocs = Callable[..., Path]
WIDGET = {"type": "module", "src": "/recto/widget.js"}
OPTIONS = {"key": "recto_pk_x", "related": False, "strings": {"search": 'Find "it" <here>'}}


def shown(guide: str, language: str) -> list[str]:
    """Return the blocks of a language that a guide shows."""
    text = (ROOT / "docs" / "how-to" / guide).read_text("utf-8")
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def script_of(page: Path) -> dict[str, str]:
    """Return the attributes of the widget's script tag on a page."""
    (tag,) = re.findall(r"<script ([^>]*widget\.js[^>]*)></script>", page.read_text("utf-8"))
    return {name: html.unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}


def test_valid_addresses(site: PublishedSite, places: tuple[Path, Path], embedder: Embedder) -> None:
    """The address of each chunk is a file of the built site, and its anchor is the id of an element."""
    with Retriever(embedder, EdgeStore(places[1]), site.collection) as retriever:
        chunks = list(retriever.open().scroll())
    assert len(chunks) > 30
    pages = {chunk.page_url for chunk in chunks}
    ids = {}
    for url in pages:
        assert url.startswith(site.url), url
        file = site.file(url.removeprefix(site.origin))
        assert file, url
        ids[url] = set(re.findall(r'\bid="?([^"\s>]+)', html.unescape(file.read_text("utf-8"))))
    missing = {chunk.url for chunk in chunks if chunk.anchor and chunk.anchor not in ids[chunk.page_url]}
    assert missing == set()


def test_every_page_has_the_widget(site: PublishedSite) -> None:
    pages = [page for page in site.files.rglob("*.html") if "de" not in page.relative_to(site.files).parts]
    assert len(pages) > 12
    for page in pages:
        found = script_of(page)
        assert found["type"] == "module"
        assert (found["src"], found["data-collection"]) == ("/recto/widget.js", site.collection)
        assert found["data-key"] == KEY
        assert page.read_text("utf-8").count("data-recto-open") == 1


def test_the_texts_of_docusaurus_are_translated(sites: dict[str, PublishedSite]) -> None:
    page = sites["docusaurus"].files / "de" / "index.html"
    found = script_of(page)
    assert found["data-collection"] == "docusaurus-haus"
    assert json.loads(found["data-strings"]) == {"search": "Suchen"}
    assert ">Suchen</span>" in page.read_text("utf-8")


def test_the_build_log_says_what_was_indexed(places: tuple[Path, Path]) -> None:
    log = (places[0] / "mkdocs" / "build.log").read_text("utf-8")
    assert re.search(r"INFO +-  recto: Indexed 14 pages, \d\d chunks: collection 'mkdocs-house'", log)


def node(code: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run JavaScript that has the plugin."""
    code = f"const plugin = require({json.dumps(str(PLUGIN))});{code}"
    pipes: dict[str, Any] = {"capture_output": True, "text": True, "env": {**os.environ, **more}}
    return subprocess.run(["node", "-e", code], check=False, timeout=60, **pipes)


def docusaurus(options: object, mode: str = "production", locale: str = "en") -> dict[str, Any]:
    """Return what the plugin makes of its options: the tag, or the message of an error."""
    code = f"""
        process.env.NODE_ENV = {json.dumps(mode)};
        const context = {{baseUrl: '/book/', siteConfig: {{url: 'https://example.org'}}, i18n: {{currentLocale: {json.dumps(locale)}}}}};
        try {{
            const options = plugin.validateOptions({{options: {json.dumps(options)}}});
            const made = plugin(context, options);
            console.log(JSON.stringify(made.injectHtmlTags({{content: made.loadContent()}}).headTags[0].attributes));
        }} catch (error) {{
            console.log(JSON.stringify({{error: error.message}}));
        }}
    """
    found: dict[str, Any] = json.loads(node(code).stdout)
    return found


def test_options_of_docusaurus() -> None:
    assert docusaurus({"collection": "book"}) == {**WIDGET, "data-collection": "book"}
    server = "https://search.example.org/recto"
    options = {"server": server, "collection": {"en": "book", "de": "buch"}, **OPTIONS}
    assert docusaurus(options, "development", "de") == {
        "type": "module",
        "src": f"{server}/widget.js",
        "data-collection": "buch",
        "data-key": "recto_pk_x",
        "data-related": "off",
        "data-strings": '{"search":"Find \\"it\\" <here>"}',
        "data-rewrite": "https://example.org/book/ /book/",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"collection": ""}, "is not the name of a collection. Use the name that you pass to `recto index"),
        ({"collection": "my book"}, '"collection" is not the name'),
        ({"collection": {"de": "buch"}}, 'no name for the locale "en"'),
        ({"server": "recto"}, '"server" is not an address'),
        ({"key": "recto_sk_secret"}, '"key" is an admin key, which must not be published'),
        ({"keys": "x"}, 'no option "keys". The options are assistants, collection, id, key,'),
        ({"related": "off"}, '"related" is not true or false'),
        ({"strings": {"search": 1}}, '"strings" is not an object of texts'),
        ({"static": "yes"}, '"static" is not true or false'),
        ({"static": True, "key": "recto_pk_x"}, 'needs no "server" and no "key"'),
    ],
)
def test_wrong_options_of_docusaurus(options: dict[str, Any], message: str) -> None:
    error = docusaurus({"collection": "book", **options})["error"]
    assert error.startswith("recto-docusaurus: ")
    assert message in error
    assert "recto_sk_secret" not in error


def test_docusaurus_writes_a_static_search(tmp_path: Path) -> None:
    """It indexes the site of each locale, and exports the index into the built site."""
    options = {"collection": {"en": "book", "de": "buch"}, "static": True}
    assert docusaurus(options) == {"type": "module", "src": "/book/recto/widget.js"}
    program = tmp_path / "recto"
    program.write_text('#!/bin/sh\necho "$@" >> "$(dirname "$0")/calls"\n')
    program.chmod(0o755)
    code = f"""
        const options = plugin.validateOptions({{options: {json.dumps(options)}}});
        const i18n = {{currentLocale: 'de', defaultLocale: 'en'}};
        const siteConfig = {{url: 'https://example.org'}};
        plugin({{siteDir: '/site', baseUrl: '/book/de/', siteConfig, i18n}}, options).postBuild({{outDir: '/out/de'}});
    """
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert node(code, PATH=path).returncode == 0
    assert (tmp_path / "calls").read_text().splitlines() == [
        "index /site --collection buch --site-url https://example.org/book/ --new-urls --locale de",
        "export --static /out/de/recto --collection buch",
    ]
    program.write_text("#!/bin/sh\nexit 1\n")
    message = "recto-docusaurus: `recto index` failed. Its message is above."
    assert message in node(code, PATH=path).stderr


def test_the_guide_of_docusaurus() -> None:
    blocks = shown("docusaurus.md", "js")
    assert len(blocks) == 3
    for block in blocks:
        shown_options = "plugin.validateOptions({options: plugins[0][1]})"
        done = node(
            f"const {{plugins}} = {{{block}}}; console.log(plugins[0][0], {shown_options}.collection);"
        )
        assert done.stdout == "recto-docusaurus my-book\n", done.stderr


@pytest.fixture
def mkdocs(
    small_book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_embedder: Embedder
) -> Iterator[MkDocs]:
    """Return a function that builds a site as `mkdocs build` or `mkdocs serve` does, in this process."""
    pytest.importorskip("material", reason="uv run --group sites has it")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("RECTO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(granite, "built_in_embedder", reuse_embedder)
    (small_book / "welcome.md").rename(small_book / "index.md")

    def make(
        options: dict[str, Any] | None = None, command: str = "build", file: str = "mkdocs.yml", **config: Any
    ) -> Path:
        values: dict[str, Any] = {"site_name": "My Book", "docs_dir": str(small_book)}
        values |= {"site_url": "https://example.org/book/", **config}
        values["plugins"] = [*config.get("plugins", []), {"recto": options or {}}]
        (tmp_path / file).write_text(json.dumps(values), "utf-8")
        loaded = load_config(str(tmp_path / file))
        loaded.plugins.on_startup(command=command, dirty=False)
        if command == "serve":
            loaded.site_url = "http://127.0.0.1:8000/book/"
        build(loaded)
        return Path(loaded.site_dir)

    yield make
    logging.getLogger("mkdocs").handlers.clear()


def collections(tmp_path: Path) -> list[str]:
    return list(EdgeStore(tmp_path / "home").collections())


def test_mkdocs_by_default(mkdocs: MkDocs, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The collection has the name of the site."""
    caplog.set_level(logging.INFO, "mkdocs")
    site = mkdocs()
    assert collections(tmp_path) == ["my-book"]
    assert "recto: Indexed 4 pages, 4 chunks: collection 'my-book'" in caplog.text
    assert script_of(site / "index.html") == {**WIDGET, "data-collection": "my-book"}
    page = (site / "index.html").read_text("utf-8")
    assert "data-recto-open" not in page, "this theme gets the floating button"
    assert not (site / "assets" / "stylesheets" / "recto.css").exists()
    mkdocs()
    assert "Nothing has changed in 4 pages" in caplog.text


def test_mkdocs_with_all_options(mkdocs: MkDocs, tmp_path: Path) -> None:
    options = {"server": "https://search.example.org", "collection": "book", "index": False, **OPTIONS}
    site = mkdocs(options, theme={"name": "material"}, plugins=["search"])
    assert collections(tmp_path) == []
    assert script_of(site / "404.html") == {
        "type": "module",
        "src": "https://search.example.org/widget.js",
        "data-collection": "book",
        "data-key": "recto_pk_x",
        "data-related": "off",
        "data-strings": '{"search": "Find \\"it\\" <here>"}',
    }
    page = (site / "index.html").read_text("utf-8")
    button = "<span>Find &quot;it&quot; &lt;here&gt;</span></button>"
    assert f'{button}<label class="md-header__button md-icon" for="__search">' in page
    assert "assets/stylesheets/recto.css" in page
    assert (site / "assets" / "stylesheets" / "recto.css").exists()


def test_the_guide_of_mkdocs(mkdocs: MkDocs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mkdocs.utils import yaml_load

    monkeypatch.setenv("RECTO_SERVER", "http://127.0.0.1:8001/")
    site, static, preview = (yaml_load(block) for block in shown("mkdocs.md", "yaml"))
    assert static["plugins"] == [{"recto": {"static": True}}]
    options = site.pop("plugins")[0]["recto"]
    page = mkdocs(options, **site) / "index.html"
    assert script_of(page)["data-key"] == "recto_pk_…"
    assert collections(tmp_path) == ["my-book"]
    page = mkdocs(preview["plugins"][0]["recto"], "serve") / "index.html"
    assert script_of(page)["src"] == "http://127.0.0.1:8001/widget.js"


def test_mkdocs_static(mkdocs: MkDocs, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It can be built for another address; the files of the model stay the same."""
    caplog.set_level(logging.INFO, "mkdocs")
    site = mkdocs({"static": True})
    assert script_of(site / "index.html") == {"type": "module", "src": "/book/recto/widget.js"}
    assert (site / "recto" / "widget.js").is_file()
    assert (site / "recto" / "data" / "meta.bin").is_file()
    assert len(list((site / "recto" / "model").rglob("*.bin"))) > 1000
    assert re.search(r"recto: Wrote the search to recto: [\d,]+ files, by words and by meaning", caplog.text)
    model = contents(site / "recto" / "model")
    site = mkdocs({"static": True}, site_url="https://example.org/other/")
    assert contents(site / "recto" / "model") == model
    assert script_of(site / "index.html")["src"] == "/other/recto/widget.js"
    urls = [chunk.page_url for chunk in EdgeStore(tmp_path / "home").open("my-book").scroll()]
    assert {url.rpartition("/other/")[0] for url in urls} == {"https://example.org"}


def test_a_preview_links_to_itself_and_does_not_index(mkdocs: MkDocs, tmp_path: Path) -> None:
    site = mkdocs(command="serve")
    rewrite = script_of(site / "index.html")["data-rewrite"]
    assert rewrite == "https://example.org/book/ http://127.0.0.1:8000/book/"
    assert collections(tmp_path) == []
    mkdocs({"index_on_serve": True}, command="serve")
    urls = [chunk.page_url for chunk in EdgeStore(tmp_path / "home").open("my-book").scroll()]
    assert {url.rpartition("/book/")[0] for url in urls} == {"https://example.org"}


def test_an_error_fails_only_a_strict_build(mkdocs: MkDocs, caplog: pytest.LogCaptureFixture) -> None:
    from mkdocs.exceptions import Abort

    assert (mkdocs(site_url="") / "index.html").exists()
    assert "The book was not indexed. Configuration error: mkdocs.yml does not state where" in caplog.text
    assert "Set site_url" in caplog.text
    with pytest.raises(Abort, match="1 errors in strict mode"):
        mkdocs(site_url="", strict=True)
    caplog.clear()
    mkdocs(file="other.yml")
    assert "Recto reads mkdocs.yml, but this site is built from other.yml" in caplog.text


@pytest.mark.parametrize(
    ("options", "config", "message"),
    [
        ({"key": "recto_sk_secret"}, {}, "recto: `key` is an admin key, which must not be published"),
        ({"server": "recto/"}, {}, "recto: `server` is not an address: 'recto/'"),
        ({"static": True, "key": "recto_pk_x"}, {}, "recto: `static` needs no `server` and no `key`"),
        ({"collection": "my book"}, {}, "`collection` is not a usable collection name: 'my book'"),
        ({}, {"site_name": "本"}, "recto: `site_name` has no Latin letters. State a name in `collection`"),
    ],
)
def test_wrong_options_of_mkdocs(
    mkdocs: MkDocs,
    options: dict[str, Any],
    config: dict[str, Any],
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from mkdocs.exceptions import Abort

    with pytest.raises(Abort):
        mkdocs(options, **config)
    assert message in caplog.text
    assert "recto_sk_secret" not in caplog.text

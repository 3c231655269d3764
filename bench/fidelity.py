"""Compare a book as Recto reads it with its built site: `python -m bench.fidelity SOURCE BUILT`.

BUILT is the directory of HTML files that a server publishes. Each page of the source is paired with the file
that a server sends for its address. The row of figures:

- pages: in both, only in the source, and only in the build. Not counted are pages that a generator makes
  (index, search, 404, tags, code listings, print versions), redirects, copies and other languages.
- titles: the title is the top heading of the built page, or its `<title>` up to the name of the site.
- anchors: the anchors of the source that are an `id` or `name` of the built page.
- headings: the ids of built headings below the title that are anchors of the source.
- order: pairs of pages that follow each other by the link to the next page, else in the navigation of the
  first page, and that have the same order in the source.
- built words: of the words of the built main content, with their counts, those that the source has; source
  words: the other way round. No page is left out. The last column has the pages with .99 of the built words.

Left out of the built content is what is not read there: navigation (also lists of contents and toctrees),
footers, buttons except tabs, forms, line numbers, permalinks, links to sources, marks of footnotes, numbers
of sections, figures and formulas, callouts, the code of documented objects, collapsed copies of listings,
excerpts of posts, labels of a theme, and hidden text. Formulas of KaTeX count as their TeX, diagrams of
Mermaid as their labels. The texts of images may be in the source, but need not. The text of the source is its
titles, headings and blocks without markup (`plain_text`) and without the numbers of lists. Words are runs of
letters and digits in lower case; a character of a script without spaces is a word.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from bench.common import new_parser, table
from recto._util.languages import UNSPACED
from recto.book.parsing import read
from recto.book.parsing.markdown.diagrams import diagram_labels
from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.protocols import Source
from recto.search.markdown import one_line, plain_text
from recto.types.book import Document

URL = "https://book.example.org/"
_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
_MAIN = (
    ".VPHome, .sl-markdown-content, .md-content__inner, .theme-doc-markdown, .vp-doc, article.bd-article, "
    ".td-content, #furo-main-content, #quarto-document-content, .book-body section.normal",
    "main article, article[role=main], div.body[role=main], div[role=main], div[itemprop=articleBody]",
    "main, article, div.body, #content",
)
"""Selectors of the main content, the most specific first."""
_DROPPED = (
    "script, style, template, noscript, nav, [role=navigation], footer, form, svg, select, "
    "button:not([role=tab]), .headerlink, .header-anchor, .hash-link, .anchorjs-link, a.anchor, "
    ".sl-anchor-link, .viewcode-link, .toctree-wrapper, .contents, #toc, #TOC, .table-of-contents, "
    ".linenos, .linenodiv, .lineno, .theme-doc-breadcrumbs, .theme-doc-toc-mobile, .pagination-nav, "
    ".line-numbers-wrapper, .md-content__button, .md-source-file, .md-tags, .theme-edit-this-page, "
    ".prev-next-area, .rst-footer-buttons, .VPDocFooter, .last-updated, .page-meta, .edit-link, .katex-html, "
    "[class*=language-] > span.lang, [x-cloak] ~ [x-cloak], .print\\:hidden, .eqno, .std-numref, "
    "a.reference[href*='#equation-'], summary[aria-label='Toggle hidden content'], .boring, .section-index, "
    ".section-number, .caption-number, .tableofcontents-wrapper, .d-print-none, .header-section-number, "
    ".appendix-number, .sd-stretched-link, .MathJax_Preview, .footnote-ref, .footnote-reference, .sr-only, "
    ".footnote > .label, .changelog > summary, [class*=visually], .screen-reader-text, "
    "[hidden][aria-hidden], .doc-labels, .conum, .conum + b, .md-post--excerpt, [class*=docCardList], "
    "thead:has(.doc-section-title), p:has(> .doc-section-title) + table > thead, #markdown-toc, #feedback, "
    "hr + .text-delta, .text-delta + ul, a.footnote, .td-byline, #feedback ~ p, ul.justify-content-between, "
    "details:has(> summary:lexbor-contains('Source code in'), > summary:lexbor-contains('Full file preview'),"
    " > summary:lexbor-contains('Other versions and'))"
)
_BARE = "section > :is(h2, h3):last-child"  # headings of lists of pages
_NEXT = "link[rel=next], a[rel~=next], a.pager-link.next, a.pagination-nav__link--next"
_BREAKS = (
    "p, div, section, article, header, li, dt, dd, tr, td, th, br, pre, h1, h2, h3, h4, h5, h6, summary, "
    "figcaption, caption, blockquote, label, button, aside, details, figure, hr, .title, .VPHero .name"
)
_LIST_NUMBER = re.compile(r"^([ \t>]*)\d{1,3}[.)][ \t]", re.MULTILINE)
_GENERATED = re.compile(
    r"(?:^|/)(?:404|search|genindex[\w-]*|(?:py-)?modindex|print(?:_page)?|toc|tags|_[\w-]+(?=/)|[\w-]+-modindex)"
    r"(?:/|\.html$|$)"
)
_MADE = re.compile(r"<meta[^>]+http-equiv=[\"']?refresh|class=[\"']?generatedIndexPage_", re.IGNORECASE)
_NO_TITLE = "<no title>"  # Sphinx writes it for a page without a heading
_TITLE_END = (" |", " -", " —", " –", " ·", " •", " ::")
_ENOUGH, _WORST, _EXAMPLES, _LONGEST = 0.99, 10, 8, 12
_SHARES = ("titles", "anchors", "headings", "order", "built words", "source words", "pages ≥ .99")


def built_file(build: Path, address: str) -> Path | None:
    """Return the file that a server would send for an address, or None."""
    path = unquote(urlsplit(address).path).lstrip("/")
    names = (path, f"{path.rstrip('/')}/index.html".lstrip("/"), f"{path}.html")
    return next((build / name for name in names if name and (build / name).is_file()), None)


def words(text: str) -> list[str]:
    """Return the words of a text in its order."""
    return _WORD.findall(text.lower())


class BuiltPage:
    """What a reader finds on a built page: titles, ids, links of the navigation, and words."""

    def __init__(self, html: str) -> None:
        tree = LexborHTMLParser(re.sub(r"\\(?:begin|end)\{split\}", "", html))  # Sphinx adds it to formulas
        self.lang = next((node.attributes["lang"] or "" for node in tree.css("html[lang]")), "").lower()
        self.ids = {node.attributes.get(key) or "" for key in ("id", "name") for node in tree.css(f"[{key}]")}
        self.next = next((node.attributes.get("href") or "" for node in tree.css(_NEXT)), "")
        navigations = [
            [link.attributes["href"] or "" for link in one.css("a[href]")]
            for one in tree.css("[class*=idebar], [id*=idebar]") or tree.css("nav, aside")
        ]
        # Others than the one with the most links are tabs, or lead to the next page.
        self.links = max(navigations, key=len, default=[])
        main = next((node for selector in _MAIN if (node := tree.css_first(selector)) is not None), tree.body)
        for node in tree.css(".katex-mathml, .mermaid, .termy pre"):
            lines = (node.css_first("annotation") or node).text().split("\n")
            node.replace_with(f" {re.sub('</?[a-z][^<>]*>', '', ' '.join(diagram_labels(lines) or lines))} ")
        for node in (node for names in (_DROPPED, _BARE) for node in tree.css(names)):
            node.decompose()
        self.headings = list(_heading_ids(main)) if main is not None else []
        for node in tree.css(_BREAKS):
            node.insert_before(" ")
            node.insert_after(" ")
        first = main.css_first("h1, section.normal > .level2 > h2") if main is not None else None
        nodes = (first or tree.css_first("h1"), tree.css_first("title"))
        self.titles = [" ".join(node.text().split()) if node is not None else "" for node in nodes]
        alts = [image.attributes["alt"] or "" for image in (main.css("img[alt]") if main is not None else [])]
        self.alternatives = Counter(words(" ".join(alts)))
        self.words = words(main.text()) if main is not None else []

    def is_titled(self, title: str) -> bool:
        """Return whether the page has a title, in its heading or before the name of the site."""
        (heading, top), name = self.titles, one_line(title)
        names = {name, " ".join(title.split())}  # one of them without what looks like a tag: `Box<T>`
        named = top.startswith(tuple(name + mark for name in names for mark in _TITLE_END))
        return bool(names & {heading.rstrip(" ¶#"), top}) or words(name) == words(heading) or named


def _heading_ids(main: LexborNode) -> Iterator[str]:
    """Yield the ids of headings; some generators write them on the section that begins with the heading."""
    for heading in main.css("h2, h3, h4, h5, h6"):
        parent = heading.parent
        around = parent if parent is not None and parent.tag in ("section", "div") else heading
        if found := heading.attributes.get("id") or around.attributes.get("id"):
            yield found


def source_text(document: Document) -> str:
    """Return the title, the headings and the text of a page, each heading once."""
    parts, path = [one_line(document.title)], document.sections[0].headings[:1] if document.sections else ()
    for section in document.sections:
        same = next(
            (at for at, (new, old) in enumerate(zip(section.headings, path, strict=False)) if new != old),
            min(len(section.headings), len(path)),
        )
        parts += map(one_line, section.headings[max(min(same, len(section.headings) - 1), 1) :])
        blocks = (block for block in section.blocks if block.kind != "heading")
        texts = (b.text if b.kind == "code" else _LIST_NUMBER.sub(r"\1", b.text) for b in blocks)
        parts += [plain_text("\n\n".join(texts))]
        path = section.headings
    return "\n\n".join(parts)


@dataclass
class Comparison:
    """Counts by column, of what is equal and of all; what differs, by kind; the pages that differ most."""

    equal: Counter[str] = field(default_factory=Counter)
    total: Counter[str] = field(default_factory=Counter)
    differing: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    worst: list[tuple[float, str, list[str], list[str]]] = field(default_factory=list)

    def add(self, column: str, equal: int, total: int) -> None:
        """Count."""
        self.equal[column] += equal
        self.total[column] += total

    def check(self, column: str, found: Iterable[str], known: Collection[str], page: str) -> None:
        """Count names, and list those that are not known."""
        for name in sorted(found):
            self.add(column, name in known, 1)
            self.differing[column] += [] if name in known else [f"{page}#{name}"]

    def figures(self) -> dict[str, str]:
        """Return the row of figures."""
        shares = {
            column: f"{self.equal[column] / self.total[column]:.4f}" if self.total[column] else "–"
            for column in _SHARES
        }
        only = {column: str(len(self.differing[column])) for column in ("only source", "only built")}
        return {"pages": str(self.total["titles"]), **only, **shares}

    def details(self) -> Iterator[str]:
        """Yield a few differences of each kind, and where the texts of the worst pages differ first."""
        yield from (f"{kind}: {line}" for kind, lines in self.differing.items() for line in lines[:_WORST])
        for share, page, built, text in self.worst:
            yield f"words: {share:.4f} {page}"
            blocks = SequenceMatcher(None, built, text, autojunk=False).get_opcodes()
            for _, start, end, first, last in [block for block in blocks if block[0] != "equal"][:_EXAMPLES]:
                sides = (" ".join(side[:_LONGEST]) for side in (built[start:end], text[first:last]))
                yield f"  after {' '.join(built[max(start - 3, 0) : start])!r}: {' | '.join(sides)}"


def compare(source: Source, build: Path, site_url: str = URL) -> Comparison:
    """Compare the pages of a book with the files of a build."""
    result, places, links = Comparison(), dict[Path, int](), list[tuple[str, list[str]]]()
    listed, known, languages = list[tuple[str, list[str]]](), set[tuple[str, ...]](), set[str]()
    for position, page in enumerate(source.pages()):
        file = built_file(build, page.url.removeprefix(site_url))
        if file is None:
            result.differing["only source"].append(f"{page.path}: {page.url}")
            continue
        built, document = BuiltPage(file.read_text("utf-8", "replace")), read(page)
        listed += [] if places else [(page.url, built.links)]
        links += [(page.url, ["", built.next])] if built.next else []
        places[file] = position
        known.add(tuple(built.words))
        languages.add(built.lang)
        is_titled = built.is_titled(document.title)
        result.add("titles", is_titled, 1)
        result.differing["titles"] += [] if is_titled else [f"{page.path}: {document.title!r} {built.titles}"]
        anchors = {anchor for section in document.sections for _, anchor in section.anchors}
        result.check("anchors", anchors, built.ids, page.path)
        result.check("headings", built.headings, anchors, page.path)
        text = words(source_text(document))
        ours, theirs = Counter(text), Counter(built.words)
        same = (ours & theirs).total()
        result.add("built words", same, theirs.total())
        result.add("source words", (ours & (theirs + built.alternatives)).total(), ours.total())
        share = same / theirs.total() if built.words else 1.0
        result.add("pages ≥ .99", share >= _ENOUGH, 1)
        result.worst = sorted([*result.worst, (share, page.path, built.words, text)])[:_WORST]
    _compare_order(result, links or listed, build, places, site_url)
    for file in sorted({file for file in build.rglob("*.html") if file.is_file()} - places.keys()):
        name = file.relative_to(build).as_posix()
        html = "" if _GENERATED.search(name) else file.read_text("utf-8", "replace")
        if not html or _MADE.search(html) or "md-post--excerpt" in html:
            continue
        other = BuiltPage(html)
        if tuple(other.words) not in known and other.lang in languages:
            result.differing["only built"].append(name)
    return result


def _compare_order(
    result: Comparison, links: Iterable[tuple[str, list[str]]], build: Path, places: dict[Path, int], url: str
) -> None:
    """Count the pairs of pages that follow each other in lists of links, and those that do in the source."""
    pairs = list[tuple[int, int]]()
    for page, listed in links:
        targets = (urljoin(page, link).partition("#")[0].removeprefix(url) for link in listed)
        files = (built_file(build, target) for target in targets)
        pairs += pairwise(places[file] for file in dict.fromkeys(files) if file in places)
    followed = Counter(after for _, after in pairs)  # pages without a place may lead to the first one
    for before, after in (pair for pair in pairs if followed[pair[1]] == 1):
        result.add("order", before < after, 1)


def main() -> None:
    """Print one row of figures, or what differs."""
    parser = new_parser(__doc__, "bench.fidelity")
    parser.add_argument("source", type=Path, help="the book, as for `recto index`")
    parser.add_argument("built", type=Path, help="the directory of the built site")
    parser.add_argument("--site-url", default=URL, help="address of BUILT (default %(default)s)")
    parser.add_argument("--generator", default="", help="as for `recto index`")
    parser.add_argument("--json", action="store_true", help="print all that differs as JSON")
    parser.add_argument("--verbose", action="store_true", help="also print what differs")
    options = parser.parse_args()
    book = open_book(options.source, SiteOptions(url=options.site_url, generator=options.generator))
    result = compare(book, options.built.resolve(), options.site_url)
    figures, details = result.figures(), [*result.details()]
    rows = [table(["book", *figures], [[options.source.name, *figures.values()]]), *details * options.verbose]
    found = json.dumps({**figures, "differences": details}, indent=2, ensure_ascii=False)
    print(found if options.json else "\n".join(rows))


if __name__ == "__main__":
    main()

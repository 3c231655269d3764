"""Test Markdown to HTML: what an author writes is shown, and nothing in it can run or load."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from time import process_time
from urllib.parse import quote, urlsplit

import pytest

from recto.server.http.views import render_markdown
from tests.browser.hostile import ATTACKS, LINKS
from tests.server.http.service import Service

CASES = {
    "raw HTML": ("a <b>c</b> &amp;", "<p>a c &amp;</p>"),
    "links": (
        "[web](https://a.example/b_(c)) <https://d.example>",
        '<p><a href="https://a.example/b_(c)">web</a> <a href="https://d.example">https://d.example</a></p>',
    ),
    "bare URLs": (
        "See https://e.example/f_g_h. Not [https://x.example](y.md).",
        '<p>See <a href="https://e.example/f_g_h">https://e.example/f_g_h</a>. '
        'Not <a href="y.md">https://x.example</a>.</p>',
    ),
    "relative links": (
        '[file](./x.md "title") [up](../y/z.md#a)',
        '<p><a href="./x.md">file</a> <a href="../y/z.md#a">up</a></p>',
    ),
    "pictures": (
        "![a dog](d.png) ![](https://x.example/y.png)",
        '<p><span class="picture">Picture: a dog</span> <a href="https://x.example/y.png">'
        '<span class="picture">Picture: without description</span></a></p>',
    ),
    "fences": (
        '```py title="x.py"\na = [1]  # <b>\n\n- b\n```\nafter',
        '<figure class="code"><figcaption>x.py</figcaption>'
        '<pre tabindex="0"><code>a = [1]  # &lt;b&gt;\n\n- b</code></pre></figure><p>after</p>',
    ),
    "tables": (
        "| a | b |\n|---|:-:|\n| `x \\| y` | 2 |\n\nend",
        '<div class="table" tabindex="0" role="group" aria-label="Table"><table>'
        '<thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead>'
        "<tbody><tr><td><code>x | y</code></td><td>2</td></tr></tbody></table></div><p>end</p>",
    ),
    "admonitions": (
        ":::tip[Well]\n\nDo **it**.\n\n:::\nafter",
        '<div class="aside" role="note"><p class="aside-title">Well</p>'
        "<p>Do <strong>it</strong>.</p></div><p>after</p>",
    ),
    "admonitions without title": (
        "> !!! note\n>     body",
        '<blockquote><div class="aside" role="note"><p class="aside-title">Note</p><p>body</p></div></blockquote>',
    ),
    "end of an admonition": (":::\nafter", "<p>after</p>"),
    "math": (
        "$$\na_b_c < d\n$$",
        '<figure class="code"><pre tabindex="0"><code>$$\na_b_c &lt; d\n$$</code></pre></figure>',
    ),
    "headings and rules": ("## A `b` {#x}\ntext\n\n---\n", "<h2>A <code>b</code></h2><p>text</p><hr />"),
}
TAGS = {
    "a", "blockquote", "br", "code", "div", "em", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li",
    "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"aria-label", "class", "href", "role", "scope", "start", "tabindex"}
HOSTILE = (
    *ATTACKS,
    *LINKS,
    "[a](java&#x09;script:window.ran=1)",
    "[a](&#1;javascript:window.ran=1)",
    "[a](javascript&colon;window.ran=1)",
    "[a](\\javascript:window.ran=1)",
    "[a](file:///etc/passwd)",
    "[a](\\\\elsewhere.invalid/x)",
    "<JAVASCRIPT:window.ran=1> <data:text/html,x> <reader@elsewhere.invalid>",
    "![a](data:image/svg+xml;base64,PHN2Zz48L3N2Zz4=)",
    '![" onerror="window.ran=1](https://elsewhere.invalid/x.png)',
    '[a](https://elsewhere.invalid/ "&quot; onclick=window.ran=1")',
    'https://elsewhere.invalid/"onclick=window.ran=1',
    '```"><script>\nx\n```',
    '``` title="</figcaption><script>"\nx\n```',
    ":::note</p><script>window.ran=1</script>\nx\n:::",
    "| <img src=x onerror=window.ran=1> |\n|:-:|\n| <b style='x'>y</b> |",
    '## <img src=x onerror=window.ran=1> {#a"onclick=window.ran=1}',
    "[x]: javascript:window.ran=1\n\n[x] [y][x]",
    "\0<script>\ud800",
)
HUGE = [
    *(part * (3_000 // len(part)) for part in ("[", "`", "*", "|", "_a", "![", "<", "**a", ":::a\n")),
    *("*" * 20_000, "> " * 1_500 + "a", "- " * 1_500 + "a"),
    "|a" * 150 + "\n" + "|-" * 150 + "\n" + "x\n" * 400,
]


class Elements(HTMLParser):
    """Collects the elements of rendered text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_markdown_becomes_html(text: str, expected: str) -> None:
    assert re.sub(r"(?<=>)\n(?=<)|\n$|(?<=<li>)\n|(?<=b)\n(?=<ol>)", "", render_markdown(text)) == expected


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_has_only_safe_elements(text: str) -> None:
    found = Elements(render_markdown(text))
    assert found.tags <= TAGS
    assert found.attributes <= ATTRIBUTES
    for link in found.links:
        assert urlsplit(link).scheme in ("", "http", "https"), link
        assert not link.startswith(("//", "\\")), link


@pytest.mark.parametrize("text", HUGE, ids=lambda text: text[:4])
def test_huge_nesting_is_rendered_quickly_and_completely(text: str) -> None:
    began = process_time()  # not the wall clock: other processes may be busy
    html = render_markdown(text)
    assert process_time() - began < 5
    assert html
    if text.endswith(" a"):
        assert "a</code>" in html, "text below the maximum nesting is not lost"


def test_html_is_rendered_only_on_request(service: Service) -> None:
    url = "/v1/pages/" + quote("local://docs/docs/intro", safe="")
    plain, rendered = service.get(url).json(), service.get(f"{url}?html=true").json()
    assert all("html" not in chunk for chunk in plain["chunks"])
    html = [render_markdown(chunk["text"]) for chunk in plain["chunks"]]
    assert [chunk["html"] for chunk in rendered["chunks"]] == html
    for path, body in (("/v1/search", {"query": "robot"}), ("/v1/related", {"selection": "A robot walks."})):
        assert all("html" not in hit for hit in service.post(path, body).json()["results"])
        for hit in service.post(path, {**body, "html": True}).json()["results"]:
            assert hit["html"] == render_markdown(hit["text"])
    assert service.post("/v1/search", {"query": "robot", "html": 1}).error == "html must be true or false"
    assert service.post("/v1/batch", {"queries": ["robot"], "html": True}).status == 400


def test_matches_on_a_page(service: Service) -> None:
    url = "/v1/pages/" + quote("local://docs/docs/module-1-ros2/01-ros2-fundamentals", safe="")
    assert not any(chunk["matches"] for chunk in service.get(url).json()["chunks"])
    found = service.get(f"{url}?query=Which+tool+builds+a+workspace").json()["chunks"]
    assert "workspace" in {word.lower() for chunk in found for word in chunk["matches"]}
    assert service.get(f"{url}?query=%20").status == 200
    assert service.get(f"{url}?query={'a' * 3000}").status == 200

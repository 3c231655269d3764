"""Pages of websites become the same sections and blocks as their Markdown would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.book.parsing.html import parse_html
from recto.book.parsing.html.tokens import Tag, read_head, simplify, tokens
from recto.types.book import Document

# What four generators make of the same page, without what their themes put around it.
DOCUSAURUS = """<!doctype html><html><head><title data-rh="true">Hives | Bee Book</title></head>
<body><nav class="navbar"><a href="/">Bee Book</a></nav><main><article><nav aria-label="Breadcrumbs"><ul><li>Bees</li></ul></nav>
<div class="tocCollapsible_x theme-doc-toc-mobile"><button>On this page</button></div>
<div class="theme-doc-markdown markdown"><header><h1>Hives</h1></header>
<p>A hive is a <em>box</em>. See <a href="/docs/honey">honey</a> &amp; <code>count(hive)</code>.</p>
<h2 class="anchor" id="counting">Counting <code>bees</code><a href="#counting" class="hash-link">\u200b</a></h2>
<div class="language-python theme-code-block"><div class="codeBlockTitle_x">bees.py</div><div class="codeBlockContent_x">
<pre class="prism-code language-python"><code class="codeBlockLines_x"><span class="token-line codeLine_x"><span
 class="codeLineNumber_x"></span><span class="token keyword">def</span><span class="token plain"> count(hive):</span><br></span><span
 class="token-line"><span class="token plain" style="display:inline-block"></span><br></span><span class="token-line"><span
 class="token plain">    return </span><span class="token">1 &lt; 2</span><br></span></code></pre>
<div class="buttonGroup_x"><button aria-label="Copy code to clipboard"><span aria-hidden="true">Copy</span></button></div></div></div>
<div class="theme-admonition theme-admonition-tip alert"><div class="admonitionHeading_x"><span class="admonitionIcon_x"><svg><path
 d="M0"></path></svg></span>Good idea</div><div class="admonitionContent_x"><p>Wear a veil.</p><ul><li>and gloves</li></ul></div></div>
<div class="theme-tabs-container tabs-container tabList_x"><ul role="tablist" class="tabs"><li role="tab" class="tabs__item">Linux</li>
<li role="tab" class="tabs__item">Windows</li></ul><div class="margin-top--md"><div role="tabpanel"><p>Use apt.</p></div>
<div role="tabpanel" hidden=""><p>Use winget.</p></div></div></div>
<p>Energy is <span class="katex"><span class="katex-mathml"><math><semantics><mrow><mi>E</mi><mo>=</mo></mrow><annotation
 encoding="application/x-tex">E = mc^2</annotation></semantics></math></span><span class="katex-html" aria-hidden="true">E=mc2</span></span>.
</p></div><footer class="theme-doc-footer"><a href="x">Edit this page</a></footer></article>
<nav class="pagination-nav"><a>Next</a></nav></main><footer>Copyright</footer><script>alert("no")</script></body></html>"""

MKDOCS = """<main class="md-main"><article class="md-content__inner md-typeset"><a class="md-content__button md-icon">edit</a>
<h1 id="hives">Hives<a class="headerlink" href="#hives">¶</a></h1><p>A hive is a box.</p>
<h2 id="counting_1">Counting<a class="headerlink" href="#counting_1">¶</a></h2><div class="language-python highlight">
<table class="highlighttable"><tr><th colspan="2" class="filename"><span class="filename">bees.py</span></th></tr><tr><td
 class="linenos"><div class="linenodiv"><pre><span class="normal">1</span></pre></div></td><td class="code"><div><pre><span></span><code><span
 class="k">if</span> x:
    <span class="n">y</span>
</code></pre></div></td></tr></table></div><div class="admonition tip"><p class="admonition-title">Good idea</p><p>Wear a veil.</p></div>
<div class="tabbed-set tabbed-alternate"><input type="radio"><div class="tabbed-labels"><label>Linux</label><label>Windows</label></div>
<div class="tabbed-content"><div class="tabbed-block"><p>Use apt.</p></div><div class="tabbed-block"><p>Use winget.</p></div></div></div>
<details class="note"><summary>More</summary><p>Wisdom.</p></details></article></main>"""

SPHINX = """<div class="documentwrapper"><div class="body" role="main"><section id="hives">
<h1>Hives<a class="headerlink" href="#hives">¶</a></h1>
<div class="toctree-wrapper compound"><ul><li><a href="x.html">Other</a></li></ul></div>
<section id="counting"><span id="old-name"></span><h2>Counting<a class="headerlink" href="#counting">#</a></h2>
<div class="highlight-python notranslate"><div class="highlight"><pre><span></span><span class="k">if</span> <span class="n">x</span>:
    <span class="n">y</span>
</pre></div></div>
<dl class="glossary"><dt id="term-queen">queen</dt><dd><p>Lays eggs.</p></dd><dt id="term-drone">drone</dt><dd><p>Does not.</p></dd></dl>
</section></section></div></div><div class="sphinxsidebar"><h3>Navigation</h3></div>"""

VITEPRESS = """<main class="main"><div class="vp-doc _hives"><div><h1 id="hives" tabindex="-1">Hives <a class="header-anchor"
 href="#hives">\u200b</a></h1><div class="tip custom-block"><p class="custom-block-title">Good idea</p><p>Wear a veil.</p></div>
<div class="vp-code-group"><div class="tabs"><input type="radio" id="t1"><label for="t1">Linux</label><label>Windows</label></div>
<div class="blocks"><div class="language-sh active"><button class="copy"></button><span class="lang">sh</span><pre class="shiki"><code><span
 class="line"><span>apt install bees</span></span></code></pre></div><div class="language-sh"><span class="lang">sh</span><pre><code><span
 class="line">winget install bees</span></code></pre><div class="line-numbers-wrapper"><span class="line-number">1</span></div></div>
</div></div></div></div></main>"""
TABS = [("paragraph", text) for text in ("Linux", "Use apt.", "Windows", "Use winget.")]


def blocks(document: Document) -> list[tuple[str, str]]:
    return [(block.kind, block.text) for section in document.sections for block in section.blocks]


def body(html: str) -> list[tuple[str, str]]:
    return blocks(parse_html(f"<main>{html}</main>"))


def test_docusaurus() -> None:
    document = parse_html(DOCUSAURUS)
    assert document.title == "Hives"
    first, second = document.sections
    assert (first.headings, first.level, first.anchor, first.line) == (("Hives",), 1, "", 1)
    assert (second.headings, second.level, second.anchor) == (("Hives", "Counting bees"), 2, "counting")
    assert blocks(document) == [
        ("paragraph", "A hive is a box. See honey & `count(hive)`."),
        ("paragraph", "bees.py"),
        ("code", "```python\ndef count(hive):\n\n    return 1 < 2\n```"),
        ("group", "Good idea\n\nWear a veil.\n- and gloves"),
        *TABS,
        ("paragraph", "Energy is $E = mc^2$."),
    ]


def test_mkdocs() -> None:
    document = parse_html(MKDOCS)
    assert [(section.headings[-1], section.anchor, section.anchors) for section in document.sections] == [
        ("Hives", "", ((1, "hives"),)),
        ("Counting", "counting_1", ((5, "counting_1"),)),
    ]
    assert blocks(document)[1:] == [
        ("paragraph", "bees.py"),
        ("code", "```python\nif x:\n    y\n```"),
        ("group", "Good idea\n\nWear a veil."),
        *TABS,
        ("group", "More\n\nWisdom."),
    ]


def test_sphinx() -> None:
    document = parse_html(SPHINX)
    (section,) = document.sections
    assert (document.title, section.headings) == ("Hives", ("Hives", "Counting"))
    names = [name for _, name in section.anchors]
    assert section.anchor in ("counting", "old-name")
    assert names == ["hives", "counting", "old-name", "term-queen", "term-drone"]
    code, glossary = blocks(document)
    assert code == ("code", "```python\nif x:\n    y\n```")
    assert glossary == ("list", "queen\n: Lays eggs.\ndrone\n: Does not.")
    lines = {name: line for line, name in section.anchors}
    assert lines["term-drone"] - lines["term-queen"] == 2


def test_vitepress() -> None:
    document = parse_html(VITEPRESS)
    assert document.title == "Hives"
    assert blocks(document) == [
        ("group", "Good idea\n\nWear a veil."),
        ("paragraph", "Linux"),
        ("code", "```sh\napt install bees\n```"),
        ("paragraph", "Windows"),
        ("code", "```sh\nwinget install bees\n```"),
    ]


@pytest.mark.parametrize(
    "html",
    [
        '<div id="content"><main><h1>T</h1><p>Words.</p></main></div>',
        '<div role="main"><h1>T</h1><p>Words.</p></div>',
        '<div class="document"><h1>T</h1><p>Words.</p></div>',
        "<main><article><h1>T</h1><p>Words.</p></article><p>Chat with us</p></main>",
        '<main><h1>T</h1><div class="sl-markdown-content"><p>Words.</p></div></main>',
        '<div class="a"><a href="x">Home and away</a></div><div class="b"><h1>T</h1><p>Words.</p></div>',
    ],
)
def test_main_content_is_found(html: str) -> None:
    document = parse_html(f"<body><div><nav>Menu</nav>{html}<footer>All rights</footer></div></body>")
    assert (document.title, blocks(document)) == ("T", [("paragraph", "Words.")])


def test_lists_are_nested_and_numbered() -> None:
    html = "<ul><li>one<li><p>two</p><ol start=3><li>a<li>b</ol><p>more</p></li></ul>"
    document = parse_html(f"<main>{html}</main>")
    (block,) = document.sections[0].blocks
    assert block.text == "- one\n- two\n  3. a\n  4. b\n\n  more"
    assert block.cuts == ((1, 2),)


def test_tables() -> None:
    html = (
        "<table><caption>Bees</caption><thead><tr><th>Kind<th>Note</thead><tr><td colspan=2>all<tr><td>a | b<td><pre>x\ny</pre>"
        "<tr><td><table><tr><td>in<td>side</table><td><p>one</p><p>two</p></table>"
    )
    assert body(html) == [
        ("paragraph", "Bees"),
        ("table", "| Kind | Note |\n| --- | --- |\n| all |  |\n| a \\| b | `x y` |\n| in side | one two |"),
    ]


def test_code_is_verbatim() -> None:
    assert body("<pre><code class='lang-md'>```\n  a &amp;lt; b\n```\n\n</code></pre>") == [
        ("code", "````md\n```\n  a &lt; b\n```\n````")
    ]
    assert body("<p>Use <code>a`b</code>, <code>c</code>.") == [("paragraph", "Use ``a`b``, `c`.")]
    lines = "".join(f"<div class=ec-line><div class=code>{line}</div></div>" for line in ("a", "  b"))
    assert body(f"<pre data-language=x><code>{lines}</code></pre>") == [("code", "```\na\n  b\n```")]


def test_quotes_groups_and_their_headings() -> None:
    assert body("<blockquote><p>a</p><p>b</p></blockquote>") == [("group", "> a\n>\n> b")]
    details = '<details><summary>S</summary><h3 id="inner">In</h3><p>t</p></details>'
    (section,) = parse_html(f"<main><h2 id=x>X</h2>{details}</main>").sections
    assert section.blocks[0].text == "S\n\n### In\n\nt"
    assert section.anchors == ((1, "x"), (5, "inner"))


def test_named_anchors_and_empty_headings() -> None:
    html = '<h2><a name="old"></a>A</h2><h3 id="b">B</h3><p>t</p><a id="here"></a><p>u</p><h2 id="last">Empty</h2>'
    (section,) = parse_html(f"<main>{html}</main>", title="T").sections
    assert (section.headings, section.anchor) == (("T", "A", "B"), "b")
    assert section.anchors == ((1, "old"), (3, "b"), (7, "here"), (9, "last"))


def test_hidden_content_is_dropped() -> None:
    html = (
        "<p>seen</p><p hidden>no</p><p style='display: none'>no</p><p aria-hidden=true>no</p><aside>no</aside><form>no</form>"
        "<!-- no --><noscript>no</noscript><template>no</template><svg><text>no</text></svg><style>no</style><img alt=no>"
        "<button>no</button><iframe src=x>no</iframe><nav>no</nav><div class='toc'>no</div>"
    )
    assert body(html) == [("paragraph", "seen")]


def test_breaks_spaces_and_math_scripts() -> None:
    html = "<p>a\n  b&nbsp;<b>c</b><br>d</p>e <i>f</i>"
    html += '<p>x <span class="MathJax">x2</span><script type="math/tex">x^2 < 3</script>'
    assert [text for _, text in body(html)] == ["a b c\nd", "e f", "x $x^2 < 3$"]


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ('<title>W | Site</title><meta property="og:title" content="Shared">', "Shared"),
        ("<title>Page - Part | The Site</title>", "Page - Part"),
        ("<title>A-B</title>", "A-B"),
        ("<title>Fish &amp; Chips — Site documentation</title>", "Fish & Chips"),
        ("", "given"),
    ],
)
def test_titles(head: str, title: str) -> None:
    assert parse_html(f"<head>{head}</head><main><p>x</p></main>", title="given").title == title


def test_lines_are_consecutive() -> None:
    for html in (DOCUSAURUS, MKDOCS, SPHINX, VITEPRESS):
        last = 0
        for section in parse_html(html).sections:
            assert section.line > last
            assert all(line >= 1 for line, _ in section.anchors)
            last = max(last, section.line)
            for block in section.blocks:
                assert block.first > last or block.first == section.line == 1
                assert block.last == block.first + block.text.count("\n")
                assert all(block.first <= line <= block.last for lines in block.cuts for line in lines)
                last = block.last


NESTED = ("<ul><li>", "<table><tr><td>", "<blockquote>")
OPEN = ("<!-- ", '<a b="', "<a ", "<")
HOSTILE = [
    "<div>" * 40_000 + "word",
    "<div " + " ".join(f"a{number}=1" for number in range(100_000)) + ">word</div>",
    f'<p title="{"x" * (4 << 20)}">word</p>',
    "".join(f"<font a{number}>" for number in range(2000)) + "<p>" * 20_000 + "word",
    "".join(f"<code id=a{number}>" for number in range(2000)) + "<p>" * 2000 + "word",
    *(mark * 10_000 + "word" for mark in NESTED),
    "<table><tr>" + "<td>x" * 10_000 + "<td>word",
    "".join(f"<span id=x{number}></span>" for number in range(10_000)) + "word",
    *("word " + mark * 40_000 for mark in OPEN),
    "<math><p>" * 5_000 + "word",
    "<div class=tabs><label>x</label></div>" * 2_000 + "word",
    "<p>word</p><h2>" + "<a>" * 10_000,
    "word" + "<template>" * 10_000,
]


@pytest.mark.parametrize("html", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_pages_are_read(html: str) -> None:
    """Without `simplify` the parser takes minutes for the first of these, and much memory for the fourth."""
    assert "word" in " ".join(text for _, text in blocks(parse_html(html)))


def test_a_page_with_too_many_tags_is_refused() -> None:
    assert parse_html("<p>word</p>" * 40_000).sections
    with pytest.raises(ValueError, match="more than 45000 tags"):
        parse_html("<br>" * 45_001)


@given(st.text(alphabet="<>/=\"' abdlipretu!-&;#x1\n", max_size=300))
def test_any_html_is_parsed(html: str) -> None:
    parse_html(html)
    read_head(html)
    # What was tamed is simplify: no emphasis, nothing that a script could be.
    names = {token.name for token in tokens(simplify(html)) if isinstance(token, Tag)}
    assert not names & {"b", "i", "script", "a", "code"}

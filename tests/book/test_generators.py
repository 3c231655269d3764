"""Test how the sites of generators are recognised and read: small books, without building them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from recto.book.chunking import leftovers
from recto.book.parsing import read
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.parsing.markdown.headings import slugger
from recto.book.sources.options import BookFile, SiteOptions
from recto.book.sources.site import Site
from recto.book.sources.tree import GENERATORS, open_book
from recto.errors import ConfigurationError, InvalidArgument, InvalidOption, RectoError
from recto.search.markdown import plain_text
from recto.types.book import Page
from tests.book.files import write, write_pages

URL = "https://book.example.org/"
SMALL_BOOKS = tomllib.loads(Path(__file__).with_name("small_books.toml").read_text("utf-8"))
MDBOOK: dict[str, str] = SMALL_BOOKS.pop("mdbook")["files"]


def pages_of(root: Path, **options: str) -> dict[str, Page]:
    """Return the pages of a book by their paths, in their order."""
    source = open_book(root, SiteOptions(url=URL, **options))  # type: ignore[arg-type]
    pages = {page.path: page for page in source.pages()}
    assert source.failed == []
    return pages


def addresses(pages: Mapping[str, Page]) -> dict[str, str]:
    return {path: page.url.removeprefix(URL) for path, page in pages.items()}


def text_of(page: Page) -> str:
    return "\n".join(block.text for section in read(page).sections for block in section.blocks)


def test_mdbook(tmp_path: Path) -> None:
    pages = pages_of(write(tmp_path / "lights", MDBOOK))
    urls = ["index.html", "tower.html", "ch01-stairs.html", "lamp.html", "sea/waves.html"]
    assert list(addresses(pages).values()) == urls
    assert read(pages["tower.md"]).title == "The tower"
    modules = {path: (page.module, page.module_title) for path, page in pages.items()}
    assert modules["ch01-stairs.md"] == modules["tower.md"] == ("the-tower", "The tower")
    assert modules["README.md"] == modules["lamp.md"] == ("intro", "Preface")
    assert text_of(pages["tower.md"]) == "The beacon is lit."
    assert text_of(pages["ch01-stairs.md"]) == "```python\nclimb()\n```\n```python\na = 1\nb = 2\n```"
    assert text_of(pages["lamp.md"]).startswith("```python\na = 1")
    assert text_of(pages["lamp.md"]).endswith(
        "\nThe `{{#include}}` and {{#toc}}{{/toc}}\n{{#include escaped.md}}"
    )
    assert addresses(pages_of(tmp_path / "lights/src/sea")) == {"sea/waves.md": "sea/waves.html"}, "a part"


def test_mdbook_makes_dashes_and_reads_attributes_of_headings(tmp_path: Path) -> None:
    text = "# Up -- down {.a}\n\nA.\n\n## Lamp { #own .b }\n\nB.\n"
    files = {"book.toml": "", "src/SUMMARY.md": "- [A](a.md)\n", "src/a.md": text}
    (page,) = map(read, pages_of(write(tmp_path / "lights", files)).values())
    assert page.title == "Up -- down"
    assert [anchor for section in page.sections for _, anchor in section.anchors] == ["up--down", "own"]


def test_mdbook_hides_lines_of_rust(tmp_path: Path) -> None:
    code = "# fn main() {\n#\n#[derive(Debug)]\nlight();\n# }\n"
    text = f"# A\n\n```rust,ignore\n{code}```\n\n```sh\n# light\n```\n"
    files = {"book.toml": "", "src/SUMMARY.md": "- [A](a.md)\n", "src/a.md": text}
    pages = pages_of(write(tmp_path / "lights", files))
    shown = "```rust,ignore\n#[derive(Debug)]\nlight();\n```\n```sh\n# light\n```"
    assert text_of(pages["a.md"]) == shown


def test_a_failed_include_says_why(tmp_path: Path) -> None:
    root = write(tmp_path / "lights", MDBOOK)
    source = open_book(root / "src")
    list(source.pages())
    assert any("gone.md (missing)" in note for note in source.notes)
    write(root, {"src/tower.md": "# T\n\n{{#include ../../outside.md}}\n", "../outside.md": "No."})
    list(source.pages())
    assert any("which is not in a git repository: run `git init`" in note for note in source.notes)


def test_the_generator_can_be_chosen(tmp_path: Path) -> None:
    root = write(tmp_path / "lights", MDBOOK)
    plain = pages_of(root / "src", generator="plain")
    assert "unlisted.md" in plain
    assert plain["tower.md"].url == f"{URL}tower"
    assert "SUMMARY.md" not in plain
    with pytest.raises(InvalidOption, match="not part of a hugo site"):
        open_book(root, SiteOptions(generator="hugo"))
    with pytest.raises(InvalidOption, match="There is no generator 'mdbok'") as error:
        open_book(root, SiteOptions(generator="mdbok"))
    assert "Did you mean mdbook?" in error.value.hint
    write(root / "src", {"recto.toml": '[site]\ngenerator = "plain"\n'})
    assert "unlisted.md" in pages_of(root / "src")


@dataclass(frozen=True)
class SmallBook:
    """The files of a site, the addresses of its pages in their order, and the text, title, part or anchors of some."""

    files: dict[str, str]
    addresses: dict[str, str]
    texts: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    anchors: dict[str, str] = field(default_factory=dict)


BOOKS = {name: SmallBook(**book) for name, book in SMALL_BOOKS.items()}


@pytest.mark.parametrize("generator", BOOKS)
def test_a_small_book(generator: str, tmp_path: Path) -> None:
    book = BOOKS[generator]
    pages = pages_of(write(tmp_path / "lights", book.files))
    assert list(addresses(pages).items()) == list(book.addresses.items())
    assert {path: text_of(pages[path]).strip() for path in book.texts} == book.texts
    assert {path: read(pages[path]).title for path in book.titles} == book.titles
    assert {path: pages[path].module_title for path in book.parts} == book.parts
    for path, anchors in book.anchors.items():
        sections = read(pages[path]).sections
        assert " ".join(anchor for section in sections for _, anchor in section.anchors) == anchors


def test_an_escaped_address_of_bookdown(tmp_path: Path) -> None:
    index = "---\nurl: 'https\\://lights.example/'\n---\n# Welcome\n\nHello.\n"
    book = open_book(write(tmp_path / "lights", {"_bookdown.yml": "", "index.Rmd": index}))
    assert [page.url for page in book.pages()] == ["https://lights.example/"]


def test_jekyll_reads_markdown_in_html_and_names_what_liquid_computes(tmp_path: Path) -> None:
    text = """---
title: Lamp
---
<div class="box" markdown="1">
Use `<oil lamp>` and `{:toc}`.
</div>
```html
Oil
{: .slow }
</div>
```

{% for lamp in site.lamps %}
{% include badge.html version="1" %}
{% endfor %}
{{ site.data.oil }} [Home]({{ site.baseurl }}/)
"""
    files = {"_config.yml": "theme: minima\n", "Gemfile": "", "lamp.md": text}
    source = open_book(write(tmp_path / "lights", files), SiteOptions(url=URL))
    (page,) = source.pages()
    shown = "\n".join(plain_text(block.text) for section in read(page).sections for block in section.blocks)
    assert shown.split("\n")[:4] == ["Use <oil lamp> and {:toc}.", "Oil", "{: .slow }", "</div>"]
    computed = "for (1 place), include badge.html (1 place), {{ site.data.oil }} (1 place)"
    assert f"Text that the site computes is not read: {computed}." in source.notes


@pytest.mark.parametrize("generator", ["bookdown", "quarto"])
def test_inline_code_of_r_is_shown_if_it_is_a_text(generator: str, tmp_path: Path) -> None:
    text = """# Lamp

Use `r 'oil'` and `r nrow(lamps)` lamps, `r knitr::inline_expr('x')`.`r if (knitr::is_latex_output()) 'No'`

`r if (knitr::is_html_output()) '
## Wick {-}
'`

```{r}`r ''`
1
```
"""
    names = {"bookdown": ("_bookdown.yml", "index.Rmd"), "quarto": ("_quarto.yml", "index.qmd")}
    config, name = names[generator]
    source = open_book(write(tmp_path / "lights", {config: "{}", name: text}), SiteOptions(url=URL))
    (page,) = source.pages()
    assert text_of(page) == "Use oil and  lamps, `r x`.\n```r\n1\n```"
    assert [section.headings[-1] for section in read(page).sections] == ["Lamp", "Wick"]
    assert source.notes == ["Text that the site computes is not read: `r …` (1 place)."]


def test_bookdown_needs_no_configuration(tmp_path: Path) -> None:
    files = {
        "index.Rmd": "---\nsite: bookdown::bookdown_site\n---\n# Welcome\n\nHello.\n",
        "a.Rmd": "# One--two -- three\n\nA\n\nC\nD\n-----\n",
    }
    pages = pages_of(write(tmp_path / "lights", files))
    assert list(addresses(pages).values()) == ["", "onetwo-three.html"]
    assert [anchor for _, anchor in read(pages["a.Rmd"]).sections[0].anchors] == ["onetwo-three"]


def test_bookdown_leaves_out_latex_and_numbers_theorems(tmp_path: Path) -> None:
    text = (
        "# Lamps\n\nOil\\index{oil!\\textbf{lamp}} and `\\index{x}`.\n\n::: {.theorem #a name='P'}\nA\n:::\n\n"
        "::: {.definition #def:b}\nB\n:::\n\n::: {.note #c}\nC\n:::\n\n\\backmatter\n"
    )
    (page,) = open_book(write(tmp_path / "lights", {"_bookdown.yml": "", "index.Rmd": text})).pages()
    assert text_of(page) == "Oil and `\\index{x}`.\nA\nB\nC"
    assert [id for _, id in read(page).sections[0].anchors] == ["lamps", "thm:a", "def:b", "c"]


BOOKDOWN_PAGES = {  # as bookdown 0.32 publishes the small book with an appendix
    "chapter": "@ steps.html the-lamp.html roof.html words.html",
    "chapter+number": "@ 1-steps.html 2-the-lamp.html 3-roof.html A-words.html",
    "section": "@ exercises.html steps.html exercises-1.html the-lamp.html exercises-2.html roof.html gutter.html "
    "words.html more-words.html",
    "section+number": "@ exercises.html 1-steps.html 1.1-exercises-1.html 2-the-lamp.html exercises-2.html "
    "3-roof.html 3.1-gutter.html A-words.html A.1-more-words.html",
    "rmd": "@ 01-tower.html 02-lamp.html 03-roof.html",
    "none": "lights.html lights.html?01-tower lights.html?02-lamp lights.html?03-roof",
}
ROOF = "# Roof\n\nFlat.\n\n```{exercise, name='A'}\nClimb.\n```\n\n::: {.note}\nMind.\n:::\n\n## Gutter\n\nWet.\n\n### Rain\n\n\n# (APPENDIX) Appendix {-}\n\n# Words\n\nA.\n\n## More words\n\nB.\n"


@pytest.mark.parametrize("split", BOOKDOWN_PAGES)
def test_the_pages_of_bookdown(split: str, tmp_path: Path) -> None:
    files = BOOKS["bookdown"].files
    output = f"output:\n  bookdown::pdf_book: default\n  bookdown::gitbook:\n    split_by: {split}\n"
    index = files["index.Rmd"].replace("---\n", f"---\n{output}", 1)
    pages = pages_of(write(tmp_path / "lights", files | {"index.Rmd": index, "03-roof.Rmd": ROOF}))
    assert list(addresses(pages).values()) == BOOKDOWN_PAGES[split].replace("@", "").split(" ")
    if split != "section":
        return
    gutter, words = (read(pages[f"03-roof.Rmd/{id}"]) for id in ("gutter", "words"))
    assert (gutter.title, gutter.sections[0].headings) == ("Gutter", ("Gutter",))
    assert gutter.sections[1].headings == ("Gutter", "Rain")
    assert (words.title, text_of(pages["03-roof.Rmd/words"])) == ("Words", "A.")
    assert pages["03-roof.Rmd/gutter"].lines[0] == 13
    assert text_of(pages["03-roof.Rmd"]) == "Flat.\n**Exercise**\nClimb.\nMind."
    unpublished = open_book(tmp_path / "lights").pages()
    assert [page.url for page in unpublished][-1] == "local://docs/docs/03-roof/more-words"


def test_comments_of_a_summary_are_not_read(tmp_path: Path) -> None:
    root = write(tmp_path / "lights", MDBOOK)
    summary = root / "src/SUMMARY.md"
    summary.write_text(f"<!-- [Unlisted](unlisted.md)\n\n# Part -->\n{summary.read_text()}", "utf-8")
    assert "unlisted.md" not in pages_of(root)


def test_more_files_that_the_navigation_does_not_list_than_pages_are_named(tmp_path: Path) -> None:
    files = {"book.toml": "", "src/SUMMARY.md": "- [A](a.md)\n", "src/a.md": "# A\n\n{{#include b.md}}\n"}
    root = write(tmp_path / "few", files)
    write_pages(root / "src", "b.md", "c.md")
    book = open_book(root)
    assert [page.path for page in book.pages()] == ["a.md"]
    assert not any("navigation" in note for note in book.notes), "as many as pages; one is included"
    write_pages(root / "src", "d.md", "e.md", "f.md")
    book = open_book(root)
    list(book.pages())
    assert "4 files not in the navigation, so not indexed: c.md, d.md, e.md, ..." in book.notes


def test_a_locale_of_starlight_in_another_case(tmp_path: Path) -> None:
    config = STARLIGHT % "locales: { root: {}, 'zh-cn': {} }"
    root = write_pages(tmp_path / "lights", "src/content/docs/a.md", "src/content/docs/zh-CN/a.md")
    write(root, {"astro.config.mjs": config})
    assert list(pages_of(root)) == ["a.md"]
    assert addresses(pages_of(root, locale="zh-cn")) == {"zh-CN/a.md": "zh-cn/a/"}


HUGO = {
    "hugo.toml": "[params.lamp]\nkind = 'Argand'\n[markup.goldmark.parser]\nautoHeadingIDType = 'blackfriday'\n[permalinks.page]\nblog = '/:year/:month/:slug/'\n",
    "i18n/en/en.toml": '[next_heading]\nother = "What\'s next"\n',
    "content/includes/index.md": "---\nheadless: true\n---\n",
    "content/includes/oil.md": "Mind the oil.",
    "content/news/index.html": "<p>A bundle.</p>",
    "content/news/mirror.md": "Mind the mirror.",
    "content/blog/next.md": "---\ndate: 2999-01-01\n---\nText.",
    "content/blog/old.md": "---\nexpiryDate: 2001-01-01\n---\nText.",
    "content/blog/a.md": "---\ndate: 2024-05-06\n---\n# A\n\nText.",
    "content/blog/b.md": "---\ndate: 2024-05-06\nurl: /:section/:day/:slug/\n---\n# B\n\nText.",
    "content/docs/_index.md": '{{< include "oil.md" >}}\n\n## {{% heading "next" %}}\n\nA.\n\n## {{% heading "see" %}}\n\nB.',
    "content/docs/tabs.md": """+++
oil = 'Rape'
description = 'About oil.'
weight = 1
+++
{{< tabpane >}}
{{< tab header="Shell" lang="bash" >}}
# Not a heading
{{< /tab >}}
{{< /tabpane >}}

- {{< param "oil" >}} {{< param lamp.kind >}} lamps
- Items:
  - {{% mark X %}}
    First

`<a id="no">`

## The -- end <a id="old"></a>
""",
}


def test_hugo_headings_includes_bundles_and_dates(tmp_path: Path) -> None:
    source = open_book(write(tmp_path / "lights", HUGO), SiteOptions(url=URL))
    pages = {page.path: page for page in source.pages()}
    urls = {
        "blog/a.md": "2024/05/a/",
        "blog/b.md": "blog/06/b/",
        "docs/_index.md": "docs/",
        "docs/tabs.md": "docs/tabs/",
    }
    assert addresses(pages) == urls
    document = read(pages["docs/_index.md"])
    assert document.sections[0].blocks[0].text == "Mind the oil."
    assert [section.anchor for section in document.sections] == ["", "what-s-next", "see"]
    assert document.sections[1].headings[-1] == "What's next"
    tabs, end = read(pages["docs/tabs.md"]).sections
    assert [block.text for block in tabs.blocks] == [
        "About oil.",
        '```bash title="Shell"\n# Not a heading\n```',
        "- Rape Argand lamps\n- Items:\n    First",
        '`<a id="no">`',
    ]
    assert pages["docs/tabs.md"].lines[tabs.blocks[1].first - 1] == 7
    assert (tabs.anchors, [anchor for _, anchor in end.anchors]) == ((), ["the-end", "old"])
    assert slugger("hugo")("The -- end --no ") == "the--end---no"
    note = "2 files of page bundles are no pages; pages may include them: includes (1), news (1)."
    assert note in source.notes
    assert "Left out: 1 expired page." in source.notes


def test_hugo_orders_pages_by_weight_and_date(tmp_path: Path) -> None:
    pages = {
        "a/new": "date: 2024-05-06T10:00:00Z",
        "a/old": "date: 2024-05-06",
        "b/c": "date: 2025-01-01",
        "b/d": "weight: 2",
        "e": "linkTitle: A",
        "_index": "description: About lights.",
    }
    files = {f"content/{name}.md": f"---\n{head}\n---" for name, head in pages.items()}
    pages_read = pages_of(write(tmp_path / "lights", {"hugo.toml": "", **files}))
    assert [path.removesuffix(".md") for path in pages_read] == [
        "_index",
        "b/d",
        "b/c",
        "a/new",
        "a/old",
        "e",
    ]
    assert text_of(pages_read["_index.md"]) == "About lights."


def test_hugo_names_sections_tabs_and_headings(tmp_path: Path) -> None:
    text = '# Oil {.big}\n\nA.\n\n## Wick {anchor=false}\n\n{{% tab "Linux" %}}\n```sh {filename="a.sh"}\nb\n```\n{{% /tab %}}\n\n## {a, b}\n\nC.\n'
    files = {"hugo.toml": "", "content/the-oil/_index.md": "A.", "content/the-oil/b.md": text}
    section, page = map(read, pages_of(write(tmp_path / "lights", files)).values())
    assert (section.title, page.title) == ("The oil", "Oil")
    assert [(part.headings[-1], part.anchor) for part in page.sections[1:]] == [
        ("Wick", "wick"),
        ("{a, b}", "a-b"),
    ]
    tab, code = (plain_text(block.text) for block in page.sections[1].blocks)
    assert (tab, code) == ("Linux", "a.sh\nb")


def test_hugo_permalinks_have_the_title_and_heads_may_follow_blank_lines(tmp_path: Path) -> None:
    files = {
        "hugo.toml": "[permalinks.page]\nnews = '/:section/:year/:slug/'\n",
        "content/news/a.md": '---\ntitle: "Oil & Wick - it\'s 1.5/2"\ndate: 2024-05-06\n---\nText.',
        "content/news/b.md": "\n\n---\nslug: wick\ndate: 2024-05-06\n---\nText.",
        "content/news/c.md": "------\nslug: lamp\ndate: 2024-05-06\n---\nText.",
    }
    pages = pages_of(write(tmp_path / "lights", files))
    urls = {"a": "oil-wick-its-1.5/2", "b": "wick", "c": "lamp"}
    assert addresses(pages) == {f"news/{name}.md": f"news/2024/{url}/" for name, url in urls.items()}
    assert {text_of(page) for page in pages.values()} == {"Text."}
    assert read(pages["news/b.md"]).sections[0].blocks[0].first == 7


def test_hugo_shortcodes_show_files_translations_and_terms(tmp_path: Path) -> None:
    text = """{{< sample file="pods/a.yaml" >}}

{{< tabs >}}
{{< tab name="Oil" include="part.md" />}}
{{< /tabs >}}

{{< readfile file="part.md" code="true" lang="text" >}}

{{< note >}}
Mind the {{< tooltip term_id="wick" >}} of {{< skew latest >}}{{< skew next >}}.
{{< /note >}}

{{< picture file="missing.yaml" >}}{{< youtube abc >}}
"""
    files = {
        "hugo.toml": "",
        "i18n/en.toml": '[note]\nother = "Note:"\n',
        "content/examples/pods/a.yaml": "a: 1\n",
        "content/docs/part.md": "---\ndraft: true\n---\nPour it.",
        "content/docs/a.md": text,
    }
    source = open_book(write(tmp_path / "lights", files), SiteOptions(url=URL))
    page = {page.path: page for page in source.pages()}["docs/a.md"]
    assert text_of(page).split("\n") == [
        '```yaml title="pods/a.yaml"', "a: 1", "```",
        "Oil", "Pour it.",
        "```text", "---", "draft: true", "---", "Pour it.", "```",
        "**Note:**", "Mind the wick of .",
    ]  # fmt: skip
    assert "Text that the site computes is not read: skew (2 places), picture (1 place)." in source.notes


def test_a_large_section_of_hugo_is_divided_into_modules(tmp_path: Path) -> None:
    root = write_pages(tmp_path / "lights", *(f"content/docs/{'ab'[n % 2]}/{n}.md" for n in range(302)))
    write_pages(root, "content/docs/first.md", "content/news/a.md")
    write(root, {"hugo.toml": "", "content/docs/a/_index.md": "---\ntitle: The lamps\n---\nText."})
    modules = {page.module: page.module_title for page in open_book(root).pages()}
    assert modules == {"a": "The lamps", "b": "B", "docs": "Docs", "news": "News"}


def test_conf_py_is_never_run(tmp_path: Path) -> None:
    files = {
        "conf.py": "from pathlib import Path\nPath('run').touch()\nextensions = ['myst_parser']\nroot_doc = 'start'\n"
        "exclude_patterns = ['old/*'] + more() + names\ntemplates_path = ['_t/']\n"
        "source_suffix = '.rst'\n",  # the extension adds .md
        "start.md": "# Lights\n\n```{toctree}\n---\ncaption: Sea\n---\nsea/*\n```\n",
    }
    root = write(
        write_pages(tmp_path / "docs", "sea/waves.md", "sea/foam.md", "old/wreck.md", "_t/x.md"), files
    )
    pages = pages_of(root)
    assert list(pages) == ["start.md", "sea/foam.md", "sea/waves.md"]
    assert not (root / "run").exists()
    assert pages["sea/foam.md"].module_title == "Sea"


def test_sphinx_includes_and_text_files(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = []\nsource_suffix = {'.txt': 'restructuredtext'}\n",
        "index.txt": "Lights\n======\n\n.. toctree::\n\n   lamp\n\n.. autoclass:: Lamp\n",
        "lamp.txt": "Lamp\n====\n\n.. include:: /part.inc\n   :start-after: begin\n\n"
        "- Code:\n\n  .. literalinclude:: ../code.py\n     :language: python\n     :lines: 2\n\n"
        ".. include:: ../../secret.txt\n",
        "part.inc": "Left out, begin\n\nThe **beacon** is lit.\n",
        "../code.py": "a = 1\nclimb()\n",
        "../../secret.txt": "A secret.\n",
        "../.git/HEAD": "",
    }
    book = open_book(write(tmp_path / "docs", files))
    pages = list(book.pages())
    assert [(page.path, page.format) for page in pages] == [("index.txt", "rst"), ("lamp.txt", "rst")]
    assert text_of(pages[1]) == "The **beacon** is lit.\n- Code:\n\n  ```python\n  climb()\n  ```"
    assert any("1 autodoc directive not resolved" in note for note in book.notes)
    assert any("secret.txt (outside the repository)" in note for note in book.notes)


def test_sphinx_takes_the_title_from_the_first_heading(tmp_path: Path) -> None:
    text = "---\ntitle: Books\n---\n\nText.\n\n# Built with\n\nMore.\n"
    files = {"_toc.yml": "format: jb-book\nroot: index\n", "_config.yml": "", "index.md": text}
    assert [read(page).title for page in open_book(write(tmp_path, files)).pages()] == ["Built with"]


def test_sphinx_with_an_external_table_of_contents(tmp_path: Path) -> None:
    """It is no Jupyter Book: pages that only toctrees list belong to it."""
    files = {
        "conf.py": "extensions = ['myst_parser', 'sphinx_external_toc', *more()]\n",
        "_toc.yml": "root: start\nparts:\n- caption: Sea\n  chapters:\n  - file: waves\n    sections:\n    - file: foam\n",
        "start.md": "# Lights\n",
        "waves.md": "# Waves\n\n```{toctree}\ntide\n```\n",
        ".readthedocs.yaml": "sphinx:\n  builder: dirhtml\n",
    }
    root = write(write_pages(tmp_path / "docs", "tide.md", "foam.md", "alone.md"), files)
    pages = pages_of(root)
    assert list(pages) == ["start.md", "waves.md", "tide.md", "foam.md", "alone.md"]
    assert (pages["foam.md"].url, pages["foam.md"].module_title) == ("https://book.example.org/foam/", "Sea")


def test_a_toctree_in_a_literal_block_is_an_example(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = ['myst_parser']\nmyst_enable_extensions = ['smartquotes']\n",
        "index.rst": "Lights\n======\n\nFor example::\n\n   .. toctree::\n\n      b\n\n.. toctree::\n\n   c\n   b\n",
        "c.md": '# C\n\n## What\'s "new"\n\nText.\n',
    }
    pages = pages_of(write(write_pages(tmp_path / "docs", "b.md"), files))
    assert list(pages) == ["index.rst", "c.md", "b.md"]
    assert read(pages["c.md"]).sections[-1].anchor == "whats-new"


DOCUMENTED = """\
\"\"\"The tower.\n\n.. autofunction:: ring\n\"\"\"\nfrom .lamp import Lamp as Lamp
from .bell import *

def climb(steps: int = 3, *, fast: bool = False) -> None:
    \"\"\"Climb the tower.

    :param steps: how many.
    \"\"\"

def hidden(): ...

up = other = climb
"""
DOCUMENTED_CLASS = """\
class Light:
    def burn(self):
        \"\"\"Burn until dawn.\"\"\"
    def trim(self):
        \"\"\"Trim it.\"\"\"

class Lamp(Light):
    \"\"\"A lamp.\"\"\"

    #: Litres of oil.
    oil: float = 2.5

    def __init__(self, oil): ...
    def burn(self): ...
    def _clean(self):
        \"\"\"Private.\"\"\"
    @property
    def is_lit(self) -> bool:
        \"\"\"Whether it burns.\"\"\"
"""


def test_autodoc_is_read_from_the_source(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = ['sphinx.ext.autodoc', 'myst_parser']\nautodoc_member_order = 'bysource'\n",
        "index.rst": "Lights\n======\n\n.. automodule:: tower\n   :members:\n\n.. autofunction:: nowhere.x\n",
        "table.rst": "Table\n=====\n\n.. currentmodule:: tower\n\n.. autosummary::\n   :toctree: doc/\n\n"
        "   ~lamp.Lamp.burn\n   climb\n   lost\n",
        "up.rst": "Up\n==\n\n.. autofunction:: tower.up\n.. autofunction:: tower.climb(steps)\n"
        ".. autoclass:: tower.Bell\n\n.. autoclass:: tower.Lamp\n   :inherited-members:\n"
        "   :exclude-members: oil,\n      burn, is_lit\n\n   .. attribute:: wick\n",
        "../src/tower/bell.py": "class Bell: ...\nBell = cast(Bell)\ndef ring(): ...\n",
        "lamp.md": "# Lamp\n\n```{eval-rst}\n.. currentmodule:: tower\n.. autoclass:: Lamp\n   :members:\n```\n",
        "../src/tower/__init__.py": DOCUMENTED,
        "../src/tower/lamp.py": DOCUMENTED_CLASS,
        "../.git/HEAD": "",
    }
    book = open_book(write(tmp_path / "docs", files))
    pages = {page.path: page for page in book.pages()}
    assert text_of(pages["index.rst"]) == (
        "The tower.\n`tower.ring()`\n"
        "`tower.climb(steps: int = 3, *, fast: bool = False) -> None`\nClimb the tower.\n"
        "**Parameters**\n- `steps` – how many."
    )
    assert (
        text_of(pages["table.rst"])
        == "- `burn()` – Burn until dawn.\n- `climb(steps, fast)` – Climb the tower.\n- `lost`"
    )
    (section,) = read(pages["up.rst"]).sections
    shown = [block.text for block in section.blocks if block.text.startswith("`")]
    assert shown == [
        "`tower.up(steps: int = 3, *, fast: bool = False) -> None`",
        "`tower.climb(steps)`",
        "`class tower.Bell`",
        "`class tower.Lamp(oil)`",
        "`wick`",
        "`trim()`",
    ]
    assert [anchor for _, anchor in section.anchors][-2:] == ["tower.Lamp.wick", "tower.Lamp.trim"]
    (section,) = read(pages["lamp.md"]).sections
    assert [block.text for block in section.blocks] == [
        "`class tower.Lamp(oil)`", "A lamp.", "`oil: float = 2.5`", "Litres of oil.",
        "`burn()`", "Burn until dawn.", "`property is_lit: bool`", "Whether it burns.",
    ]  # fmt: skip
    anchors = " ".join(anchor for _, anchor in section.anchors)
    assert anchors == "lamp tower.Lamp tower.Lamp.oil tower.Lamp.burn tower.Lamp.is_lit"
    assert any("1 autodoc directive not resolved" in note for note in book.notes)


def test_autodoc_leaves_examples_and_shows_overloads(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = ['sphinx.ext.autodoc']\nautodoc_typehints = 'description'\n",
        "index.rst": "Lights\n======\n\n.. module:: tower\n\n.. code-block:: rst\n\n   .. automodule:: tower.x\n"
        "\n   .. autofunction:: tower.a\n\n.. autofunction:: a\n",
        "../tower.py": "@overload\ndef a(x: int) -> int: ...\n@overload\ndef a(x: str) -> str: ...\n"
        "def a(x):\n    'Light it.'\n",
        "../.git/HEAD": "",
    }
    page = pages_of(write(tmp_path / "docs", files))["index.rst"]
    assert text_of(page) == (
        "```rst\n.. automodule:: tower.x\n\n.. autofunction:: tower.a\n```\n"
        "`tower.a(x: int) -> int`\n`tower.a(x: str) -> str`\nLight it."
    )


def test_autodoc_writes_types_that_python_does_not_know_as_they_stand(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = ['sphinx.ext.autodoc']\n",
        "index.rst": "Lights\n======\n\n.. automodule:: tower\n   :members:\n",
        "../tower.py": "from __future__ import annotations\nif TYPE_CHECKING:\n    from oil import kinds as k\n"
        "def a(x: k.Oil, y: at.Int) -> int:\n    'Light it.'\ndef b(x: at.Int):\n    'Trim it.'\n"
        "class Lamp:\n    'A lamp.'\n    oil: float\n    @overload\n    def __init__(self, oil: int): ...\n"
        "    @overload\n    def __init__(self, oil: str): ...\n    def __init__(self, oil):\n"
        "        #: Litres.\n        self.oil = float(oil)\n",
        "../.git/HEAD": "",
    }
    assert text_of(pages_of(write(tmp_path / "docs", files))["index.rst"]) == (
        "`class tower.Lamp(oil: int)`\n`class tower.Lamp(oil: str)`\nA lamp.\n`oil: float`\nLitres.\n"
        "`tower.a(x: k.Oil, y: at.Int) -> int`\nLight it.\n`tower.b(x: Int)`\nTrim it."
    )


EVALUATED = """
from dataclasses import dataclass, field
from .oil import Burner, DEEP
if TYPE_CHECKING:
    import sea
    Foam = int
@t.overload
def a(x: Burner) -> int: ...
@t.overload
def a(x: 'Foam') -> str: ...
def a(x):
    'Light it.'
def b(x: Burner | None = None, *, y: float = DEEP, z=dict) -> 'Wave':
    'Trim it.'
def c(x: 'sea.Wave', y: at.Int, z: Literal['\\n', 'fast']):
    'Turn it.'
@dataclass
class Base:
    'A base.'
    height: float
    names: list[str] = field(default_factory=list)
    kind: ClassVar[int] = 1
    def __hash__(self) -> int: ...
    def __len__(self) -> int: ...
@dataclass
class Lamp(Base):
    'A lamp.'
    _: KW_ONLY
    lit: bool = field(default=False)
    oil: int = field(init=False)
class Dark(Exception):
    'No light.'
"""


def test_autodoc_shows_what_sphinx_evaluates(tmp_path: Path) -> None:
    """Names of types and defaults are replaced by their values, and data classes have a constructor."""
    files = {
        "conf.py": "extensions = ['sphinx.ext.autodoc']\n",
        "index.rst": "Lights\n======\n\n.. module:: tower\n\n.. autofunction:: a\n.. autofunction:: b\n"
        ".. autofunction:: c\n.. autoclass:: Base\n   :special-members:\n   :members:\n\n.. autoclass:: Lamp\n"
        ".. autoclass:: Dark\n",
        "../tower/__init__.py": EVALUATED,
        "../tower/oil.py": "Burner = Callable[['Wick'], int]\nDEEP = 2.5\n",
        "../.git/HEAD": "",
    }
    shown = text_of(pages_of(write(tmp_path / "docs", files))["index.rst"]).split("\n")
    assert [line for line in shown if line.startswith("`")] == [
        "`tower.a(x: Callable[[Wick], int]) -> int`",
        "`tower.a(x: Foam) -> str`",
        "`tower.b(x: Callable[[Wick], int] | None = None, *, y: float = 2.5, z=<class 'dict'>) -> Wave`",
        "`tower.c(x: sea.Wave, y: Int, z: Literal['\\n', 'fast'])`",
        "`class tower.Base(height: float, names: list[str] = <factory>)`",
        "`__hash__() -> int`",
        "`class tower.Lamp(height: float, names: list[str] = <factory>, *, lit: bool = False)`",
        "`class tower.Dark`",
    ]


def test_autodoc_separates_constructors_and_follows_the_order_of_all(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = ['sphinx.ext.autodoc']\nautodoc_member_order = 'bysource'\n"
        "autodoc_class_signature = 'separated'\nautodoc_typehints = 'description'\n",
        "index.rst": "Lights\n======\n\n.. automodule:: tower\n   :members:\n",
        "../tower.py": "from __future__ import annotations\nif TYPE_CHECKING:\n    import at\n__all__ = ['Lamp', 'Dark']\n"
        "class Dark(Exception):\n    'No light.'\n    oil: at.Oil = prop('x', doc='The oil.')\n    #: Few.\n    n: a.Int\n"
        "    def __init__(self, why: str) -> None: ...\n    @abstractmethod\n    def burn(self, *a): 'Burn.'\n"
        "class Lamp:\n    'A lamp.'\n",
        "../.git/HEAD": "",
    }
    docs = write(tmp_path / "docs", files)
    shown = text_of(pages_of(docs)["index.rst"])
    assert shown == (
        "`class tower.Lamp`\nA lamp.\n`exception tower.Dark`\nNo light.\n`oil: at.Oil`\nThe oil.\n`n: Int`\nFew.\n"
        "`__init__(why)`\n**Parameters**\n- `why (str)`\n**Return type**\n: None\n`abstractmethod burn(*a)`\nBurn."
    )
    together = files["conf.py"].replace("separated", "mixed")
    shown = text_of(pages_of(write(docs, {"conf.py": together}))["index.rst"])
    assert (
        "`exception tower.Dark(why)`\nNo light.\n**Parameters**\n- `why (str)`\n**Return type**\n: None"
        in shown
    )


def test_constructors_of_data_classes_inherit_a_limited_number_of_fields(tmp_path: Path) -> None:
    fields = "".join(f"    x{number}: A = A\n" for number in range(2_000))
    code = f"@dataclass\nclass C0:\n    'C.'\n{fields}" + "".join(
        f"@dataclass\nclass C{number}(C{number - 1}):\n    'C.'\n    y{number}: A = A\n"
        for number in range(1, 31)
    )
    files = {"conf.py": "extensions = ['sphinx.ext.autodoc']\n", "../m.py": code, "../.git/HEAD": ""}
    files["index.rst"] = "M\n=\n\n.. automodule:: m\n   :members:\n"
    text = pages_of(write(tmp_path / "docs", files))["index.rst"].text
    assert "py:class:: C3(x0: A = A, " in text
    assert "py:class:: C30(y30: A = A)" in text
    assert text.count("x1999: A") == 4


def test_directives_that_show_what_code_makes_are_named(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = ['myst_parser']\ndef setup(app):\n    app.add_crossref_type('wave', 'wave')\n",
        "index.rst": "Lights\n======\n\n.. wave:: x\n\n.. lamps::\n   :max: 3\n\n.. lamps:: x\n\n   *Text*.\n\n"
        ".. figure:: x.png\n.. version-changed:: 2\n.. tabularcolumns:: |l|\n\n::\n\n   .. lamps::\n\n.. bibliography::\n",
        "sea.md": "# Sea\n\n```{oil:run}\n:max: 3\ninvoke()\n```\n\n```{note}\n```\n\n```{foam}\nText.\n```\n",
        "../.git/HEAD": "",
    }
    book = open_book(write(tmp_path / "docs", files))
    pages = {page.path: page for page in book.pages()}
    note = (
        "Text that the site computes is not read: lamps (1 place), bibliography (1 place), oil:run (1 place)."
    )
    assert note in book.notes
    assert text_of(pages["index.rst"]).split("\n")[2:4] == ["*Text*.", "**Changed in version 2**"]


def test_types_follow_the_fields_of_a_docstring(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = ['sphinx.ext.autodoc']\nautodoc_typehints = 'description'\n",
        "index.rst": "Lights\n======\n\n.. autoclass:: tower.Lamp\n\n   .. attribute:: wick\n",
        "../tower.py": "class Lamp:\n    '''A lamp.\n\n    :param oil: the oil,\n        or fat\n\n    Old.\n    '''\n"
        "    def __init__(self, oil: Literal['\\n', 'b c'], fast: bool = True): ...\n",
        "../.git/HEAD": "",
    }
    page = pages_of(write(tmp_path / "docs", files))["index.rst"]
    assert text_of(page) == (
        "`class tower.Lamp(oil, fast=True)`\nA lamp.\n**Parameters**\n"
        "- `oil (Literal['\\n', 'b c'])` – the oil,\n  or fat\n- `fast (bool)`\nOld.\n`wick`"
    )
    assert [anchor for _, anchor in read(page).sections[0].anchors][1:] == ["tower.Lamp", "tower.Lamp.wick"]


def test_docstrings_of_google_and_numpy(tmp_path: Path) -> None:
    google = 'def a(x):\n    """Do it.\n\n    Args:\n        x (~a.b.Int | None): the number\n            of steps.\n\n    Returns:\n        ~a.Bool: done.\n    """\n'
    numpy = 'def b(x):\n    """Do it.\n\n    Parameters\n    ----------\n    x : int\n        the number.\n    """\n'
    files = {
        "conf.py": "extensions = ['sphinx.ext.autodoc', 'sphinx.ext.napoleon']\n",
        "index.rst": "Lights\n======\n\n.. autofunction:: tower.a\n.. autofunction:: tower.b\n",
        "../tower.py": google + numpy,
        "../.git/HEAD": "",
    }
    pages = pages_of(write(tmp_path / "docs", files))
    assert text_of(pages["index.rst"]) == (
        "`tower.a(x)`\nDo it.\n**Parameters**\n- `x (Int | None)` – the number\n  of steps.\n**Returns**\n: done.\n"
        "**Return type**\n: Bool\n`tower.b(x)`\nDo it.\n**Parameters**\n- `x (int)` – the number."
    )


def test_references_show_the_titles_that_they_refer_to(tmp_path: Path) -> None:
    files = {
        "conf.py": "org = 'x'\nextensions = ['myst_parser']\n"
        "extlinks = {'issue': (f'https://{org}.org/%s', 'Issue %s'), 'y': (f(), 'Y')}\n",
        "index.rst": "Lights\n======\n\nSee :doc:`sea/waves`, :ref:`foam-sec`, :ref:`the sea <foam-sec>`,\n"
        ":ref:`lost` and :issue:`7`.\n",
        "sea/waves.md": "---\nname: x\n---\n```{raw} html\n<br>\n```\n\n# High *waves*\n\nAs in {doc}`/index`, [](../index.rst), [](#tower) and {ref}`tower`.\n\n(foam-sec)=\n## White foam\n\nText.\n",
        "tower.rst": ".. _tower:\n\n=====\nTower\n=====\n\nText.\n",
    }
    pages = pages_of(write(tmp_path / "docs", files))
    expected = "See High waves, White foam, the sea,\nlost and Issue 7."
    assert text_of(pages["index.rst"]) == expected
    assert text_of(pages["sea/waves.md"]).startswith(
        "As in Lights, [Lights](../index.rst), [Tower](#tower) and Tower."
    )


def test_lists_of_sphinx_may_be_extended_under_conditions(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = ['a']\nexclude_patterns = []\nif 'man' not in tags:\n"
        "    extensions.extend(('b', 'myst_parser'))\n    project = 'Lights'\n"
        "try:\n    exclude_patterns += ['old.md', f()]\nexcept OSError:\n    project = 'Other'\n"
        "exclude_patterns.append('new.md')\nexclude_patterns.extend(exclude_patterns)\n",
    }
    book = open_book(write(write_pages(tmp_path / "docs", "index.md", "old.md", "new.md"), files))
    assert [page.path for page in book.pages()] == ["index.md"]
    assert book.info.title == "Lights"


def test_conf_py_defines_words_and_links_of_all_pages(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = []\nrelease = '1.2'\nversion = f()\nrst_prolog = '.. |lamp| replace:: the *big*\\n   lamp\\n'\n"
        "rst_epilog = '.. _Sea: https://sea.org\\n.. |lost| image:: x.png\\n'\n",
        "index.rst": "Lights\n======\n\nWith |release|, |lamp| at Sea_ and `Sea`_.\n\n::\n\n   |release|\n",
    }
    pages = pages_of(write(tmp_path / "docs", files))
    assert text_of(pages["index.rst"]) == "With 1.2, the *big*\nlamp at Sea and Sea.\n```\n|release|\n```"


def test_anchors_of_myst(tmp_path: Path) -> None:
    text = "# Lights\n\nSee [](sea.md).\n\n## 1. What's `a.b` 🚀\n\nA.\n\n(my_lamp)=\n## Lamp\n\nB.\n\n## Lights\n\nC.\n"
    files = {
        "myst.yml": "project:\n  toc:\n  - file: index.md\n  - file: sea.md\n  - file: b/sea.md\n",
        "index.md": text,
        "sea.md": "---\ntitle: The sea\n---\n\n:::{note}\nDeep.\n:::\n\n## Waves\n\nText.\n",
    }
    pages = pages_of(write(write_pages(tmp_path / "docs", "b/sea.md"), files))
    assert list(addresses(pages).values()) == ["", "sea", "sea-1"]
    anchors = [section.anchor for section in read(pages["index.md"]).sections]
    assert anchors == ["", "id-1-whats-a-b", "my-lamp", "lights"]
    assert text_of(pages["index.md"]).startswith("See [The sea](sea.md).")


def test_labelled_blocks_of_myst_are_embedded(tmp_path: Path) -> None:
    files = {
        "myst.yml": "project:\n  toc:\n  - file: index.md\n  - file: sea.md\n",
        "index.md": "# Lights\n\n![](#deep)\n\n:::{embed} #foam\n:::\n\n![](#salt)\n\n```{embed} #lost\n```\n",
        "sea.md": "# Sea\n\n:::{tip} Dive\n:label: deep\nIt is deep.\n:::\n\n(foam)=\nWhite\nfoam.\n\n(salt)=\n+++\n"
        "Salt.\n\n- More.\n\n+++\n\n```{myst}\n# A demo\n```\n\n```{code} yaml\n:filename: myst.yml\na: 1\n```\n",
    }
    book = open_book(write(tmp_path / "docs", files))
    pages = {page.path: page for page in book.pages()}
    text = text_of(pages["index.md"])
    assert [part in text for part in ("It is deep.", "White\nfoam.", "Salt.", "- More.", "Tip")] == [True] * 5
    assert any("index.md: #lost (missing)" in note for note in book.notes)
    assert [section.anchor for section in read(pages["sea.md"]).sections] == [""]
    assert "```yaml\n# myst.yml\na: 1\n```" in text_of(pages["sea.md"])


def test_text_without_a_role_has_the_default_role(tmp_path: Path) -> None:
    files = {
        "conf.py": "extensions = []\ndefault_role = 'any'\n",
        "index.rst": "Lights\n======\n\nSee `sea`, `foam`,\n`the foam <foam>`, `~a.Lamp` and `a link <https://a.org>`_.\n",
        "sea.rst": "The sea\n=======\n\n.. _foam:\n\nWhite foam\n----------\n\nText.\n",
    }
    pages = pages_of(write(tmp_path / "docs", files))
    assert text_of(pages["index.rst"]) == "See The sea, White foam,\n`the foam`, `Lamp` and a link."
    write(tmp_path / "docs", {"conf.py": "extensions = []\ndefault_role = 'literal'\n"})
    pages = pages_of(tmp_path / "docs")
    assert text_of(pages["index.rst"]).startswith("See `sea`, `foam`,\n")


STARLIGHT = "import starlight from 's'\nexport default { integrations: [starlight({ title: 'A', %s })] }\n"


@pytest.mark.parametrize(
    ("config", "text", "folder"),
    [
        (".vitepress/config.js", "export default { locales: { root: {}, fr: {}, de: {} } }\n", "."),
        ("astro.config.mjs", STARLIGHT % "locales: { root: {}, fr: {}, de: {} }", "src/content/docs"),
        ("hugo.toml", "[languages.en]\n[languages.de]\n[languages.fr]\ncontentDir = 'content/fr'", "content"),
        (
            "hugo.yaml",
            "languages: {en: {}, de: {}, fr: {}}\nmodule:\n  mounts:\n"
            "    - {source: content/de, target: content, sites: {matrix: {languages: [de]}}}\n"
            "    - {source: content/fr, target: content, sites: {matrix: {languages: ['f*']}}}\n",
            "content",
        ),
    ],
)
def test_one_language_is_read(tmp_path: Path, config: str, text: str, folder: str) -> None:
    pages = (f"{folder}/{name}.md" for name in ("a", "fr/b", "de/c"))
    root = write(write_pages(tmp_path / "lights", *pages), {config: text})
    assert {path.removeprefix("fr/") for path in pages_of(root, locale="fr")} == {"b.md"}
    with pytest.raises(ConfigurationError, match="There is no locale xx of this site") as error:
        pages_of(root, locale="xx")
    assert "fr" in error.value.hint


OUTSIDE = {
    "conf.py": ("extensions = ['myst_parser']\n", {"index.md": "# A\n\n```{toctree}\n../*/*\na**\n```\n"}),
    "astro.config.mjs": (
        STARLIGHT % "sidebar: [{ label: 'B', autogenerate: { directory: '../../../../outside' } }]",
        {"src/content/docs/index.md": "# A\n"},
    ),
    "next.config.mjs": ("import nextra from 'nextra'\n", {"content/index.md": "# A\n"}),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_navigation_does_not_leave_the_book(tmp_path: Path, name: str) -> None:
    config, files = OUTSIDE[name]
    root = write(tmp_path / "lights", {name: config, **files})
    write(tmp_path / "outside", {"secret.md": "# Secret\n"})
    if name == "next.config.mjs":
        (root / "content" / "link").symlink_to(tmp_path / "outside")
    (generator,) = (one for one in GENERATORS.values() if name in one.config_files)
    site = generator(root / name, BookFile(), "lights")
    assert isinstance(site, Site)
    assert not [page for page in site.sections if "secret" in page]


@pytest.mark.parametrize(
    ("config", "page"),
    [
        ({"conf.py": "extensions = ['myst_parser']\n"}, "```{toctree}\n"),
        ({"conf.py": "extensions = ['myst_parser']\n"}, ":::{toctree}\na\n"),
        ({"_quarto.yml": "project:\n  type: website\n"}, "{{< a "),
    ],
)
def test_much_unclosed_markup_takes_linear_time(tmp_path: Path, config: dict[str, str], page: str) -> None:
    """With time that grows with the square of the length, each of these pages would take hours."""
    root = write(tmp_path / "lights", {**config, "index.md": "# Lights\n\n" + page * 20_000})
    assert len(list(open_book(root).pages())) == 1


@pytest.mark.parametrize("generator", ["sphinx", "d2lbook"])
def test_a_long_chain_of_tables_of_contents(tmp_path: Path, generator: str) -> None:
    mark = {"sphinx": "{toctree}", "d2lbook": "toc"}[generator]
    files = {f"p{n}.md": f"```{mark}\np{n + 1}\n```\n" for n in range(1100)}
    files["index.md"] = f"# Lights\n\n```{mark}\np0\n```\n"
    files["conf.py"] = "extensions = ['myst_parser']\n" if generator == "sphinx" else ""
    files["config.ini"] = "[project]\n[build]\n" if generator == "d2lbook" else ""
    assert len(list(open_book(write(tmp_path / "lights", files)).pages())) == 1101


def test_vitepress_leaves_out_values_of_scripts(tmp_path: Path) -> None:
    text = "# Demo\n\nCount: {{ count }}, `{{ code }}`, <code v-pre>{{ raw }}</code>.\n\n```vue\n{{ count }}\n```\n"
    site = write(tmp_path, {".vitepress/config.js": "export default {}", "index.md": text})
    (page,) = open_book(site).pages()
    assert page.text == text.replace("Count: {{ count }}", "Count: ", 1)


def test_vitepress_keeps_snippets_as_code_with_their_titles(tmp_path: Path) -> None:
    page = "# Demo\n\n<<< ./ci.yml [.github/ci.yml]\n\n```[.env]\nA=1 # [!code ++]\n```\n"
    files = {".vitepress/config.js": "export default {}", "a.md": page, "ci.yml": "url: ${{ steps.url }}"}
    (read_page,) = pages_of(write(tmp_path, files)).values()
    assert plain_text(read_page.text).split("\n") == [
        *("Demo", ".github/ci.yml", "url: ${{ steps.url }}", ".env", "A=1"),
    ]


def test_vitepress_shows_landing_pages_raw_blocks_and_badges(tmp_path: Path) -> None:
    home = """\
---
layout: home
hero:
  name: Lamps
  tagline: Light
    for all
  actions:
    - text: Start
      link: /use
features:
  - icon: 🚀
    title: Oil
    details: Burns <b>long</b>.
---

# More
"""
    text = "# Use <Badge type='tip' text='^1.9' />\n\n::: v-pre\n{{ raw }}\n:::\n\n{{ value }}\n\n```ansi\n\x1b[0;90mred\x1b[0m\n```\n"
    site = {".vitepress/config.js": "export default {}", "index.md": home, "use.md": text}
    pages = pages_of(write(tmp_path, site))
    blocks = [block for section in read(pages["index.md"]).sections for block in section.blocks]
    assert [block.text for block in blocks] == ["Lamps\nLight for all", "- Start\n- Oil: Burns <b>long</b>."]
    assert pages["index.md"].text.count("\n") == home.count("\n")
    assert split_front_matter(pages["index.md"].text)[0]["layout"] == "home"
    (section,) = read(pages["use.md"]).sections
    assert (section.headings, section.anchors) == (("Use ^1.9",), ((1, "use"),))
    assert [block.text for block in section.blocks] == ["{{ raw }}", "```ansi\nred\n```"]


@pytest.mark.parametrize("config", ["config.ts", ".vitepress/theme.mts"])
def test_vitepress_reads_a_configuration_in_parts(tmp_path: Path, config: str) -> None:
    main = "import { theme } from './theme'\nexport default defineConfig({ title: 'Lights', rewrites: { 'en/:rest*': ':rest*' }, themeConfig: theme })"
    part = "themeConfig: { sidebar: { '/a/': { base: '/a/', items: items() } } }"
    text = f"export default defineAdditionalConfig({{ {part} }})"
    if config != "config.ts":
        text = f"export const {part.replace(':', ' =', 1)}".replace("themeConfig", "theme")
    text += "\nfunction items(): Item[] { return [{ text: 'Oil', link: 'z' }, { text: 'Wick', link: 'b' }] }"
    site = {".vitepress/config.ts": main if config != "config.ts" else main.replace("theme }", "{} }")}
    site |= {
        config: text,
        "en/index.md": "---\nlayout: home\n---\nText.",
        "en/a/z.md": "# Z :tada:\n\n## B :tada:\n\nText.",
    }
    pages = pages_of(write(write_pages(tmp_path, "en/a/b.md", "en/[made].md"), site))
    assert list(pages) == ["en/a/z.md", "en/a/b.md", "en/index.md"]
    assert read(pages["en/index.md"]).title == "Lights"
    assert [anchor for _, anchor in read(pages["en/a/z.md"]).sections[0].anchors] == ["z", "b"]


def test_vitepress_rewrites_with_parameters(tmp_path: Path) -> None:
    config = """export default {
  rewrites: { 'packages/:pkg/src/:slug*': ':pkg/:slug*', 'v-:version/(.*)': 'old/:version/(.*)', 'en/:rest*': ':rest*',
    'one.md': 'two.md' },
  themeConfig: { sidebar: [{ text: 'Deep', link: '/lamp/deep/oil' }, { text: 'Start', link: '/start' },
    { text: 'Two', link: '/two' }, { text: 'Lamp', link: '/lamp/' }] }
}"""
    names = ("en/start", "one", "packages/lamp/src/deep/oil", "packages/lamp/src/index", "plain", "v-1/a/b")
    site = write(write_pages(tmp_path, *(f"{name}.md" for name in names)), {".vitepress/config.js": config})
    assert list(addresses(pages_of(site)).items()) == [
        ("packages/lamp/src/deep/oil.md", "lamp/deep/oil.html"),
        ("en/start.md", "start.html"),
        ("one.md", "two.html"),
        ("packages/lamp/src/index.md", "lamp/"),
        ("plain.md", "plain.html"),
        ("v-1/a/b.md", "old/1/a/b.html"),
    ]


@pytest.mark.parametrize(
    ("rewrites", "count"),
    [
        ("(id) => id.slice(1)", 1),
        ("{ 'a/:b(\\\\d+)': ':b', 'a.md': 'b.md' }", 1),
        ("{ ':a*/:b*': ':b*', '^(a+)+$': 'b', ':a/:a': 'c', 'd.md': d(), '^a.md': 'b.md' }", 5),
        ("{ " + ", ".join(f"'a{n}/:b': ':b/{n}'" for n in range(150)) + " }", 50),
        ("{ '" + "a/" * 60 + ":b': ':b' }", 1),
    ],
)
def test_rewrites_that_cannot_be_applied_are_noted(tmp_path: Path, rewrites: str, count: int) -> None:
    config = f"export default {{ rewrites: {rewrites} }}"
    book = open_book(write(write_pages(tmp_path, "a.md"), {".vitepress/config.js": config}))
    assert any(f"{count} rewrite" in note for note in book.notes), book.notes


def test_a_hostile_rewrite_takes_little_time(tmp_path: Path) -> None:
    pattern = "/".join(f":p{n}" for n in range(40)) + "/:rest*/end.md"
    config = f"export default {{ rewrites: {{ '{pattern}': 'x.md' }} }}"
    name = "a/" * 700 + "b.md"
    assert list(pages_of(write(write_pages(tmp_path, name), {".vitepress/config.js": config}))) == [name]


CODE = """import sea

@sea.cached
@sea.high
class Tower(
    Building,
):
    height = 1

    def climb(self):
        # begin
        stairs()
        # end

    async def light(self): ...

# About the lamp
def climb():
    pass
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (":pyobject: Tower.climb", "def climb(self):\n    # begin\n    stairs()\n    # end"),
        (":pyobject: climb", "def climb():\n    pass"),
        (":pyobject: Tower.light", "async def light(self): ..."),
        (":pyobject: Tower\n:end-before: height", "@sea.cached\n@sea.high\nclass Tower(\n    Building,\n):"),
        (":pyobject: Tower\n:lines: 1,3", "@sea.cached\nclass Tower("),
        (":start-at: begin\n:end-at: # end", "# begin\nstairs()\n# end"),
        (":start-after: begin\n:end-before: # end", "stairs()"),
        (":start-after: About\n:lines: 2-", "pass"),
        (":end-before: import\n:start-at: About", None),
        (":pyobject: Tower.gone", None),
        (":start-at: gone", None),
    ],
)
@pytest.mark.parametrize("suffix", [".md", ".rst"])
def test_part_of_a_literalinclude(tmp_path: Path, suffix: str, options: str, expected: str | None) -> None:
    if suffix == ".md":
        text = f"# Lights\n\n```{{literalinclude}} code.py\n{options}\n```\n"
    else:
        indented = options.replace("\n", "\n   ")
        text = f"Lights\n======\n\n.. literalinclude:: code.py\n   {indented}\n   :language: python\n"
    files = {"conf.py": "extensions = ['myst_parser']\n", f"index{suffix}": text, "code.py": CODE}
    book = open_book(write(tmp_path, files))
    (page,) = book.pages()
    assert text_of(page) == ("" if expected is None else f"```python\n{expected}\n```")
    assert any("has no such part" in note for note in book.notes) == (expected is None)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("conf.py", "extensions = ['myst_parser']\nmyst_substitutions = {'lamp': 'a **lamp**'}\n"),
        ("_config.yml", "parse:\n  myst_substitutions:\n    lamp: a **lamp**\n"),
    ],
)
def test_myst_substitutions(tmp_path: Path, config: str, text: str) -> None:
    page = (
        "---\nmyst:\n  substitutions:\n    sea: |\n      Two\n      lines\n---\n# Lights\n\n"
        "{{ sea }}\n\nIn {{sea}}: {{ lamp }}, `{{ lamp }}`, {{ other }}.\n\n```\n{{ lamp }}\n```\n"
    )
    files = {config: text, "index.md": page}
    files |= {"_toc.yml": "format: jb-book\nroot: index\n"} if config == "_config.yml" else {}
    (page_read,) = open_book(write(tmp_path, files)).pages()
    shown = "Two\nlines\nIn Two lines: a **lamp**, `{{ lamp }}`, {{ other }}.\n```\n{{ lamp }}\n```"
    assert text_of(page_read) == shown


def test_zensical_names_a_page_without_a_heading_by_its_file(tmp_path: Path) -> None:
    files = {
        "zensical.toml": '[project]\nsite_name = "Lights"\nnav = [{ "Sea" = "sea/index.md" }, "API-keys.md"]\n',
        "docs/sea/index.md": "Waves.\n",
        "docs/API-keys.md": "Keys.\n",
        "docs/old.md": "---\ntemplate: redirect.html\nlocation: sea/\n---\n\n# Old\n",
    }
    book = open_book(write(tmp_path, files))
    assert [read(page).title for page in book.pages()] == ["Index", "API keys"]
    assert "Left out: 1 redirect page." in book.notes


def test_markup_in_code_is_not_left_over() -> None:
    assert not leftovers(
        "`` {ref}`b` `` `` `{{r}} x` `` <code v-pre>{{ a }}</code> `a={b}` `c` <i style={{a: 1}} />"
    )
    assert not leftovers("Files `a.{ext}` and `b`, `version-${c}` and `d`")
    assert not leftovers("`@{up}` or `@{u}`, and `tip^{tree}` or `a`")
    assert leftovers("{{ a }} {ref}`b` :ref:`c`").total() == 3


def test_a_configuration_of_another_program_is_not_a_site(tmp_path: Path) -> None:
    files = {
        "config.toml": "[server]\nport = 1\n",
        "conf.py": "DEBUG = True\n",
        "config.ini": "[a]\n",
        "astro.config.mjs": "export default {}\n",
        "next.config.js": "module.exports = {}\n",
        "page.md": "# A page\n\nText.\n",
        "CONTRIBUTING.md": "# How to\n\nNo.\n",
        "later.md": "---\ndraft: true\n---\n\n# Later\n\nNo.\n",
        "security.md": "# Security\n\nA page.\n",
    }
    source = open_book(write(tmp_path / "lights", files), SiteOptions(url=URL))
    assert [page.url for page in source.pages()] == [f"{URL}page", f"{URL}security"]
    assert source.notes == ["Left out: 1 draft page."]


def test_files_that_are_not_read_are_counted(tmp_path: Path) -> None:
    files = {"a.org": "* A", "b.org": "* B", "c.docx": "x", "d.png": "x"}
    write_pages(tmp_path / "lights", "page.md", "e.md", "f.md")
    source = open_book(write(tmp_path / "lights", files))
    assert source.failed == []
    assert [note for note in source.notes if "not read" in note] == [
        "2 .org files not read: build the site, and index its address or the directory of its HTML files.",
        "1 .docx file not read: convert them to one of the formats that Recto reads, such as PDF or EPUB.",
    ]
    (tmp_path / "lights" / "e.md").unlink()
    lost = open_book(tmp_path / "lights")
    assert len(list(lost.pages())) == 2
    assert [str(failure).partition(" Not")[0] for failure in lost.failed] == [
        "2 .org files: more than half of the book.",
        "1 .docx file: more than half of the book.",
    ]
    (tmp_path / "lights" / "page.md").unlink()
    (tmp_path / "lights" / "f.md").unlink()
    with pytest.raises(InvalidArgument, match="There is no") as error:
        open_book(tmp_path / "lights")
    assert "2 .org files not read" in error.value.hint


def test_mkdocs_publishes_notebooks_with_a_plugin(tmp_path: Path) -> None:
    notebook = '{"cells": [{"cell_type": "markdown", "source": "# Lamp\\n\\nOil."}]}'
    files = {"docs/index.md": "# Lights\n\nWelcome.\n", "docs/lamp.ipynb": notebook}
    config = "site_name: Lights\nsite_url: https://x.org/\n"
    plain = open_book(write(tmp_path / "plain", {"mkdocs.yml": config, **files}))
    assert [page.path for page in plain.pages()] == ["index.md"]
    assert any("1 .ipynb file not read: the site does not publish" in note for note in plain.notes)
    config += "plugins: [search, mkdocs-jupyter]\n"
    pages = list(open_book(write(tmp_path / "notebooks", {"mkdocs.yml": config, **files})).pages())
    titles = {page.url: read(page).title for page in pages}
    assert titles == {"https://x.org/": "Lights", "https://x.org/lamp/": "Lamp"}


BROKEN = [
    *("", "\0", "[[[", "{" * 3_000, "x: &a [*a, *a]", "= 1", "starlight nextra extensions = [" * 9),
    "export default {integrations: starlight()}",
    "chapters: 5\nparts: {a: 1}\nproject: {toc: 7}\nbook: 3\nnav: 4\nwebsite: {sidebar: 2}",
]


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_broken_configuration_is_an_error_with_advice(generator: str, tmp_path: Path) -> None:
    """Broken bytes in each configuration give an error of ours, or a book without the site's own rules."""
    for number, name in enumerate(GENERATORS[generator].config_files):
        for case, content in enumerate(BROKEN):
            root = write_pages(tmp_path / f"{number}-{case}", "page.md", "content/page.md")
            write(root, {name: content})
            try:
                list(open_book(root).pages())
            except RectoError as error:
                assert error.hint


@pytest.mark.parametrize(
    "options", [":start-after: 'two -->'\n:end-before: \"<!-- four\"", ":start-line: 2\n:end-line: -2"]
)
def test_part_of_an_include(tmp_path: Path, options: str) -> None:
    files = {
        "conf.py": "extensions = ['myst_parser']\n",
        "index.md": f"# Lights\n\n```{{include}} part.txt\n{options}\n```\n",
        "more.md": f"# Lights\n\n```{{eval-rst}}\n.. include:: part.txt\n   {options.replace(chr(10), chr(10) + '   ')}\n```\n"
        if "'" not in options
        else "Three",
        "part.txt": "One\n<!-- two -->\nThree\n<!-- four -->\nFive",
    }
    assert {text_of(page) for page in pages_of(write(tmp_path, files)).values()} == {"Three"}


def test_starlight_sorts_directories_and_inserts_imported_pages(tmp_path: Path) -> None:
    """A directory has the lowest order of its pages; the others are sorted by slug, an index first."""
    page = "---\ntitle: A\n%s---\n"
    partial = page % "" + "import { Content as Part } from './_part.mdx'\n\n<Part />\n"
    files = {
        "index.mdx": partial,
        "_part.mdx": "Inserted.\n",
        "b.md": page % "",
        "Deep/index.md": page % "sidebar: {order: 9}\n",
        "Deep/a.md": page % "sidebar: {order: 2}\n",
        "last.md": page % "",
        "first.md": page % "sidebar: {order: 1}\n",
    }
    write(tmp_path, {f"src/content/docs/guide/{name}": text for name, text in files.items()})
    config = STARLIGHT % "sidebar: [{ label: 'G', autogenerate: { directory: 'guide' } }]"
    pages = {
        page.path: page.text for page in open_book(write(tmp_path, {"astro.config.mjs": config})).pages()
    }
    assert [name.removeprefix("guide/") for name in pages] == [
        *("first.md", "Deep/a.md", "Deep/index.md", "index.mdx", "b.md", "last.md"),
    ]
    assert "Inserted." in pages["guide/index.mdx"]


def test_starlight_shows_titles_of_asides_and_imported_code(tmp_path: Path) -> None:
    text = """\
---
title: A
---

import { Aside, Code } from '@astrojs/starlight/components';
import lamp from '../../lamp.sh?raw';

<Aside>One</Aside>

<Aside type="tip">Two</Aside>

<Aside type="tip" title="Mind">Three</Aside>

`<Aside>` <Badge text="New" />

<Badge text="Old" />

<Code code={lamp} lang="sh" title="lamp.sh" />
"""
    files = {"src/content/docs/a.mdx": text, "src/lamp.sh": "light", "astro.config.mjs": STARLIGHT % ""}
    (page,) = pages_of(write(tmp_path, files)).values()
    shown = plain_text("\n\n".join(block.text for block in read(page).sections[0].blocks)).split("\n")
    assert [" ".join(line.split()) for line in shown] == [
        *("Note One", "Tip Two", "Mind Three", "<Aside> New", "Old", "lamp.sh", "light"),
    ]


def test_anchors_of_a_function_of_a_vitepress_site_are_noted(tmp_path: Path) -> None:
    config = "export default { markdown: { anchor: { slugify: (text) => text } } }\n"
    source = open_book(write(tmp_path, {".vitepress/config.js": config, "a.md": "# A\n"}))
    assert source.notes == ["The site makes anchors with its own function; those of Recto may differ."]


def test_a_vitepress_function_may_keep_anchors_as_they_are_written(tmp_path: Path) -> None:
    slug = "text.normalize('NFKD').replace(marks, '').replace(special, '-').replace(/^(\\d)/, '_$1')"
    config = f"const slugify = (text: string): string => {slug}\nexport default {{ markdown: {{ anchor: {{ slugify }} }} }}\n"
    files = {
        ".vitepress/config.ts": config,
        "a.md": "# Which *Lamp*?\n\n## 2 Wicks!\n",
    }
    source = open_book(write(tmp_path, files))
    by_name = {page.path: [section.anchors for section in read(page).sections] for page in source.pages()}
    assert by_name == {"a.md": [((1, "Which-Lamp-"), (3, "_2-Wicks-"))]}
    assert source.notes == []


def test_an_id_that_is_too_long_for_a_file_begins_no_page_of_bookdown(tmp_path: Path) -> None:
    long = "a" * 5_000
    files = {
        "_bookdown.yml": "book_filename: lamps\n",
        "_output.yml": "bookdown::gitbook:\n  split_by: section\n",
        "index.Rmd": f"# Lamps\n\nText.\n\n## Oil {{#oil}}\n\nText.\n\n## Wick {{#{long}}}\n\nText.\n",
    }
    source = open_book(write(tmp_path / "lamps", files), SiteOptions(url=URL))
    assert [page.url for page in source.pages()] == [URL, f"{URL}oil.html"]

"""MyST, Quarto and d2lbook as plain Markdown: titles, roles, labels, and the same lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.book.parsing import read
from recto.book.parsing.extended_markdown import D2L, MYST, QUARTO, plain_markdown
from tests.book.parsing.builders import page_of


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{ref}`the start <sec-start>`", "the start"),
        ("{ref}`sec-linear-algebra`", "Section linear algebra"),
        ("{numref}`Fig. %s <fig-a>`", "Fig."),
        ("{py:class}`~a.b.C` and {file}`x.py`", "`C` and `x.py`"),
        ("{math}`x^2` {cite:p}`knuth84`", "$x^2$ [knuth84]"),
        ("{doc}`../guide/first-steps` {pep}`8`", "first steps PEP 8"),
        ("{term}`a long\nname <target>` here", "a long\nname here"),
        ("``{ref}`x` `` and `{ref}`", "``{ref}`x` `` and `{ref}`"),
        (":::{note} Take care\n:class: dropdown\nText.\n:::", "**Note: Take care**\n\nText.\n"),
        ("```{warning}\nHot.\n```", "**Warning**\nHot.\n"),
        (":::{tip}\n:class: dropdown\n\n# Why?\nX.\n## Y\n:::", "**Tip**\n\n\n**Why?**\nX.\n## Y\n"),
        ("```{versionadded} 3.2\nNew.\n```", "**Added in version 3.2**\nNew.\n"),
        ("````{tip}\n```python\n:::{note}\n```\n````", "**Tip**\n```python\n:::{note}\n```\n"),
        ("::::{tab-set}\n:::{tab-item} Rust\nx\n:::\n::::", "\n**Rust**\nx\n\n"),
        ("```{code-block} python\n:linenos:\n\nx = 1\n```", "```python\n\n\nx = 1\n```"),
        ("```{code-cell} ipython3\n---\ntags: [a]\n---\nx\n```", "```python\n\n\n\nx\n```"),
        ("```{code-cell} python\n:tags: [a, remove-input]\nx\n```", "\n\n\n"),
        ("```{code-cell} python\n---\ntags:\n- remove_cell\n---\nx\n```", "\n\n\n\n\n\n"),
        (":::{code} rust\nfn main() {}\n:::", "```rust\nfn main() {}\n```"),
        ("```{math}\n:label: eq\nx^2\n```", "$$\n\nx^2\n$$"),
        ("```{toctree}\n:maxdepth: 2\na\n```", "\n\n\n"),
        ("```{autoclass} a.B\n:members:\n```", "\n\n"),
        ("```{list-table}\n:header-rows: 1\n* - A\n  - B\n* - 1\n  - 2|3\n```",
         "\n\n\n| A | B |\n| --- | --- |\n| 1 | 2\\|3 |\n"),
        ("```{figure} a.png\n:alt: A cat\nThe caption.\n```", "\nA cat\nThe caption.\n"),
        ("```{list-table}\n:header-rows: 1\n* - See {ref}`sec-a`.\n* - `{x}`\n```",
         "\n| See Section a. |\n| --- |\n| `{x}` |\n"),
        (":::{card} {octicon}`plug;1em` See {ref}`sec-a`\nx\n:::", "**See Section a**\nx\n"),
        ("```{eval-rst}\n.. toctree::\n   a\n.. autofunction:: c\n```", "\n\n\n\n"),
        ("```{click:example}\n# not a heading\n```", "```\n# not a heading\n```"),
        ("% a comment\n+++\ntext", "\n\ntext"),
        (":::{note .wide #n icon=false} Time\nOil.\n:::", "**Note: Time**\nOil.\n"),
        ("A {kbd .big}`Ctrl`", "A `Ctrl`"),
        ("```{python echo=true}\nx\n```", "```python\nx\n```"),
        ("$$\nx\n$$ (eq:a)\n\n## H", "$$\nx\n$$\n\n## H"),
        ("- item\n  ```{note}\n  x\n  ```", "- item\n  **Note**\n  x\n  "),
    ],
)  # fmt: skip
def test_myst(written: str, expected: str) -> None:
    assert plain_markdown(written, MYST)[0] == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('::: {.callout-note title="A title"}\nText.\n:::', "**Note: A title**\nText.\n"),
        (":::: {.callout-tip}\n## A title\nText.\n:::", "**Tip**\n**A title**\nText.\n"),
        ("::: {.panel-tabset}\n## R\nx\n## Python\ny\n:::\n# H", "\n**R**\nx\n**Python**\ny\n\n# H"),
        ("::: {#thm-line}\n## Line\ny = x\n:::", "**Theorem**\n**Line**\ny = x\n"),
        ("::: {.content-hidden}\nx\n:::", "\n\n"),
        ("```{python}\n#| label: a\n#| fig-cap: 'A plot'\nx\n```", "```python\n\n# A plot\nx\n```"),
        (
            "1. A\n\n    ```{r}\n    #| fig.alt: |\n    #|   A big\n    #|   plot: two\n    #| eval: no\n    x\n    ```",
            "1. A\n\n    ```r\n\n    # A big\n    # plot: two\n\n    x\n    ```",
        ),
        ("```{r}\n#| echo: false\n#| fig-cap: >\n#|   A plot\nx\n```", "\n\n\nA plot\n\n"),
        ('```{.r filename="a.R"}\nx\n```', "```r\nx\n```"),
        ("```{{python}}\nx\n```", "```{python}\nx\n```"),
        ("```{=html}\n<b>\n```", "\n\n"),
        ("@fig-big-cat and [@sec-start], not a@fig-b", "Figure big cat and [Section start], not a@fig-b"),
        ("Press {{< kbd Ctrl-C >}}{{< video x.mp4 >}}.", "Press Ctrl-C."),
        ("{{{< include a.qmd >}}}", "{{{< include a.qmd >}}}"),
        ("[small]{.smallcaps} `<b>`{=html}", "small "),
        ("![A](a.png){#fig-a width=5%}", "![A](a.png)"),
        ("$$\nx\n$$ {#eq-a}", "$$\nx\n$$"),
        ("# Title {#sec-a .unnumbered}", "# Title {#sec-a}"),
    ],
)
def test_quarto(written: str, expected: str) -> None:
    assert plain_markdown(written, QUARTO)[0] == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("# Linear\n:label:`sec_linear`", "# Linear\n"),
        ("See :numref:`sec_softmax`, :eqref:`eq_a`.", "See Section softmax, Equation a."),
        (":cite:`A.B.2020` and [**bold**] or (~~gone~~)", "[A.B.2020] and **bold** or ~~gone~~"),
        ("![x](a.svg)\n:width:`400px`\n:label:`fig_x`", "![x](a.svg)\n\n"),
        (":begin_tab:`mxnet`\nText\n:end_tab:", "\nText\n"),
        ("```{.python .input  n=1}\n%%tab pytorch\nx\n```", "```python\n\nx\n```"),
    ],
)
def test_d2lbook(written: str, expected: str) -> None:
    assert plain_markdown(written, D2L)[0] == expected


@pytest.mark.parametrize(
    ("format", "text", "anchors"),
    [
        ("myst", "(my-label)=\n## Part\n\n```{note}\n:name: my-note\nx\n```\n", "part my-label my-note"),
        ("qmd", "## Part {#sec-part}\n\n![A cat](a.png){#fig-cat}\n", "sec-part fig-cat"),
        ("d2l", "## Part\n:label:`sec_part`\n\n$$x$$\n:eqlabel:`eq_x`\n", "part sec-part eq-x"),
    ],
)
def test_labels_are_anchors_of_what_they_label(format: str, text: str, anchors: str) -> None:
    _, section = read(page_of(f"# T\n\nA.\n\n{text}", format)).sections
    assert section.headings == ("T", "Part")
    assert " ".join(name for _, name in section.anchors) == anchors
    assert section.anchor == anchors.partition(" ")[0]


PIECES = st.sampled_from(
    ["```", "````", ":::", "::::", "{note}", "{.callout-tip}", "{python}", "\n", " ", "---", "a: b", ":name: x",
     "#| label: y", "(x)=", "{ref}`", "`", ":label:`z`", "$$", "{{< a >}}", "# T", "* - a", "  - b", "{list-table}"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join), st.sampled_from([MYST, QUARTO, D2L]))
def test_lines_stay_lines(text: str, dialect: str) -> None:
    markdown, labels = plain_markdown(text, dialect)
    assert markdown.count("\n") == text.count("\n")
    assert all(1 <= line <= text.count("\n") + 1 for line, _ in labels)


def test_eval_rst_is_read_as_restructuredtext() -> None:
    text = "# Lamp\n\n```{currentmodule} tower\n```\n\n```{eval-rst}\n.. note:: Mind :ref:`the step <a>`.\n\n"
    text += ".. code-block:: python\n\n   # A comment\n   if x:\n       y()\n\n.. function:: light(at)\n```\n\nAfter.\n"
    (section,) = read(page_of(text, MYST)).sections
    assert [(block.text, block.first) for block in section.blocks] == [
        ("**Note**\n\nMind the step.", 7),
        ("```python\n# A comment\nif x:\n    y()\n```", 9),
        ("`tower.light(at)`", 15),
        ("After.", 18),
    ]
    assert section.anchors == ((1, "lamp"), (15, "tower.light"))


def test_headings_in_eval_rst_begin_sections() -> None:
    text = "# Log\n\n```{eval-rst}\n.. _new:\n\nVersion 2\n---------\n\nNew.\n```\n\n## Old\n\nEnd.\n"
    sections = read(page_of(text, MYST)).sections
    assert [(section.headings, section.anchors) for section in sections] == [
        (("Log", "Version 2"), ((1, "log"), (6, "version-2"), (6, "new"))),
        (("Log", "Old"), ((12, "old"),)),
    ]

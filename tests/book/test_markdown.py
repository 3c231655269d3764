"""Markdown: headings, line numbers, and MDX code that is not text."""

from __future__ import annotations

from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.book.parsing.markdown import parse
from recto.book.parsing.markdown.headings import heading_texts
from recto.types.book import Section

TORTURE = """\
---
title: Torture
keywords: [a, b]
---
import Tabs from '@theme/Tabs';
import TabItem from '@theme/TabItem';

export const colour = {
  dark: '#000',

  light: '#fff',
};

# Real One {#real-one}

First paragraph.

~~~python
# fake-tilde
~~~

````md
```
# fake-nested
```
````

   ```
   # fake-indented
   ```

<!--
# fake-comment
-->

Setext Two
==========

:::note[Take care]

## inside an admonition

Said in the note.

:::

<Tabs groupId="os">
<TabItem value="a" label="Python" default>

```python
# fake in a tab
```

</TabItem>
<TabItem value="b"
  label="C++">
  Text right under a tab.
</TabItem>
</Tabs>

{/* hidden
over lines */}

## Real `Three` &amp; more {/* #r3 */}

<details>
<summary>Delay &lt;50ms</summary>

Folded text.

</details>

| a | b |
|---|---|
| 1 | 2 |

## Real `Three` &amp; more
!!! tip "Hint"
    Indented tip.

```yaml
unterminated: true
## no heading
"""


@pytest.fixture(scope="module")
def sections() -> tuple[Section, ...]:
    return parse(TORTURE, mdx=True).sections


def test_only_real_headings_count(sections: tuple[Section, ...]) -> None:
    assert [section.headings[-1] for section in sections] == [
        "Real One",
        "Setext Two",
        "Real Three & more",
        "Real Three & more",
    ]
    assert sections[2].headings == ("Torture", "Setext Two", "Real Three & more")


def test_anchors_are_explicit_or_github_slugs(sections: tuple[Section, ...]) -> None:
    assert [section.anchor for section in sections] == [
        "",
        "",
        "r3",
        "real-three--more",
    ]  # Docusaurus gives no id to a first-level heading
    plain = [section.anchor for section in parse(TORTURE).sections]
    assert plain[1:3] == ["real-one", "setext-two"]


def test_markup_is_removed(sections: tuple[Section, ...]) -> None:
    text = "\n".join(block.text for section in sections for block in section.blocks)
    for unwanted in (
        "import Tabs",
        "export const",
        "light",
        "<Tab",
        "hidden",
        "fake-comment",
        "<details>",
        "<summary>",
    ):
        assert unwanted not in text
    for wanted in (
        "Python",
        "C++",
        "Text right under a tab.",
        "Delay <50ms",
        "Folded text.",
        "Said in the note.",
        "Indented tip.",
    ):
        assert wanted in text


def test_lines_are_those_of_the_source(sections: tuple[Section, ...]) -> None:
    lines = TORTURE.split("\n")
    for section in sections:
        for block in section.blocks:
            if block.kind != "markup":
                assert "\n".join(lines[block.first - 1 : block.last]) == block.text


def test_kinds(sections: tuple[Section, ...]) -> None:
    assert [block.kind for block in sections[1].blocks] == ["group", "markup", "code", "markup", "paragraph"]
    assert [block.kind for block in sections[3].blocks] == ["group", "code"]
    assert sections[1].blocks[0].text.endswith(":::")


@pytest.mark.parametrize(
    ("markdown", "title"),
    [
        ("---\ntitle: Stated\n---\n# Written\n", "Stated"),
        ("---\nsidebar_label: Label\n---\ntext\n", "Label"),
        ("---\nsidebar_label: Label\n---\n# Written\n", "Written"),
        ("# Written *with* `code`\n", "Written with code"),
        ("Setext\n======\n", "Setext"),
        ("text only\n", "Fallback"),
        ("---\ntitle: [broken\n---\n# Written\n", "Written"),
        ("---\ntitle: 7\n---\n", "7"),
        ("\ufeff# With a mark\r\n\r\ntext\r\n", "With a mark"),
        ("", "Fallback"),
    ],
)
def test_titles(markdown: str, title: str) -> None:
    assert parse(markdown, title="Fallback").title == title


def test_indented_code_is_text_in_mdx() -> None:
    source = "Intro.\n\n    # comment\n    run\n"
    assert [block.kind for block in parse(source).sections[0].blocks] == ["paragraph", "code"]
    assert [block.kind for block in parse("Intro.\n\n    plain\n", mdx=True).sections[0].blocks] == [
        "paragraph",
        "paragraph",
    ]


def test_text_before_the_first_heading() -> None:
    document = parse("Before.\n\n## One\n\nAfter.\n", title="Page")
    assert [(section.headings, section.anchor) for section in document.sections] == [
        (("Page",), ""),
        (("Page", "One"), "one"),
    ]


def test_tags_in_prose() -> None:
    document = parse("A <b>bold</b> word and 1 < 2.\n\n<Highlight>kept</Highlight>\n", mdx=True)
    text = " ".join(block.text for section in document.sections for block in section.blocks)
    assert "bold" in text
    assert "1 < 2" in text
    assert "kept" in text


def test_import_in_prose_and_in_code_is_kept() -> None:
    source = dedent("""\
        import duties are paid by the buyer.

        ```python
        import os
        export = 1
        ```
        """)
    text = "\n".join(block.text for section in parse(source, mdx=True).sections for block in section.blocks)
    assert "import duties" in text
    assert "import os" in text


@given(st.text(alphabet=st.sampled_from("#`~:<>{}/*-|=!\n \tabT\"'[]()"), max_size=200), st.booleans())
def test_any_text_is_parsed(text: str, mdx: bool) -> None:
    document = parse(text, title="T", mdx=mdx)
    count = text.count("\n") + 1
    for section in document.sections:
        assert section.headings[0] == document.title
        for block in section.blocks:
            assert 1 <= block.first <= block.last <= count
            assert block.text.strip()


def test_plain_text() -> None:
    assert (
        heading_texts("A [link](x.md) with `code`, *stress* &amp; <b>tags</b>")[0]
        == "A link with code, stress & tags"
    )

"""Text integrity: what is stored is what was written, numbered and embedded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recto.book.chunking import DEFAULT_SIZE, chunk_page
from recto.book.parsing import read
from recto.book.sources.tree import open_book
from recto.evaluation.integrity import (
    READING,
    IssueKind,
    Issues,
    check_integrity,
    compare_with_source,
    indexed_text,
)
from recto.protocols import Embedder
from recto.stores.edge import EdgeStore
from recto.types.search import Chunk
from tests import breaking
from tests.breaking import Passages
from tests.library import write_index

TORTURE = Path(__file__).parent.parent / "book" / "torture"
SITES = Path(__file__).parent.parent / "book" / "sites"


def inputs_of(path: Path, embedder: Embedder) -> list[tuple[Chunk, str]]:
    book = open_book(path)
    found = (
        chunk_page(page, read(page), book.book, embedder.count_tokens, embedder.max_tokens, DEFAULT_SIZE)
        for page in book.pages()
    )
    return [(one.chunk, one.embedded) for inputs in found for one in inputs]


def corpora() -> list[Path]:
    root = os.environ.get("RECTO_CORPORA", "")
    return sorted(path for path in Path(root, "books").iterdir() if path.is_dir()) if root else []


@pytest.mark.parametrize(
    "book", [TORTURE, SITES / "docusaurus", SITES / "mkdocs", *corpora()], ids=lambda path: path.name
)
def test_what_reading_leaves_out_or_repeats_is_no_damage(book: Path, embedder: Embedder) -> None:
    """Entities, dropped tags, divided tables and fences, diagrams, partials: all are found at their lines."""
    issues, inputs = Issues(), inputs_of(book, embedder)
    assert all(indexed_text(chunk) == embedded for chunk, embedded in inputs)
    chunks = [chunk for chunk, _ in inputs]
    assert compare_with_source(chunks, open_book(book), issues) == len(chunks) > 0
    assert issues.listed() == ()


def test_included_texts_are_found_at_the_line_that_shows_them(tmp_path: Path, embedder: Embedder) -> None:
    (tmp_path / "snippet.txt").write_text("Words about whistling kettles.\n\nMore words about steam.\n")
    (tmp_path / "page.md").write_text('# Page\n\nBefore it.\n\n--8<-- "snippet.txt"\n\nAfter it.\n')
    issues = Issues()
    chunks = [chunk for chunk, _ in inputs_of(tmp_path, embedder)]
    assert any("kettles" in chunk.text for chunk in chunks)
    assert compare_with_source(chunks, open_book(tmp_path), issues) == len(chunks)
    assert issues.listed() == ()


def test_the_head_of_a_split_table_needs_no_leading_pipe(tmp_path: Path, embedder: Embedder) -> None:
    rows = "\n".join(f"name-{row} | what is now called number {row} of many" for row in range(200))
    head = "Old name of variable | The new expression or name\n--- | :---:"
    (tmp_path / "page.md").write_text(f"# Page\n\n{head}\n{rows}\n")
    issues = Issues()
    chunks = [chunk for chunk, _ in inputs_of(tmp_path, embedder)]
    assert sum("Old name" in chunk.text for chunk in chunks) > 1
    assert compare_with_source(chunks, open_book(tmp_path), issues) == len(chunks)
    assert issues.listed() == ()


def test_lines_that_are_wrong_are_told_from_texts_that_are_gone(house: Path, house_copy: Path) -> None:
    def moved(passages: Passages) -> Passages:
        return [
            (replace(one, start_line=1, end_line=1) if one.anchor == "lamps" else one, numbers)
            for one, numbers in passages
        ]

    index = breaking.publish_broken(house_copy, moved)
    issues = check_integrity(index, None, open_book(house / "book")).issues
    (issue,) = [issue for issue in issues if issue.kind is IssueKind.OTHER_LINES]
    assert issue.places == ["module-3-workshop/04-electricity.md, lines 1 to 1"]


def test_a_part_of_a_large_index_is_checked(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recto.evaluation import integrity

    monkeypatch.setattr(integrity, "MOST", 5)
    index = EdgeStore(house / "home").open("house")
    part = check_integrity(index)
    assert (part.checked, part.complete, part.issues) == (5, False, ())
    assert check_integrity(index, everything=True).complete


def test_fields_that_are_wrong(house_copy: Path) -> None:
    changes: list[tuple[IssueKind, dict[str, Any]]] = [
        (IssueKind.NO_TITLE, {"title": " "}),
        (IssueKind.BAD_URL, {"page_url": "no address"}),
        (IssueKind.NO_URL, {"page_url": ""}),
        (IssueKind.NO_TEXT, {"text": " "}),
        (IssueKind.BAD_NUMBER, {"total_chunks": 0}),
    ]

    def spoilt(passages: Passages) -> Passages:
        pairs = zip(passages, changes, strict=False)
        return [(replace(one, **change), numbers) for (one, numbers), (_, change) in pairs]

    index = breaking.publish_broken(house_copy, spoilt)
    kinds = {issue.kind for issue in check_integrity(index).issues}
    assert {kind for kind, _ in changes} <= kinds


def test_long_heading_paths_were_shortened_and_are_known_again(tmp_path: Path, embedder: Embedder) -> None:
    (tmp_path / "page.md").write_text(f"# {'Very ' * 200}long\n\n## {'And ' * 150}on\n\nA text.\n")
    for chunk, embedded in inputs_of(tmp_path, embedder):
        assert indexed_text(chunk) == embedded
        assert indexed_text(replace(chunk, text="Another text.")) is None


WORDS = " ".join(f"word{number} kettle{number} lamp{number}" for number in range(30))
HIDDEN = "\n".join(f"Lost{number} chapter{number} about{number} plumbing{number}." for number in range(40))


@pytest.mark.parametrize(
    ("text", "chunk", "kind", "place"),
    [
        ("# Page\n\n## |\n\nText.\n", {}, IssueKind.EMPTY_HEADING, "page.md, lines 5 to 5: ('Page', '|')"),
        (
            "# Page\n\n```python\n# Make tea\nboil()\n```\n",
            {"headings": ("Page", "Make tea")},
            IssueKind.CODE_HEADING,
            "page.md, line 4: # Make tea",
        ),
        (
            "# Page\n\nLike this::\n\n    # Make tea\n    boil()\n",
            {"headings": ("Page", "Make tea")},
            IssueKind.CODE_HEADING,
            "page.md, line 5: # Make tea",
        ),
        (
            "# Page\n\n<!--\n## Old\n-->\n\nText.\n",
            {"headings": ("Page", "Old")},
            IssueKind.CODE_HEADING,
            "4",
        ),
        (f"# Page\n\n{WORDS}\n\n{HIDDEN}\n", {"text": WORDS}, IssueKind.SHRUNK, "page.md, line 5: Lost0"),
        (
            "# Page\n\nText.\n\n{% tea %}\n",
            {"text": "Text.\n\n{% tea %}", "end_line": 5},
            IssueKind.MARKUP,
            "page.md, line 5: {%…%} (template)",
        ),
        ("# Page\n\nText.\n\n::: tea.Pot\n", {}, IssueKind.MARKUP, "page.md, line 5: ::: … (API reference)"),
        ("# Page\n\nText.\n\n#| echo: no\n", {}, IssueKind.MARKUP, "page.md, line 5: #|… (option)"),
        ("# Page\n\nText.\n\ntoc::[]\n", {}, IssueKind.MARKUP, "page.md, line 5: …::…[] (macro)"),
    ],
)
def test_damage_by_reading_has_a_page_and_a_line(
    text: str, chunk: dict[str, Any], kind: IssueKind, place: str, tmp_path: Path, embedder: Embedder
) -> None:
    """The chunk is as a reader with that fault would write it."""
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "page.md").write_text(text)
    write_index(tmp_path / "book", embedder, tmp_path, "house")

    def spoilt(passages: Passages) -> Passages:
        (first, numbers), *_ = passages
        return [(replace(first, total_chunks=1, **chunk), numbers)] if chunk else passages

    index = breaking.publish_broken(tmp_path, spoilt)
    issues = check_integrity(index, None, open_book(tmp_path / "book")).issues
    (issue,) = [issue for issue in issues if issue.kind in READING]
    assert issue.kind is kind
    assert issue.count == 1
    assert place in issue.places[0]


@pytest.mark.parametrize(
    "text",
    [
        "# Page\n\n## Make tea\n\n```python\n# Make tea\n{% x %}\n#| y\n::: tea.Pot\n```\n",
        "# Page\n\n```{note}\n## Make tea\n\nText.\n```\n",
        "# Page\n\n??? note\n\n    ```\n    {{ tea }}\n    ```\n\n    Text about `{% tea %}`.\n\n::: tip\nText.\n:::\n",
        f"# Page\n\n<!--\n{HIDDEN}\n-->\n\nText.\n",
        "# Page\n\n## `|`\n\nText.\n\n## C++\n\nText.\n",
    ],
)
def test_code_and_comments_are_no_damage(text: str, tmp_path: Path, embedder: Embedder) -> None:
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "page.md").write_text(text)
    write_index(tmp_path / "book", embedder, tmp_path, "house")
    index = EdgeStore(tmp_path).open("house")
    assert check_integrity(index, None, open_book(tmp_path / "book")).issues == ()

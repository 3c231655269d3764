"""Chunks: nothing lost, nothing doubled, nothing too long, structure kept."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from recto.book.chunker import ChunkSize, Passage, chunk_page
from recto.book.markdown import parse
from recto.errors import ConfigurationError
from recto.protocols import Embedder
from recto.types import Page

SIZE = ChunkSize()


def page(markdown: str, *, mdx: bool = False) -> Page:
    return Page(
        "module-1-x/page.md",
        "local://docs/docs/module-1-x/page",
        "Page",
        "x",
        ("x", "module-1-x"),
        markdown,
        "r",
        "mdx" if mdx else "markdown",
    )


def words(text: str) -> int:
    """A stand-in for a tokenizer where only the sizes matter: words and marks, and two for the ends."""
    return len(re.findall(r"\w+|[^\w\s]", text)) + 2


def chunks(markdown: str, count: object = words, limit: int = 512, size: ChunkSize = SIZE) -> list[Passage]:
    made = page(markdown)
    assert callable(count)
    return chunk_page(made, parse(markdown, title=made.title), "book", count, limit, size)


PROSE = "The controller reads every joint. It sends a command, waits, and reads again! Does it stop? Only when told. "


def test_a_short_page_is_one_chunk_with_all_its_facts() -> None:
    (passage,) = chunks("# Title\n\nOne line.\n\nAnother line.\n")
    chunk = passage.chunk
    assert chunk.text == "One line.\n\nAnother line."
    assert passage.embedded == "Title\n\nOne line.\n\nAnother line."
    assert (chunk.page_title, chunk.module_name, chunk.headings, chunk.anchor) == ("Title", "x", ("Title",), "")
    assert (chunk.chunk_index, chunk.total_chunks, chunk.start_line, chunk.end_line) == (0, 1, 3, 5)
    assert chunk.source == "module-1-x/page.md"


def test_sections_are_chunks_of_their_own_under_their_path() -> None:
    source = f"# T\n\n{PROSE * 3}\n\n## One\n\n{PROSE * 3}\n\n### Deep\n\n{PROSE * 3}\n\n## Two\n\n{PROSE * 3}\n"
    assert [passage.chunk.heading_path for passage in chunks(source)] == ["T", "T > One", "T > One > Deep", "T > Two"]
    assert [passage.chunk.anchor for passage in chunks(source)] == ["", "one", "deep", "two"]


def test_a_heading_is_never_alone() -> None:
    source = f"# T\n\n## Empty\n\n### Full\n\n{PROSE * 3}\n\n## Trailing\n"
    found = chunks(source)
    assert [passage.chunk.heading_path for passage in found] == ["T > Empty > Full"]


def test_crumbs_join_their_neighbour_with_their_heading() -> None:
    source = f"# T\n\n## One\n\n{PROSE * 3}\n\n## Two\n\nTiny.\n\n## Three\n\n{PROSE * 3}\n"
    found = chunks(source)
    assert [passage.chunk.heading_path for passage in found] == ["T > One", "T > Three"]
    assert "## Two\n\nTiny." in found[0].chunk.text


def test_a_long_section_is_divided_evenly() -> None:
    source = "# T\n\n" + "\n\n".join([PROSE] * 15) + "\n"
    sizes = [words(passage.chunk.text) for passage in chunks(source)]
    assert len(sizes) == 2
    assert max(sizes) - min(sizes) < max(sizes) / 2


def test_a_table_keeps_its_rows_and_repeats_its_head() -> None:
    rows = [f"| joint {number} | {number * 3} degrees | a remark on joint {number} |" for number in range(80)]
    head = "| joint | range | remark |\n|---|---|---|"
    found = chunks("# T\n\n" + head + "\n" + "\n".join(rows) + "\n")
    assert len(found) > 2
    seen: Counter[str] = Counter()
    for passage in found:
        assert passage.chunk.text.startswith(head)
        seen.update(passage.chunk.text.split("\n")[2:])
    assert seen == Counter(rows)


def test_a_fence_that_fits_is_never_divided() -> None:
    fence = "```python\n" + "\n".join(f"value_{number} = {number}" for number in range(30)) + "\n```"
    source = "# T\n\n" + "\n\n".join([PROSE * 2, fence, PROSE * 2, fence]) + "\n"
    found = chunks(source)
    assert sum(passage.chunk.text.count(fence) for passage in found) == 2


def test_a_long_fence_is_divided_between_lines() -> None:
    lines = [f"    step_{number}(robot, speed={number}, verbose=True)" for number in range(200)]
    found = chunks("# T\n\n```python\n" + "\n".join(lines) + "\n```\n")
    assert len(found) > 3
    written = "\n".join(passage.chunk.text for passage in found).split("\n")
    assert written == ["```python", *lines, "```"]


def test_a_long_list_is_divided_between_items() -> None:
    items = [f"- item {number}: {PROSE}" for number in range(30)]
    found = chunks("# T\n\n" + "\n".join(items) + "\n")
    assert len(found) > 1
    for passage in found:
        assert all(line.startswith("- item") for line in passage.chunk.text.split("\n"))


def test_an_admonition_that_fits_stays_whole() -> None:
    note = f":::warning[Stop]\n\n{PROSE * 3}\n\n{PROSE * 3}\n\n:::"
    source = f"# T\n\n{PROSE * 6}\n\n{note}\n\n{PROSE * 6}\n"
    assert sum(note.replace(" \n", "\n") in passage.chunk.text.replace(" \n", "\n") for passage in chunks(source)) == 1


@pytest.mark.parametrize("text", ["word " * 3000, "x" * 9000, PROSE * 200, "机器人" * 2000, "🤖" * 1500])
def test_nothing_is_too_long_for_the_model(embedder: Embedder, text: str) -> None:
    found = chunks(f"# T\n\n{text}\n", embedder.count_tokens, embedder.max_tokens)
    assert all(embedder.count_tokens(passage.embedded) <= SIZE.largest + 8 for passage in found)
    assert "".join("".join(passage.chunk.text.split()) for passage in found) == "".join(text.split())


def test_a_heading_as_long_as_a_chunk() -> None:
    found = chunks(f"# {'very ' * 900} long\n\n{PROSE * 30}\n")
    assert all(words(passage.embedded) <= 512 for passage in found)


def test_a_model_that_reads_too_little_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="too few"):
        chunks("# T\n\ntext\n", limit=16)


def test_ids_are_stable_and_belong_to_book_page_and_place() -> None:
    source = f"# T\n\n## A\n\n{PROSE * 4}\n\n## B\n\n{PROSE * 4}\n"
    first, second = chunks(source), chunks(source)
    assert first == second
    assert len({passage.chunk.id for passage in first}) == len(first)
    other = chunk_page(page(source), parse(source), "another book", words, 512, SIZE)
    assert {passage.chunk.id for passage in other}.isdisjoint(passage.chunk.id for passage in first)


BLOCKS = st.one_of(
    st.text(alphabet="abcd .!?", min_size=1, max_size=400).filter(str.strip),
    st.integers(1, 40).map(lambda count: "```\n" + "\n".join(f"line {number}" for number in range(count)) + "\n```"),
    st.integers(1, 40).map(lambda count: "\n".join(f"- item {number} of the list" for number in range(count))),
    st.integers(1, 40).map(lambda count: "| a | b |\n|---|---|\n" + "\n".join(f"| r{number} | c |" for number in range(count))),
    st.sampled_from(["## Two", "### Three", "> quoted words", ":::tip\n\nadvice\n\n:::", "***"]),
)


@given(st.lists(BLOCKS, min_size=1, max_size=12), st.integers(40, 300), st.integers(0, 60))
@hypothesis_settings(max_examples=150)
def test_every_word_of_every_section_is_in_exactly_one_chunk(blocks: list[str], largest: int, crumb: int) -> None:
    source = "# T\n\n" + "\n\n".join(blocks) + "\n"
    document = parse(source, title="T")
    found = chunk_page(page(source), document, "book", words, 512, ChunkSize(largest, crumb))
    expected = Counter(word for section in document.sections for block in section.blocks for word in block.text.split())
    written: Counter[str] = Counter()
    for passage in found:
        text = re.sub(r"^#+ (Two|Three)$", "", passage.chunk.text, flags=re.MULTILINE)
        text = re.sub(r"^\| a \| b \|\n\|---\|---\|\n", "", text, flags=re.MULTILINE)
        written.update(text.split())
        assert words(passage.embedded) <= max(largest + 8, 40)
        lines = source.split("\n")[passage.chunk.start_line - 1 : passage.chunk.end_line]
        assert set(text.split()) <= {word for line in lines for word in line.split()}
    heads = Counter({"|": 3, "a": 1, "b": 1, "|---|---|": 1})
    tables = sum(block.kind == "table" for section in document.sections for block in section.blocks)
    expected.subtract({word: count * tables for word, count in heads.items()})
    assert +expected == +written
    assert [passage.chunk.chunk_index for passage in found] == list(range(len(found)))
    assert {passage.chunk.total_chunks for passage in found} <= {len(found)}

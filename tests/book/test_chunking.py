"""Chunks: no text is lost or repeated, no chunk is too long, and the structure is kept."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from recto.book.chunking import ChunkSize, PlannedChunk, chunk_page, page_language
from recto.book.parsing import read
from recto.book.parsing.markdown import parse
from recto.errors import ConfigurationError
from recto.protocols import Embedder
from recto.types.book import Block, Document, Page, Section

SIZE = ChunkSize()
SIZE_100 = ChunkSize(100)
Count = Callable[[str], int]


def page(markdown: str) -> Page:
    path = "module-1-x/page"
    return Page(f"{path}.md", f"local://docs/docs/{path}", "Page", "x", ("x", "module-1-x"), markdown, "r")


def words(text: str) -> int:
    """Count words and punctuation marks instead of tokens, and two special tokens."""
    return len(re.findall(r"\w+|[^\w\s]", text)) + 2


def chunks(text: str, count: Count = words, limit: int = 512, size: ChunkSize = SIZE) -> list[PlannedChunk]:
    return chunk_page(page(text), parse(text, title="Page"), "book", count, limit, size)


PROSE = "The controller reads every joint. It sends a command, waits, and reads again! Does it stop? Only when told. "


def test_short_page_is_one_chunk() -> None:
    written = replace(page("# Title\n\nOne line.\n\nAnother line.\n"), version="2.0", locale="de")
    (input_,) = chunk_page(written, parse(written.text), "book", words, 512, SIZE)
    chunk = input_.chunk
    assert chunk.text == "One line.\n\nAnother line."
    assert input_.embedded == "Title\n\nOne line.\n\nAnother line."
    assert (chunk.title, chunk.module, chunk.headings, chunk.anchor) == ("Title", "x", ("Title",), "")
    assert (chunk.chunk_index, chunk.total_chunks, chunk.start_line, chunk.end_line) == (0, 1, 3, 5)
    assert (chunk.source, chunk.version, chunk.locale) == ("module-1-x/page.md", "2.0", "de")


def test_a_chunk_is_counted_as_a_whole_if_it_may_exceed_the_limit() -> None:
    """Tokens of the whole may outnumber the sum of its parts: here, the blank lines between paragraphs do."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text.split()) + 4 * text.count("\n\n")

    source = "# T\n\n" + "\n\n".join(f"word{number}" for number in range(56))
    created = chunks(source, count, limit=64)
    assert len(created) == 6, "four would do if the sum of the parts were right"
    assert max(count(chunk.embedded) for chunk in created) <= 64, "nothing is silently cut"
    counted.clear()
    (small,) = chunks("# T\n\nOne.\n\nTwo.\n", count, limit=64)
    assert small.embedded not in counted, "counting takes most of the time"


def test_room_is_left_for_the_heading_path_and_for_joining_blocks() -> None:
    """Of 64 tokens, the path takes 1, the margin 4, and the separator of each of both paragraphs 3."""

    def count(text: str) -> int:
        return len(text.split())

    def number_of_chunks(first: int, second: int) -> int:
        return len(chunks(f"# T\n\n{'word ' * first}\n\n{'word ' * second}\n", count, limit=64))

    assert [number_of_chunks(26, 27), number_of_chunks(27, 27)] == [1, 2]


def test_chunks_have_twice_the_tokens_in_a_language_that_the_model_does_not_know() -> None:
    text = f"# Regler\n\n{'Der Regler liest jedes Gelenk und wartet auf den nächsten Befehl. ' * 40}"
    document = parse(text, title="Page")
    assert page_language(page(text), document) == "de"
    sizes = [
        max(
            words(chunk.embedded)
            for chunk in chunk_page(page(text), document, "b", words, 512, SIZE_100, languages)
        )
        for languages in ((), ("de",), ("en",))
    ]
    assert sizes[0] == sizes[1] <= SIZE_100.max_tokens
    assert 1.5 * SIZE_100.max_tokens < sizes[2] <= 2 * SIZE_100.max_tokens


def test_the_first_sixty_blocks_of_a_page_tell_its_language() -> None:
    english = "The controller reads every joint and waits for the next command."
    german = "Der Regler liest jedes Gelenk und wartet auf den nächsten Befehl."
    text = "\n\n".join(["# T", *[english] * 10, *[german] * 50, *[english] * 90])
    assert page_language(page(text), parse(text, title="T")) == "de"


def test_each_section_has_its_own_chunk_and_heading_path() -> None:
    source = "\n\n".join(f"{heading}\n\n{PROSE * 3}" for heading in ("# T", "## One", "### Deep", "## Two"))
    created = [(input_.chunk.heading_path, input_.chunk.anchor) for input_ in chunks(source)]
    assert created == [("T", ""), ("T > One", "one"), ("T > One > Deep", "deep"), ("T > Two", "two")]


def test_heading_without_text() -> None:
    source = f"# T\n\n## Empty\n\n### Full\n\n{PROSE * 3}\n\n## Leaf\n\n## Trailing\n"
    inputs = [(input_.chunk.heading_path, input_.chunk.text) for input_ in chunks(source)]
    assert [path for path, _ in inputs] == ["T > Empty > Full", "T > Leaf", "T > Trailing"]
    assert [text for _, text in inputs[1:]] == ["## Leaf", "## Trailing"]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 40)), min_size=1, max_size=12))
def test_chunk_never_holds_text_of_two_sections(sections: list[tuple[int, int]]) -> None:
    """The words of each section contain its number."""
    parts = [f"{'#' * level} Heading{n}\n\n{f'word{n} ' * size}" for n, (level, size) in enumerate(sections)]
    for input_ in chunks("\n\n".join(parts), size=ChunkSize(40)):
        named = set(re.findall(r"(?:word|Heading)(\d+)", input_.chunk.text))
        assert len(named) == 1
        assert input_.chunk.headings[-1] == f"Heading{named.pop()}"


def test_long_section_is_split_evenly() -> None:
    source = "# T\n\n" + "\n\n".join([PROSE] * 15) + "\n"
    sizes = [words(input_.chunk.text) for input_ in chunks(source)]
    assert len(sizes) > 1
    assert max(sizes) - min(sizes) < max(sizes) / 2


def test_split_table_keeps_rows_and_repeats_its_header() -> None:
    rows = [f"| joint {number} | {number * 3} degrees | a remark on joint {number} |" for number in range(80)]
    head = "| joint | range | remark |\n|---|---|---|"
    inputs = chunks("# T\n\n" + head + "\n" + "\n".join(rows) + "\n")
    assert len(inputs) > 2
    seen: Counter[str] = Counter()
    for input_ in inputs:
        assert input_.chunk.text.startswith(head)
        seen.update(input_.chunk.text.split("\n")[2:])
    assert seen == Counter(rows)


def test_long_fence_is_split_between_lines() -> None:
    lines = [f"    step_{number}(robot, speed={number}, verbose=True)" for number in range(200)]
    inputs = chunks("# T\n\n```python\n" + "\n".join(lines) + "\n```\n")
    assert len(inputs) > 3
    written = []
    for input_ in inputs:
        opening, *code, closing = input_.chunk.text.split("\n")
        assert (opening, closing) == ("```python", "```")
        written += code
    assert written == lines


def test_unclosed_fence_is_split_at_blank_lines_and_stays_unclosed() -> None:
    steps = "\n".join(f"step_{line}()" for line in range(9))
    parts = [f"# part {number}\n{steps}" for number in range(30)]
    inputs = chunks("# T\n\n```python\n" + "\n\n".join(parts) + "\n")
    assert len(inputs) > 2
    assert all(input_.chunk.text.startswith(("# part", "```python\n# part")) for input_ in inputs)
    assert "\n\n".join(input_.chunk.text for input_ in inputs) == "```python\n" + "\n\n".join(parts)


def test_blocks_that_fit_are_not_split() -> None:
    fence = "\n".join(["  ```python", *(f"  value_{number} = {number}" for number in range(40)), "  ```"])
    table = "\n".join(["  | a | b |", "  |---|---|", *(f"  | row {number} | cell |" for number in range(20))])
    item = f"- {PROSE * 4}\n\n{fence}\n\n  {PROSE * 4}\n\n{table}\n"
    inputs = chunks(f"# T\n\n{item}\n{item}")
    assert len(inputs) > 2
    assert sum(input_.chunk.text.count(fence.lstrip()) for input_ in inputs) == 2
    assert sum(input_.chunk.text.count(table.lstrip()) for input_ in inputs) == 2


def test_inline_math_and_code_are_not_split_as_sentences() -> None:
    sentence = "The law is $a. b! c? d$ and `x. y! z? w` for all of us here. "
    inputs = chunks("# T\n\n" + sentence * 60, size=ChunkSize(60))
    assert len(inputs) > 10
    assert all(input_.chunk.text.endswith("here.") for input_ in inputs)


def test_anchors_belong_to_the_chunk_with_their_text() -> None:
    blocks = '# T|## Empty|## One|TEXT|<a id="middle"></a>|TEXT|:::tip|### Inside|TEXT|:::'
    blocks += "|## Two|Tiny.|## Three {#third}|TEXT|## Trailing"
    source = blocks.replace("|", "\n\n").replace("TEXT", PROSE * 5)
    created = [input_.chunk for input_ in chunks(source, size=ChunkSize(154))]
    assert [chunk.anchor for chunk in created] == [chunk.anchors[0] for chunk in created]
    anchors = [" ".join(chunk.anchors) for chunk in created]
    assert anchors == ["empty t", "one", "one middle", "one inside", "two", "third", "trailing"]


def test_long_list_is_split_between_items() -> None:
    inputs = chunks("# T\n\n" + numbered(30, f"- item {{}}: {PROSE}") + "\n")
    assert len(inputs) > 1
    for input_ in inputs:
        assert all(line.startswith("- item") for line in input_.chunk.text.split("\n"))


@pytest.mark.parametrize("text", ["word " * 3000, "x" * 9000, PROSE * 200, "机器人" * 2000, "🤖" * 1500])
def test_no_chunk_exceeds_the_model_limit(embedder: Embedder, text: str) -> None:
    inputs = chunks(f"# T\n\n{text}\n", embedder.count_tokens, embedder.max_tokens)
    assert all(embedder.count_tokens(input_.embedded) <= SIZE.max_tokens + 8 for input_ in inputs)
    assert "".join("".join(input_.chunk.text.split()) for input_ in inputs) == "".join(text.split())


def test_heading_as_long_as_a_chunk() -> None:
    inputs = chunks(f"# {'very ' * 900} long\n\n{PROSE * 30}\n")
    assert all(words(input_.embedded) <= 512 for input_ in inputs)


def test_model_with_a_small_limit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="too few"):
        chunks("# T\n\ntext\n", limit=16)


def test_ids_depend_on_book_page_and_index() -> None:
    source = f"# T\n\n## A\n\n{PROSE * 4}\n\n## B\n\n{PROSE * 4}\n"
    first, second = chunks(source), chunks(source)
    assert first == second
    assert len({input_.chunk.id for input_ in first}) == len(first)
    other = chunk_page(page(source), parse(source), "another book", words, 512, SIZE)
    assert {input_.chunk.id for input_ in other}.isdisjoint(input_.chunk.id for input_ in first)


def numbered(count: int, line: str) -> str:
    return "\n".join(line.format(number) for number in range(count))


BLOCKS = st.one_of(
    st.text(alphabet="abcd .!?", min_size=1, max_size=400).filter(str.strip),
    st.integers(1, 40).map(lambda count: f"```py\n{numbered(count, 'line {}')}\n```"),
    st.integers(1, 40).map(lambda count: f"~~~\n{numbered(count, 'part {} of all')}\n~~~"),
    st.integers(1, 40).map(lambda count: numbered(count, "- item {} of the list")),
    st.integers(1, 40).map(lambda count: "| a | b |\n|---|---|\n" + numbered(count, "| r{} | c |")),
    st.integers(1, 9).map(lambda count: f":::tip\n\n{numbered(count, 'advice {}')}\n\n- one\n- two\n\n:::"),
    st.integers(1, 9).map(lambda count: "!!! note\n" + numbered(count, "    note {}")),
    st.integers(1, 9).map(lambda count: f"$$\n{numbered(count, 'x_{} = y')}\n$$"),
    st.sampled_from(["## Two", "### Three", "> quoted words", "***"]),
    st.sampled_from(["<!-- hidden -->", "<b>shown</b>", "a &amp; b &lt; c"]),
)
ENDS = st.sampled_from(["", "```\nnever closed\n\nup to the end\n"])
DOCUMENTS = st.tuples(st.lists(BLOCKS, min_size=1, max_size=12), ENDS).map(
    lambda parts: "# T\n\n" + "\n\n".join(parts[0]) + "\n\n" + parts[1]
)
_REPEATED = re.compile(r"^(?:#+ (?:Two|Three)|\| a \| b \||\|---\|---\||```(?:py)?|~~~)$", re.MULTILINE)


def marks(text: str) -> str:
    """Return a text without white space and without what a chunk may repeat."""
    return "".join(_REPEATED.sub("", text).split())


def check(source: str, inputs: list[PlannedChunk], limit: int, count: Count) -> None:
    document = parse(source, title="T")
    expected = "".join(marks(block.text) for section in document.sections for block in section.blocks)
    assert "".join(marks(input_.chunk.text) for input_ in inputs) == expected
    lines = source.split("\n")
    last = 1
    for index, input_ in enumerate(inputs):
        chunk = input_.chunk
        assert count(input_.embedded) <= limit
        assert last <= chunk.start_line <= chunk.end_line <= len(lines)
        last = chunk.end_line
        written = html.unescape("\n".join(lines[chunk.start_line - 1 : chunk.end_line])).split("\n")
        for line in chunk.text.split("\n"):
            assert _REPEATED.fullmatch(line) or any(line.strip() in source_line for source_line in written)
        assert (chunk.chunk_index, chunk.total_chunks) == (index, len(inputs))


@given(DOCUMENTS, st.integers(40, 300))
@hypothesis_settings(max_examples=60)
def test_every_character_is_in_one_chunk_with_its_lines(source: str, max_tokens: int) -> None:
    size = ChunkSize(max_tokens)
    inputs = chunks(source, size=size)
    check(source, inputs, max(max_tokens + 8, 40), words)
    assert inputs == chunks(source, size=size)


@given(DOCUMENTS, st.integers(60, 500))
@hypothesis_settings(max_examples=10)
def test_every_character_with_the_real_tokenizer(embedder: Embedder, source: str, max_tokens: int) -> None:
    inputs = chunks(source, embedder.count_tokens, embedder.max_tokens, ChunkSize(max_tokens))
    check(source, inputs, 512, embedder.count_tokens)


@pytest.mark.parametrize(("text", "language"), [("Kurz", "de"), ("This is about it, and in English.", "en")])
def test_the_configured_language_decides_only_if_the_text_is_too_short(text: str, language: str) -> None:
    page = Page("a.md", "", "", "", (), f"# A\n\n{text}\n", "", locale="de")
    assert page_language(page, read(page)) == language


def test_a_reader_that_knows_too_few_lines() -> None:
    """The lines of a large code block, which is split, are counted from its text."""
    code = Block("code", "```\n" + "word word\n" * 400 + "```", 1, 402, lines=(1, 2, 3))
    document = Document("Page", (Section(("Page",), 1, "", 1, (code,)),))
    read = chunk_page(page(""), document, "book", words, 100, SIZE_100)
    assert len(read) > 1

from hypothesis import given
from hypothesis import strategies as st

from bench.chroma import Span, locate, within_budget
from bench.splitters import recursive, windows


@given(st.text(alphabet="ab. \n", max_size=300), st.integers(1, 40))
def test_recursive_loses_nothing_and_keeps_the_limit(text: str, largest: int) -> None:
    spans = recursive(text, largest)
    assert all(0 < end - start <= largest for start, end in spans)
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())


def test_recursive_prefers_paragraphs() -> None:
    text = "One line.\nAnother line.\n\nA second paragraph."
    assert [text[start:end] for start, end in recursive(text, 30)] == [
        "One line.\nAnother line.",
        "A second paragraph.",
    ]


@given(st.integers(1, 200), st.integers(1, 50), st.booleans())
def test_windows_hold_every_token(tokens: int, size: int, half: bool) -> None:
    offsets = [(2 * number, 2 * number + 1) for number in range(tokens)]
    step = max(1, size // 2) if half else size
    spans = windows(offsets, size, step)
    assert all(any(start <= left and right <= end for start, end in spans) for left, right in offsets)
    assert all((end - start + 1) // 2 <= size for start, end in spans)
    assert len(set(spans)) == len(spans)


def test_a_chunk_is_found_where_it_stands() -> None:
    text = "# T\n\nsame\n\nother  words\nhere\n\nsame\n"
    assert locate(text, "same", (0, len(text)), before=12) == (text.rindex("same"), text.rindex("same") + 4)
    start, end = locate(text, "other words\n\nhere", (0, len(text))) or (0, 0)
    assert text[start:end] == "other  words\nhere"
    assert locate(text, "never written", (0, len(text))) is None


def test_a_repeated_head_of_a_table_does_not_count_as_its_place() -> None:
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n"
    start, end = locate(text, "| a | b |\n|---|---|\n| 3 | 4 |", (text.index("| 3"), len(text))) or (0, 0)
    assert text[start:end] == "| 3 | 4 |"


def test_a_budget_is_spent_to_its_end() -> None:
    ranked = [Span((0, 100), "", 60), Span((200, 300), "", 80)]
    assert within_budget(ranked, 100) == [(0, 100), (200, 250)]
    assert within_budget(ranked, 500) == [(0, 100), (200, 300)]

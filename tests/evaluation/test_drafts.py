"""Drafts: which questions each rule makes from a page, and which headings are never asked."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.book.chunking import DEFAULT_SIZE, chunk_page
from recto.book.parsing import read
from recto.evaluation.drafts import Questions, Usage, choose_drafts, find_questions
from recto.types.book import Page
from recto.types.search import Chunk

PROSE = """
The robot walks to the table and a controller keeps it in balance. It reads the sensor, and the program that you
write for it is on the computer. A robot of this kind can be in the house with you, and it is safe for the people
who are in it. You can install a package, or a plugin, or create a node with the tool to walk, and
then to begin again. This is the text of a page that is in plain English, for the reader of the book.
"""


def pages(*texts: str, module: str = "basics") -> list[Chunk]:
    """Return the chunks of Markdown pages."""
    found: list[Chunk] = []
    for number, text in enumerate(texts):
        name = f"page-{number}.md"
        page = Page(name, f"https://book.example/{module}/{number}", "Page", module, (module,), text, "1")
        chunks = chunk_page(page, read(page), "book", lambda part: len(part) // 4, 512, DEFAULT_SIZE)
        found += (one.chunk for one in chunks)
    return found


def asked(*texts: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the questions from Markdown pages, with their kinds and places; a page of prose is added."""
    found = find_questions(pages(*texts, f"# Closing words\n{PROSE}"))
    return {one.query: (one.kind, places) for one, places in found.items()}


def kinds(*texts: str) -> dict[str, str]:
    return {query: kind for query, (kind, _) in asked(*texts).items()}


@pytest.mark.parametrize(
    ("text", "query", "kind"),
    [
        ("A gimbal is a mount that turns freely.", "What is a gimbal?", "definition"),
        ("Odometry refers to position from wheel turns.", "What is odometry?", "definition"),
        ("- **Payload**: The amount of weight that an arm lifts.", "What is payload?", "definition"),
        ("- `spin_once()`: handles one message and returns", "What does spin_once() do?", "identifier"),
        ("```text\nGraspError: no object between the fingers\n```", "GraspError: no object between the fingers", "error"),
        ("The node raises a `LinkTimeoutError` in this case.", "Why do I get LinkTimeoutError?", "error"),
    ],
)  # fmt: skip
def test_questions_from_text(text: str, query: str, kind: str) -> None:
    assert kinds(f"# Grasping with fingers\n\n{text}\n") == {query: kind}


@pytest.mark.parametrize(
    ("heading", "query", "kind"),
    [
        ("How do I stop a walking robot?", "How do I stop a walking robot?", "question"),
        ("How to calibrate the depth camera", "How do I calibrate the depth camera?", "question"),
        ("When to use torque control", "When should I use torque control?", "question"),
        ("3. Install the gripper driver", "How do I install the gripper driver?", "steps"),
        ("Deploying your controller to Jetson boards", "How do I deploy my controller to Jetson boards?", "steps"),
        ("Creating and using joint limits", "How do I create and use joint limits?", "steps"),
        ("URDF vs SDF", "What is the difference between URDF and SDF?", "comparison"),
        ('Error 3: "No joint states received"', 'How do I fix "No joint states received"?', "error"),
        ("`set_gain()`", "What does set_gain() do?", "identifier"),
        ("Limitations", "What are the limitations of finger grasps?", "heading"),
        ("Common Mistakes", "What are common mistakes with finger grasps?", "heading"),
        ("Tactile Pads", "What should I know about tactile pads?", "heading"),
    ],
)  # fmt: skip
def test_questions_from_headings(heading: str, query: str, kind: str) -> None:
    body = "With `set_gain()` the tactile pads and the gripper act as we like them to."
    assert kinds(f"# Finger grasps\n\n## {heading}\n\n{body}\n") == {query: kind}


@pytest.mark.parametrize(
    "heading",
    ["Objectives", "Overview", "Summary", "Exercises", "Introduction", "Next steps", "See also", "Key Takeaways",
     "Learning Objectives", "What You'll Learn", "2.1 Further reading", "Chapter 3", "In CSS", "Other changes",
     "Why?", "Reading time", "The arm has to move"],
)  # fmt: skip
def test_headings_without_a_subject_are_not_asked(heading: str) -> None:
    assert not asked(f"# Finger grasps\n\n## {heading}\n\nSome text for the reader of the book.\n")


def test_places_are_sections() -> None:
    found = asked("# Finger grasps\n\n## Install the gripper driver\n\nRun the installer.\n")
    assert [places for _, places in found.values()] == [("page-0#install-the-gripper-driver",)]


def test_subjects_of_several_pages_name_the_page_or_are_left_out() -> None:
    heading = "## Change the sample rate\n\nEdit the file.\n"
    found = asked(*(f"# {page}\n\n{heading}" for page in ("Lidar sensors", "Stereo cameras", "Overview")))
    assert set(found) == {
        "How do I change the sample rate in lidar sensors?",
        "How do I change the sample rate in stereo cameras?",
    }


def test_headings_of_a_template_are_not_asked_as_subjects() -> None:
    card = "## Learning Companion Card\n\nThe learning companion card.\n"
    assert not asked(*(f"# Sensor {name}\n\n{card}" for name in "ABCDEF"))


def test_a_definition_on_two_pages_expects_both() -> None:
    found = asked(*(f"# {title}\n\nA gimbal is a mount that turns.\n" for title in ("Cameras", "Mounts")))
    ((kind, places),) = found.values()
    assert (kind, places) == ("definition", ("page-0", "page-1"))


def test_another_language_gives_its_questions_and_quoted_headings() -> None:
    text = "Der Greifer hält das Werkstück mit zwei Fingern, und die Kraft wird vom Regler begrenzt. " * 2
    german = f"# Greifer\n\n{text}\n\n## Wie stark ist der Greifer?\n\nSehr stark.\n\n## Kraft messen\n\nMit ihm.\n"
    found = find_questions(pages(german))
    assert {one.query for one in found} == {"Wie stark ist der Greifer?", '"Kraft messen" Greifer'}
    chinese = "# 机器人\n\n## 机器人怎么走路？\n\n它用腿走路。\n"
    assert [one.query for one in find_questions(pages(chinese))] == ["机器人怎么走路？"]


def test_drafts_are_spread_over_modules_and_depend_on_the_seed() -> None:
    parts = ("arm", "leg", "eye", "ear", "hand")
    steps = "\n\n".join(f"## Install the {part} driver\n\nRun it." for part in parts)
    chunks = pages(f"# One robot\n\n{steps}\n{PROSE}", module="many")
    chunks += pages(f"# Two robots\n\n## Install the balance unit\n\nRun it.\n{PROSE}", module="few")
    found = find_questions(chunks)
    first = choose_drafts(found, 3, 0)
    assert {one.section.module for one, _ in first} == {"many", "few"}
    assert first == choose_drafts(find_questions(reversed(chunks)), 3, 0)
    assert any(choose_drafts(found, 3, seed) != first for seed in range(1, 5))
    assert len(choose_drafts(found, 100, 0)) == len(found) == 6


MARKDOWN = st.lists(
    st.one_of(
        st.sampled_from(
            ["# A & B", "## `x_y()` **z**", "## What is *it*?", "### 3. Use [a link](b) {#c}", "| a | b |", "|---|---|",
             "| `k_v` | the meaning of it |", "```", "TypeError: [x] failed {y} here", "A <b>thing</b> is a part of it.",
             "**Term**: A word that is *bold* here.", "- `a_b`: what it means to the reader", '## Error: `boom` "now"',
             "## x vs y", "The `a|b` option is one of two.", "![i](j)", "$x^2$ is a square of it all", "## 为什么？"]
        ),
        st.text(max_size=40),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(MARKDOWN, MARKDOWN)
def test_every_draft_is_readable(one: list[str], other: list[str]) -> None:
    found: Questions = find_questions(pages("\n".join(one) + PROSE, "\n\n".join(other)))
    for draft, places in found.items():
        query = draft.query
        assert query == " ".join(query.split())
        assert places
        assert not set(query) & set("`*|<>{}[]\\$")
        assert 3 <= len(query) <= 150
        assert not query.isascii() or 3 <= len(query.split()) <= 15
    assert len({draft.query.casefold() for draft in found}) == len(found)


def test_the_prose_of_the_book_shows_which_words_are_names() -> None:
    usage = Usage(["We start Gazebo, and it runs. Run Gazebo with physics, or in a container with ROS."])
    assert usage.in_sentence("Start Gazebo With Physics") == "start Gazebo with physics"
    assert usage.in_sentence("Containers for Gazebo") == "containers for Gazebo"

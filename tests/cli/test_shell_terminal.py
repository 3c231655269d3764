"""The shell in a pseudo-terminal: prompt, keys, completion, and the restored terminal."""

from __future__ import annotations

import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminals import CTRL_C, CTRL_D, TAB, UP, Terminal
from tests.doubles.cohere import CohereDouble
from tests.doubles.server import hang
from tests.running import recto, wait_until

pytestmark = pytest.mark.skipif("sys.platform == 'win32'")


@pytest.fixture
def own_home(sample_home: Path, tmp_path: Path) -> Path:
    """Return a home with the shared book and its own history."""
    home = tmp_path / "own"
    home.mkdir()
    for entry in sample_home.iterdir():
        if entry.name != "shell-history":
            (home / entry.name).symlink_to(entry)
    return home


@pytest.fixture
def terminal(own_home: Path) -> Iterator[Terminal]:
    with Terminal(own_home) as terminal:
        terminal.see("recto>")
        yield terminal


def test_a_session(terminal: Terminal, own_home: Path) -> None:
    history = own_home / "shell-history"
    terminal.press("What is DDS in ROS 2?\r")
    terminal.see("#what-is-dds")
    terminal.see("recto>")
    assert "\x1b[1mDDS\x1b[0m" in terminal.raw, "words that match are bold"
    terminal.press(":module is")
    terminal.see("isaac")
    terminal.press(TAB + "\r")
    terminal.see("recto (isaac)>")
    terminal.press(CTRL_D)
    assert terminal.end() == 0
    assert terminal.state() == terminal.initial_state
    lines = [line for line in history.read_text().splitlines() if line.startswith("+")]
    assert lines == ["+What is DDS in ROS 2?", "+:module isaac"]
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with Terminal(own_home) as later:
        later.see("recto>")
        later.press(UP + UP + "\r")
        later.see("#what-is-dds")
        later.see("recto>")
        later.press(":quit\r")
        assert later.end() == 0


def test_cancelled_lines_pasted_paragraphs_and_sigterm(terminal: Terminal) -> None:
    terminal.press("half a quest" + CTRL_C)
    terminal.see("Cancelled")
    terminal.see("recto>")
    terminal.press(":select\r")
    terminal.see("text>")
    terminal.press(CTRL_C)
    terminal.see("recto>")
    terminal.press(":top 2\r")
    terminal.see("Showing 2 results.")
    terminal.see("recto>")
    terminal.press(":select\r")
    terminal.see("text>")
    terminal.press("\x1b[200~Nodes talk over topics.\n\nTopics have types.\x1b[201~\r")
    terminal.see("text>")
    terminal.press("\r")
    assert "Selected 43 characters" in terminal.see("question>")
    terminal.press("\r")
    assert "results in" in terminal.see("recto>")
    assert terminal.state() != terminal.initial_state, "the prompt changes the terminal"
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM
    assert terminal.state() == terminal.initial_state
    assert "Traceback" not in terminal.text


def test_no_colour(own_home: Path) -> None:
    with Terminal(own_home, columns="60", NO_COLOR="1") as terminal:
        terminal.see("recto>")
        terminal.press("What is DDS in ROS 2?\r")
        terminal.see("results in")
        answer = terminal.see("recto>")
        assert "#what-is-dds" in answer
        assert [line for line in answer.split("\n") if len(line) > 60 and "://" not in line] == []
        assert not re.search(r"\x1b\[[\d;]*[1-9]m", terminal.raw), "no color and no bold"


def test_a_dumb_terminal(own_home: Path) -> None:
    with Terminal(own_home, TERM="dumb") as terminal:
        terminal.see("recto>")
        terminal.press(":top 1\n")
        terminal.see("Showing 1 result.")
        terminal.see("recto>")
        terminal.press("half" + CTRL_C)
        terminal.see("Cancelled")
        terminal.press("What is DDS in ROS 2?\n")
        assert "\x1b" not in terminal.raw
        terminal.see("#what-is-dds")
        terminal.see("recto>")
        terminal.press(CTRL_D)
        assert terminal.end() == 0
        assert terminal.state() == terminal.initial_state


def test_ctrl_c_cancels_a_search_that_hangs(
    home: Path, small_book: Path, cloud: dict[str, str], cohere: CohereDouble
) -> None:
    settings = {**cloud, "RECTO_STORE": "edge"}
    assert recto(home, "index", str(small_book), "--collection", "garden", **settings).returncode == 0
    with Terminal(home, "--collection", "garden", **settings) as terminal:
        terminal.see("recto>")
        asked = len(cohere.requests)
        cohere.always(hang())
        terminal.press("How do I make dough?\r")
        wait_until(lambda: len(cohere.requests) > asked)
        terminal.press(CTRL_C)
        terminal.see("Cancelled")
        terminal.see("recto>")
        cohere.always(None)
        terminal.press(UP + "\r")
        terminal.see("01-bread")
        terminal.see("recto>")
        terminal.press(CTRL_D)
        assert terminal.end() == 0
        assert terminal.state() == terminal.initial_state

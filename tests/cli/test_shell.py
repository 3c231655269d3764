"""The shell: a session, a pipe with results, errors and one exit code, and a pseudo-terminal with its keys."""

from __future__ import annotations

import json
import re
import shlex
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.cli import Exit
from recto.cli.commands.shell import COMMANDS, ShellSession
from recto.search.retriever import Retriever
from recto.types.request import SearchRequest
from recto.types.search import Filters
from tests.cli.terminals import CTRL_C, CTRL_D, TAB, UP, Terminal, piped
from tests.doubles.cohere import CohereDouble
from tests.doubles.server import hang, status
from tests.running import ROOT, recto, run, wait_until

GUIDE = (ROOT / "docs" / "how-to" / "shell.md").read_text("utf-8")
DDS = "local://docs/docs/module-1-ros2/04-dds-and-qos#what-is-dds"
QUERY = "What is DDS in ROS 2?"


class Session:
    """A session whose lines must succeed, or fail with a code; both return what they print."""

    def __init__(self, retriever: Retriever, capsys: pytest.CaptureFixture[str]) -> None:
        self.shell = ShellSession(retriever, SearchRequest(), False, False, False)
        self._capsys = capsys

    def run(self, *lines: str) -> str:
        for line in lines:
            self._capsys.readouterr()
            assert self.shell.run(line) == Exit.OK, line
        return self._capsys.readouterr().out

    def fail(self, line: str) -> str:
        self._capsys.readouterr()
        assert self.shell.run(line) == Exit.ARGUMENT
        error = self._capsys.readouterr().err
        assert error.startswith("[ERROR] ")
        assert error.count("\n") == 2, "an error has a hint"
        return error


@pytest.fixture
def session(
    retriever: Retriever, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Session:
    monkeypatch.setenv("NO_COLOR", "1")
    return Session(retriever, capsys)


def test_queries(session: Session) -> None:
    assert session.run("   ") == ""
    assert DDS in session.run(QUERY)
    assert "results in" in session.run("::quit robot"), "two colons are a query"
    assert "Query is too long" in session.fail("a" * 2001)


def test_settings_of_the_next_queries(session: Session) -> None:
    for mode in ("lexical", "dense", "hybrid"):
        assert f" ms | {mode}" in session.run(f":mode {mode}", QUERY)
    for wrong in ("", "fast"):
        assert "must be one of hybrid, dense, lexical" in session.fail(f":mode {wrong}")
    assert session.run(":top 2", "robot").startswith("2 results in ")
    for wrong in ("", "0", "101", "x", "-1", "9" * 5000):
        assert ":top must be between 1 and 100" in session.fail(f":top {wrong}")
    assert (session.shell.request.mode, session.shell.request.top_k) == ("hybrid", 2)


def test_modules(session: Session) -> None:
    listed = session.run(":module").splitlines()
    assert [line.partition(":")[0] for line in listed] == ["intro", "ros2", "simulation", "isaac", "vla"]
    assert re.fullmatch(r"ros2: \d+ chunks", listed[1])
    found = session.run(":module simulation, ISAAC", "robot")
    modules = set(re.findall(r"^ *\d+  \d\.\d{3}.*\((\w+)\)$", found, re.MULTILINE))
    assert modules
    assert modules <= {"simulation", "isaac"}
    assert session.shell.prompt == "recto (simulation,ISAAC)> "
    session.run(":module off")
    assert (session.shell.request.filters, session.shell.prompt) == (Filters(), "recto> ")
    session.run(":module simulaton")
    assert session.shell.run("robot") == Exit.NO_RESULTS


def test_results_as_selection_page_and_explanation(session: Session, retriever: Retriever) -> None:
    for command in ("page", "select"):
        assert "Type a query first" in session.fail(f":{command} 1")
    section = retriever.page(DDS).markdown("what-is-dds")
    page = session.run(QUERY, ":page 1")
    assert max(map(len, page.split("\n"))) <= 80
    assert page.split() == f"{DDS} {section}".split()
    explained = session.run(":explain")
    assert explained.startswith(f'Query: "{QUERY}"\nSearched: ')
    assert DDS in explained
    for wrong in ("0", "6", "9" * 5000):
        assert "Give a number from 1 to 5" in session.fail(f":page {wrong}")
    related = session.run(":select 1")
    assert "left out" in related, "the selected chunk is not among the results"
    asked = session.run(QUERY, ":select 1 How does it fail?")
    assert "Related to the selected text" in asked
    assert asked.split("\n\n")[1:] != related.split("\n\n")[1:]
    assert "Related to the selected text (30 characters" in session.run(
        ":select A node has a name\nand one job."
    )


def test_help_and_unknown_commands(session: Session) -> None:
    overview = session.run(":help")
    assert [name for name in COMMANDS if f":{name}" not in overview] == []
    assert ":help lists the commands" in session.fail(":modlue ros2")
    with pytest.raises(EOFError):
        session.shell.run(":quit")


def test_a_script_and_the_exit_code_of_its_first_failure(sample_home: Path) -> None:
    done = piped(sample_home, f"{QUERY}\n:quit\nnever asked\n", TERM="xterm-256color")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f'Query: "{QUERY}"\n5 results in ')
    assert DDS in done.stdout
    for absent in ("recto>", "\x1b", "never"):
        assert absent not in done.stdout
    assert not (sample_home / "shell-history").exists(), "only a terminal has a history"
    done = piped(sample_home, f"\ufeff:top 1\r\n:mode fast\nWhat is ROS 2?\n:page 7\n{'a' * 2001}\nrobot")
    assert done.returncode == 4
    errors = [line for line in done.stderr.split("\n") if line.startswith("[ERROR]")]
    assert [error.split(": ")[0] for error in errors] == [f"[ERROR] line {number}" for number in (2, 4, 5)]
    assert done.stdout.count("1 result in ") == 2


def test_json(sample_home: Path) -> None:
    done = piped(sample_home, ":module ros2\nURDF\n:select 1\n", "--json", "--top-k", "2")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = json.loads(f"[{done.stdout.strip().replace(chr(10) * 2 + '{', ',{')}]")
    assert [first["total_found"], second["total_found"]] == [2, 2]
    assert first["filters"] == {"module": "ros2"}
    assert second["selection"]["given"] > 0


@pytest.mark.parametrize(
    ("lines", "arguments", "code"),
    [
        (b"robot\n", ("--min-score", "2"), 1),
        (b"robot\n", ("--top-k", "0"), 4),
        (b"robot\n", ("--collection", "my-book"), 2),
        (b"\xff\xfe robots \x1b[31m\n:nul\x00l\n", (), 4),
    ],
)
def test_exit_codes(sample_home: Path, lines: bytes, arguments: tuple[str, ...], code: int) -> None:
    done = piped(sample_home, lines, *arguments)
    assert done.returncode == code
    assert "\x1b" not in done.stdout + done.stderr


def test_the_guide_has_all_commands_and_its_scripts_run(sample_home: Path, tmp_path: Path) -> None:
    rows = re.findall(r"^\| `:(\w+) ?(.*?)` \| (.*?) \|$", GUIDE, re.MULTILINE)
    assert {name: (usage.replace("\\|", "|"), summary) for name, usage, summary in rows} == COMMANDS
    (tmp_path / "questions.txt").write_text("What is ROS 2?\nsensors\n")
    (script,) = re.findall(r"```text\n(printf .*?)```", GUIDE, re.DOTALL)
    for line in script.strip().split("\n"):
        command = re.sub(r"\brecto\b", f"{shlex.quote(sys.executable)} -m recto", line)
        done = run(command, sample_home, tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), line
    assert (tmp_path / "answers.json").read_text().count('"total_found": 5') == 2


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


def test_a_terminal(terminal: Terminal, own_home: Path) -> None:
    history = own_home / "shell-history"
    terminal.press("half a quest" + CTRL_C)
    terminal.see("Cancelled")
    terminal.see("recto>")
    terminal.press(f"{QUERY}\r")
    terminal.see("#what-is-dds")
    terminal.see("recto>")
    assert "\x1b[1mDDS\x1b[0m" in terminal.raw, "words that match are bold"
    terminal.press(":modu")
    terminal.see(":module")
    terminal.press(TAB + " isaac\r")
    terminal.see("recto (isaac)>")
    terminal.press(CTRL_D)
    assert terminal.end() == 0
    assert terminal.state() == terminal.initial_state
    lines = [line for line in history.read_text().splitlines() if line.startswith("+")]
    assert lines == [f"+{QUERY}", "+:module isaac"]
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with Terminal(own_home, columns="60", NO_COLOR="1") as later:
        later.see("recto>")
        later.press(UP + UP + "\r")
        later.see("results in")
        answer = later.see("recto>")
        assert "#what-is-dds" in answer
        assert [line for line in answer.split("\n") if len(line) > 60 and "://" not in line] == []
        assert not re.search(r"\x1b\[[\d;]*[1-9]m", later.raw), "no color and no bold"
        later.press(":quit\r")
        assert later.end() == 0


def test_sigterm_restores_the_terminal(terminal: Terminal) -> None:
    wait_until(lambda: terminal.state() != terminal.initial_state)
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM
    assert terminal.state() == terminal.initial_state
    assert "Traceback" not in terminal.text


def test_a_dumb_terminal(own_home: Path) -> None:
    with Terminal(own_home, TERM="dumb") as terminal:
        terminal.see("recto>")
        terminal.press("What is DDS in ROS 2?\n")
        terminal.see("#what-is-dds")
        assert "\x1b" not in terminal.raw
        terminal.see("recto>")
        terminal.press(CTRL_D)
        assert terminal.end() == 0


def test_a_service_that_hangs_or_fails(
    home: Path, small_book: Path, cloud: dict[str, str], cohere: CohereDouble
) -> None:
    settings = {**cloud, "RECTO_STORE": "edge"}
    assert recto(home, "index", str(small_book), "--collection", "garden", **settings).returncode == 0
    with Terminal(home, "--collection", "garden", **settings) as terminal:
        terminal.see("recto>")
        requests = len(cohere.requests)
        cohere.always(hang())
        terminal.press("How do I make dough?\r")
        wait_until(lambda: len(cohere.requests) > requests)
        terminal.press(CTRL_C)
        terminal.see("Cancelled")
        terminal.see("recto>")
        cohere.always(status(401))
        terminal.press(UP + "\r")
        terminal.see("[ERROR]")
        terminal.see("recto>")
        cohere.always(None)
        terminal.press(UP + "\r")
        terminal.see("01-bread")
        terminal.see("recto>")
        terminal.press(CTRL_D)
        assert terminal.end() == 0
        assert terminal.state() == terminal.initial_state

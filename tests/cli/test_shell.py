"""The shell: a session, a pipe with results, errors and one exit code, and a pseudo-terminal with its keys."""

from __future__ import annotations

import json
import re
import shlex
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recto.book.sources.tree import MarkdownTree
from recto.cli.commands.shell import COMMANDS, ShellReply, ShellSession, ShellSettings
from recto.errors import ErrorKind
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.settings import ServerOptions
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant.connection import ServerConnection
from recto.types.search import Filters
from tests.cli.terminals import CTRL_C, CTRL_D, TAB, UP, Terminal, piped
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import hang, status
from tests.running import ROOT, recto, run, wait_until

GUIDE = (ROOT / "docs" / "how-to" / "shell.md").read_text("utf-8")
DDS = "local://docs/docs/module-1-ros2/04-dds-and-qos"
PARAGRAPH = "A ROS 2 node is a participant in the robot's software that has a name and does one job."

Ask = Callable[..., ShellReply]


@pytest.fixture
def session(retriever: Retriever) -> ShellSession:
    return ShellSession(retriever)


@pytest.fixture
def ask(session: ShellSession) -> Ask:
    """Run lines that must succeed, and return the last reply."""

    def feed(*lines: str) -> ShellReply:
        reply = ShellReply()
        for line in lines:
            reply = session.feed(line)
            assert reply.error is None, f"{line}: {reply.error}"
        return reply

    return feed


def error_of(session: ShellSession, line: str) -> str:
    reply = session.feed(line)
    assert reply.error is not None, reply.text
    assert reply.error.hint, "an error has a hint"
    return f"{reply.error} {reply.error.hint}"


def modules_in(reply: ShellReply) -> set[str]:
    return set(re.findall(r"^ *\d+  \d\.\d{3}.*\((\w+)\)$", reply.text, re.MULTILINE))


def test_mode(ask: Ask, session: ShellSession) -> None:
    for mode in ("lexical", "dense", "hybrid"):
        assert f" ms | {mode}" in ask(f":mode {mode}", "What is DDS in ROS 2?").text
    for wrong in ("", "fast"):
        assert "must be one of hybrid, dense, lexical" in error_of(session, f":mode {wrong}")
    session.settings = ShellSettings(min_score=5)
    assert "--min-score must be between -1 and 1" in error_of(session, ":mode dense")
    assert session.settings.mode == "hybrid"


def test_an_empty_line_does_nothing_and_two_colons_are_a_query(ask: Ask) -> None:
    assert ask("   ") == ShellReply()
    assert "results in" in ask("::quit robot").text


def test_module_filter(ask: Ask, session: ShellSession) -> None:
    assert session.prompt == "recto> "
    listed = ask(":module").text.split("\n")
    shown = [line.split(":")[0].strip() for line in listed]
    assert shown[:5] == ["intro", "ros2", "simulation", "isaac", "vla"]
    for names in ("simulation, isaac", "simulation isaac", "module-2-simulation,ISAAC"):
        assert modules_in(ask(f":module {names}", "robot")) <= {"simulation", "isaac"}
    ask(":module ros2")
    assert session.prompt == "recto (ros2)> "
    counts = {module.name: module.chunks for module in session.retriever.modules()}
    assert f"* ros2: {counts['ros2']} chunks" in ask(":module").text
    ask(":module off")
    assert session.settings.filters == Filters()


def test_an_unknown_module_changes_nothing(ask: Ask, session: ShellSession) -> None:
    ask(":module ros2")
    message = error_of(session, ":module simulaton")
    assert "Did you mean 'simulation'?" in message
    assert "Modules: intro, isaac" in message
    assert session.settings.filters.modules == ("ros2",)


def test_top(ask: Ask, session: ShellSession) -> None:
    assert ask(":top 2", "robot").text.startswith("2 results in ")
    for wrong in ("", "0", "101", "x", "-1", "٣", "9" * 5000):
        assert ":top must be between 1 and 100" in error_of(session, f":top {wrong}")
    assert session.settings.top_k == 2


def test_verbose(ask: Ask, session: ShellSession) -> None:
    query = "How do I write a launch file?"
    short = ask(":top 1", query).text
    assert len(ask(":verbose", query).text) > len(short)
    assert ask(":verbose off", query).text.split("\n")[1:] == short.split("\n")[1:]
    assert "takes on or off" in error_of(session, ":verbose loud")


def test_a_pasted_selection(ask: Ask, session: ShellSession) -> None:
    assert "empty line ends it" in ask(":select").text
    assert (session.prompt, session.pasting) == ("text> ", True)
    assert ask(PARAGRAPH).text == ""
    assert f"Selected {len(PARAGRAPH)} characters" in ask("").text
    assert (session.prompt, session.pasting) == ("question> ", False)
    assert f"Related to the selected text ({len(PARAGRAPH)} characters" in ask("").text
    assert "Related to the selected text" in ask(":select", PARAGRAPH, ".", "How does it fail?").text
    assert session.prompt == "recto> "


def test_a_result_as_selection(ask: Ask, session: ShellSession) -> None:
    chunk = ask("What is DDS in ROS 2?").text.split("\n\n")[1]
    related = ask(":select 1", "").text
    assert "left out" in related, "the selected chunk is not among the results"
    assert chunk.split("\n")[3] not in related
    ask("What is DDS in ROS 2?")
    assert "Related to the selected text" in ask(":select 1 How does it fail?").text


def test_an_empty_or_cancelled_selection(ask: Ask, session: ShellSession) -> None:
    ask(":select")
    assert "Nothing is selected" in error_of(session, "")
    assert session.prompt == "recto> "
    ask(":select", PARAGRAPH)
    session.cancel()
    assert session.prompt == "recto> "


def test_a_long_selection_warns_once(ask: Ask) -> None:
    long = (PARAGRAPH + " ") * 100
    reply = ask(":select", long, "", "")
    assert [warning for warning in reply.warnings if "selected text is too long" in warning]
    assert ask(":select", long, "", "").warnings == ()


def test_page(ask: Ask, session: ShellSession, retriever: Retriever) -> None:
    section = retriever.page(DDS).markdown("what-is-dds")
    text = ask("What is DDS in ROS 2?", ":page 1").text
    assert max(map(len, text.split("\n"))) <= 80
    assert text.split() == f"{DDS}#what-is-dds {section}".split()
    script = ShellSession(retriever, scripted=True)
    assert script.feed(f":page {DDS}#what-is-dds").text == f"{DDS}#what-is-dds\n\n{section}", "as written"
    assert ":page needs the number" in error_of(session, ":page")
    assert "no page" in error_of(session, ":page local://docs/nowhere").lower()


@pytest.mark.parametrize("command", ["page", "select"])
def test_unknown_results(ask: Ask, session: ShellSession, command: str) -> None:
    assert "no results to choose from" in error_of(session, f":{command} 1")
    ask(":top 2", "robot")
    for wrong in ("0", "3", "9" * 5000):
        assert "Give a number from 1 to 2" in error_of(session, f":{command} {wrong}")


def test_help_and_unknown_commands(ask: Ask, session: ShellSession) -> None:
    overview = ask(":help").text
    assert [name for name in COMMANDS if f"  :{name}" not in overview] == []
    assert "Did you mean :module?" in error_of(session, ":modlue ros2")
    assert ":help lists the commands" in error_of(session, ":")
    assert ask(":QUIT").ends
    assert "Query is too long" in error_of(session, "a" * 2001)


def test_an_engine_is_down(tmp_path: Path, small_book: Path, embedder: Embedder, waits: list[float]) -> None:
    with QdrantDouble() as double:
        connection = ServerConnection(double.url, "", lambda _: None, waits.append)
        store = ServerStore(connection, tmp_path / "home", ServerOptions(), None)
        job = IndexJob(MarkdownTree(small_book), embedder)
        index_book(job, store, "garden", journal=tmp_path / "journal")
        session = ShellSession(Retriever(embedder, store, "garden"))
        assert "Bread" in session.feed("How do I make dough?").text
        double.always(status(503))
        for line in ("How do I make dough?", ":module kitchen", ":page 1"):
            reply = session.feed(line)
            assert reply.error is not None, line
            assert reply.error.kind is ErrorKind.CONNECTION
            assert reply.error.hint
        double.always(None)
        assert "Bread" in session.feed("How do I make dough?").text
        store.close()


def test_a_script(sample_home: Path) -> None:
    done = piped(sample_home, "What is DDS in ROS 2?\n:quit\nnever asked\n", TERM="xterm-256color")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('Query: "What is DDS in ROS 2?"\n5 results in ')
    assert "#what-is-dds" in done.stdout
    for absent in ("recto>", "\x1b", "never"):
        assert absent not in done.stdout
    assert not (sample_home / "shell-history").exists(), "only a terminal has a history"


def test_the_exit_code_of_the_first_failure(sample_home: Path) -> None:
    lines = f"\ufeff:top 1\r\n:module nowhere\nWhat is ROS 2?\n:page nowhere\n{'a' * 2001}\nrobot"
    done = piped(sample_home, lines)
    assert done.returncode == 4
    errors = [line for line in done.stderr.split("\n") if line.startswith("[ERROR]")]
    assert [error.split(": ")[0] for error in errors] == [f"[ERROR] line {number}" for number in (2, 4, 5)]
    assert done.stdout.count("1 result in ") == 2


def test_json_and_the_end_of_input_in_a_selection(sample_home: Path) -> None:
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


def test_the_guide_has_all_commands() -> None:
    rows = re.findall(r"^\| `:(\w+) ?(.*?)` \| (.*?) \|$", GUIDE, re.MULTILINE)
    assert {name: (usage.replace("\\|", "|"), summary) for name, usage, summary in rows} == COMMANDS


def test_the_scripts_of_the_guide_run(sample_home: Path, tmp_path: Path) -> None:
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

"""A shell session: lines in, replies out, no terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.book.sources.tree import MarkdownTree, open_book
from recto.cli.render import Style
from recto.cli.shell.actions import COMMANDS
from recto.cli.shell.session import ShellSession
from recto.errors import ErrorKind
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.settings import ServerOptions
from recto.stores.edge.store import EdgeStore
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from recto.types import Filters
from tests.cli.shell.conftest import Ask
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import status

URDF = "local://docs/docs/module-1-ros2/03-humanoid-urdf"
DDS = "local://docs/docs/module-1-ros2/04-dds-and-qos"
PARAGRAPH = "A ROS 2 node is a participant in the robot's software that has a name and does one job."


def error_of(session: ShellSession, line: str) -> str:
    reply = session.feed(line)
    assert reply.error is not None, reply.text
    assert reply.error.hint, "an error has a hint"
    return f"{reply.error} {reply.error.hint}"


def test_a_result_has_title_url_score_and_text(ask: Ask) -> None:
    text = ask("What is DDS in ROS 2?").text
    assert text.startswith("5 results in ")
    assert " ms | hybrid" in text
    first = text.split("\n\n")[1].split("\n")
    assert re.match(r" 1  [01]\.\d{3}  ", first[0])
    assert "DDS and Quality of Service (ros2)" in first[0]
    assert first[1:3] == ["    What is DDS in ROS 2?", f"    {DDS}#what-is-dds"]
    assert "DDS" in first[3]
    assert all(len(line) <= 80 for line in text.split("\n") if "://" not in line)


def test_a_query_that_the_book_does_not_cover(ask: Ask) -> None:
    lines = ask("the best recipe for apple pie").text.split("\n")
    assert lines[0].endswith(" | hybrid | the best 3 are shown")
    assert lines[1] == "The book does not seem to cover this."
    assert len([line for line in lines if re.match(r" \d  0\.\d{3} weak  ", line)]) == 3
    assert "does not seem to cover" not in ask("What is ROS 2?").text


def test_a_misspelled_word_is_corrected(ask: Ask) -> None:
    assert (
        ask("quaternoin").text.split("\n")[1] == '"quaternoin" is not in the book. Searched for "quaternion".'
    )


def test_mode(ask: Ask, session: ShellSession) -> None:
    assert ask(":mode").text == "Searching in hybrid mode."
    for mode in ("lexical", "dense", "hybrid"):
        ask(f":mode {mode}", "What is DDS in ROS 2?")
        assert session.result().response.mode == mode
        assert f"Its {mode} score is " in ask(":explain 1").text
    assert "must be one of hybrid, dense, lexical" in error_of(session, ":mode fast")
    ask(":min 5")
    assert ":min must be between -1 and 1" in error_of(session, ":mode dense")
    assert session.settings.mode == "hybrid"


def test_an_empty_line_does_nothing(ask: Ask, session: ShellSession) -> None:
    reply = ask("   ")
    assert (reply.text, reply.ends, session.query) == ("", False, None)


def test_a_query_can_begin_with_a_colon(ask: Ask, session: ShellSession) -> None:
    ask("::quit robot")
    assert session.result().query.question == ":quit robot"


def test_module_filter(ask: Ask, session: ShellSession) -> None:
    assert session.prompt == "recto> "
    listed = ask(":module").text
    assert [line.split(":")[0].strip() for line in listed.split("\n")][:5] == [
        "intro",
        "ros2",
        "simulation",
        "isaac",
        "vla",
    ]
    for names in ("simulation, isaac", "simulation isaac", "module-2-simulation,ISAAC"):
        ask(f":module {names}", "robot")
        assert {hit.chunk.module_name for hit in session.result().response.hits} <= {"simulation", "isaac"}
    ask(":module ros2")
    assert session.prompt == "recto (ros2)> "
    counts = {module.name: module.chunks for module in session.retriever.modules()}
    assert f"* ros2: {counts['ros2']} chunks" in ask(":module").text
    ask(":module off")
    assert session.settings.filters == Filters()


def test_an_unknown_module_changes_nothing(ask: Ask, session: ShellSession) -> None:
    ask(":module ros2")
    said = error_of(session, ":module simulaton")
    assert "Did you mean 'simulation'?" in said
    assert "Modules: intro, isaac" in said
    assert session.settings.filters.modules == ("ros2",)


@pytest.mark.parametrize(
    "address",
    [URDF, f"{URDF}/", f"{URDF}.md#links", "03-humanoid-urdf", "module-1-ros2/03-humanoid-urdf", "urdf"],
)
def test_url_filter_by_url_or_a_part_of_it(ask: Ask, session: ShellSession, address: str) -> None:
    ask(f":url {address}", "robot")
    assert {hit.chunk.page_url for hit in session.result().response.hits} == {URDF}
    ask(":url off")
    assert session.settings.filters == Filters()


def test_url_filter_by_result(ask: Ask, session: ShellSession) -> None:
    ask("What is DDS in ROS 2?", ":url 1")
    assert session.settings.filters.page_url == DDS
    assert DDS in ask(":url").text


def test_an_unknown_or_ambiguous_page(session: ShellSession) -> None:
    assert f"Did you mean '{DDS}'?" in error_of(
        session, ":url local://docs/docs/module-1-ros2/04-dds-and-qso"
    )
    assert "It could be local://" in error_of(session, ":url simulation")
    assert session.settings.filters == Filters()


def test_top(ask: Ask, session: ShellSession) -> None:
    ask(":top 2", "robot")
    assert len(session.result().response.hits) == 2
    assert "2 results" in ask(":top").text
    for wrong in ("0", "101", "x", "-1", "٣", "9" * 5000):
        assert ":top must be between 1 and 100" in error_of(session, f":top {wrong}")
    assert session.settings.top_k == 2


def test_min_score(ask: Ask, session: ShellSession) -> None:
    ask(":min 0.75", "What is ROS 2?")
    assert all(hit.score >= 0.75 for hit in session.result().response.hits)
    reply = ask(":min 2", "What is ROS 2?")
    assert not reply.found
    assert "No chunk reaches the minimum score" in reply.text
    for wrong in ("2000", "nan", "high"):
        error_of(session, f":min {wrong}")
    ask(":min off")
    assert session.settings.min_score is None


def test_again(ask: Ask, session: ShellSession) -> None:
    error_of(session, ":again")
    ask("sensors", ":module simulation", ":top 3", ":again")
    response = session.result().response
    assert (response.query, len(response.hits), response.filters.modules) == ("sensors", 3, ("simulation",))


def test_verbose(ask: Ask, session: ShellSession) -> None:
    ask(":top 1")
    short = ask("How do I write a launch file?").text
    whole = ask(":verbose", ":again").text
    assert len(whole) > len(short)
    words = session.result().response.hits[0].chunk.text.split()
    assert [word for word in whole.split() if word in words][-5:] == words[-5:]
    assert ask(":verbose off", ":again").text.split("\n")[1:] == short.split("\n")[1:]
    assert "takes on or off" in error_of(session, ":verbose loud")


def test_json(ask: Ask, session: ShellSession) -> None:
    data = json.loads(ask(":json on", "digital twin").text)
    assert data["total_found"] == 5
    assert data["results"][0]["anchor"]
    data = json.loads(ask(":select 1", "").text)
    assert data["selection"]["left_out"] >= 1
    assert not ask(":json off", ":again").text.startswith("{")


def test_select_a_result(ask: Ask, session: ShellSession) -> None:
    ask("What is a ROS 2 node?")
    selected = session.result().response.hits[0].chunk
    ask(":select 1")
    assert session.prompt == "question> "
    text = ask("").text
    response = session.result().response
    assert response.selection is not None
    assert response.selection.text == selected.text.strip()
    assert selected.id not in {hit.chunk.id for hit in response.hits}
    assert "left out" in text
    assert session.prompt == "recto> "


def test_select_with_a_question(ask: Ask, session: ShellSession) -> None:
    ask("What is a ROS 2 node?", ":select 1", ":module ros2", "How do they find each other?")
    first = session.result()
    assert first.query.question == "How do they find each other?"
    assert first.response.selection is not None
    ask(":module off", "What is a ROS 2 node?", ":module ros2", ":select 1 How do they find each other?")
    assert session.result().response.hits == first.response.hits, "one line does the same"


@pytest.mark.parametrize("end", ["", "."])
def test_select_pasted_text(ask: Ask, session: ShellSession, end: str) -> None:
    ask(":select")
    assert session.pasting
    assert session.prompt == "text> "
    ask(
        "One line, and a paste of two paragraphs:",
        f"{PARAGRAPH}\n\n:quit is not a command here.",
        ":nor is this",
        end,
        "",
    )
    response = session.result().response
    assert response.selection is not None
    assert response.selection.text.startswith("One line")
    assert response.selection.text.endswith(":quit is not a command here.\n:nor is this")


def test_select_a_section(ask: Ask, session: ShellSession, retriever: Retriever) -> None:
    ask(":select 04-dds-and-qos#what-is-dds", "")
    response = session.result().response
    assert response.selection is not None
    assert retriever.page(DDS).markdown("what-is-dds").startswith(response.selection.text)
    assert "There is no section '#what-is-sdd'" in error_of(session, ":select 04-dds-and-qos#what-is-sdd")
    assert "There is no page" in error_of(session, ":select no-such-page-anywhere")


def test_the_end_of_input_ends_a_selection_first(ask: Ask, session: ShellSession) -> None:
    ask(":select", PARAGRAPH)
    assert not session.finish().ends
    assert session.prompt == "question> "
    assert "results in" in session.finish().text
    assert session.finish().ends


def test_select_nothing(ask: Ask, session: ShellSession) -> None:
    ask(":select")
    assert "Nothing is selected" in error_of(session, "")
    assert session.prompt == "recto> "
    ask(":select", PARAGRAPH)
    session.cancel()
    assert session.prompt == "recto> "
    assert session.query is None


def test_a_long_selection_warns_once(ask: Ask) -> None:
    long = (PARAGRAPH + " ") * 100
    reply = ask(":select", long, "", "")
    assert [warning for warning in reply.warnings if "selected text is too long" in warning]
    assert ask(":again").warnings == ()


def test_explain(ask: Ask, session: ShellSession) -> None:
    ask(":top 3", "How do nodes find each other with DDS?")
    hits = session.result().response.hits
    text = " ".join(ask(":explain 2").text.split())
    assert (
        f"Its hybrid score is {hits[1].score:.3f} (cosine {hits[1].dense:.3f}, lexical {hits[1].lexical:.3f})."
        in text
    )
    count = session.retriever.open().info.chunks
    assert (
        f"It is at rank 2 among {count} chunks, {hits[0].score - hits[1].score:.3f} below the first" in text
    )
    assert "Words of the query:" in text
    assert "--- end of the top 3 ---" in text
    assert text.count("> 2 0.") == 1
    assert "It is related to the selected text" in ask(":select 1", "", ":explain 1").text.replace(
        "\n  ", " "
    )


def test_explain_uses_the_settings_of_the_search(ask: Ask, session: ShellSession) -> None:
    ask("What is DDS in ROS 2?", ":module vla", ":top 1")
    assert f"among {session.retriever.open().info.chunks} chunks" in " ".join(
        ask(":explain 5").text.split()
    ), "with the settings of that search"


def test_open(ask: Ask) -> None:
    assert ask("What is DDS in ROS 2?", ":open 1").text == f"{DDS}#what-is-dds"


def test_page(ask: Ask, session: ShellSession, retriever: Retriever) -> None:
    text = ask("What is DDS in ROS 2?", ":page 1").text
    assert max(map(len, text.split("\n"))) <= 80
    assert text.split() == f"{DDS}#what-is-dds {retriever.page(DDS).markdown('what-is-dds')}".split()
    session.scripted = True  # scripts get the text as written
    text = ask(":page 1").text
    assert text == f"{DDS}#what-is-dds\n\n{retriever.page(DDS).markdown('what-is-dds')}"
    assert ask(":page urdf").text == f"{URDF}\n\n{retriever.page(URDF).markdown()}"
    error_of(session, ":page")


@pytest.mark.parametrize("command", ["explain", "open", "page", "select", "url"])
def test_unknown_results(ask: Ask, session: ShellSession, command: str) -> None:
    assert "no results to choose from" in error_of(session, f":{command} 1")
    ask(":top 2", "robot")
    for wrong in ("0", "3", "9" * 5000):
        assert "Give a number from 1 to 2" in error_of(session, f":{command} {wrong}")


def test_stats(ask: Ask) -> None:
    assert "No searches yet" in ask(":stats").text
    ask("robot", "sensors", ":select 1", "")
    lines = ask(":stats").text.split("\n")
    assert lines[0].startswith("Model and index were ready in ")
    assert lines[1].startswith("3 searches")
    assert lines[2].split() == ["last", "p50", "p95", "max"]
    table = {line.split()[0]: [float(value) for value in line.split()[1:]] for line in lines[3:]}
    assert list(table) == ["embed", "search", "total"]
    assert all(row[1] <= row[2] <= row[3] and row[0] <= row[3] for row in table.values())
    assert table["total"][0] >= table["embed"][0]


def test_collection(ask: Ask, session: ShellSession) -> None:
    assert (
        f"Searching 'recto-sample': {session.retriever.open().info.chunks} chunks" in ask(":collection").text
    )
    ask(":module ros2", "robot", ":collection website_embeddings")
    assert session.retriever.collection == "website_embeddings"
    assert session.settings.filters == Filters()
    error_of(session, ":open 1")
    said = error_of(session, ":collection nowhere")
    assert "Collection 'nowhere' does not exist" in said
    error_of(session, ":collection ../up")
    assert session.retriever.collection == "website_embeddings"


def test_every_command_has_help(ask: Ask) -> None:
    overview = ask(":help").text
    for command in COMMANDS:
        assert f"  :{command.name}" in overview
        assert ask(f":help {command.name}").text.startswith(f":{command.name}")


def test_unknown_and_abbreviated_commands(ask: Ask, session: ShellSession) -> None:
    assert "Did you mean :module?" in error_of(session, ":modlue ros2")
    assert "It could be :select, :stats." in error_of(session, ":s")
    assert ":help lists the commands" in error_of(session, ":")
    assert ask(":modu ros2").text == "Searching only ros2."
    assert ask(":q").ends
    assert ask(":QUIT").ends
    assert "takes no argument" in error_of(session, ":quit now")


def test_a_query_that_is_too_long(session: ShellSession) -> None:
    assert "Query is too long" in error_of(session, "a" * 2001)


def test_escape_sequences_in_lines_are_not_printed(ask: Ask, session: ShellSession) -> None:
    nasty = "\x1b]0;title\x07\x1b[2Jrobot\u202e \x9b31m"
    for line in (
        nasty,
        f":module {nasty}",
        f":url {nasty}",
        f":{nasty}",
        f":open {nasty}",
        f":help {nasty}",
        f":json {nasty}",
    ):
        reply = session.feed(line)
        assert not set(reply.text) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_escape_sequences_in_a_book_are_not_printed(tmp_path: Path, embedder: Embedder) -> None:
    book = tmp_path / "book"
    book.mkdir()
    nasty = "\x1b]8;;http://evil.example\x1b\\\x1b[2J\x9b31m\u202e"
    (book / "page.md").write_text(
        f"# Pumps{nasty}\n\nA pump moves {nasty}water.\n\n## Valves{nasty}\n\nA valve{nasty} stops it.\n" * 3
    )
    store = EdgeStore(tmp_path / "home")
    index_book(IndexJob(open_book(book), embedder), store, "pumps", journal=tmp_path / "journal")
    session = ShellSession(Retriever(embedder, store, "pumps"), style=lambda: Style(80, color=True))
    for line in (
        "What does a pump move?",
        ":verbose",
        ":again",
        ":explain 1",
        ":open 1",
        ":page 1",
        ":module",
        ":select 1 pump",
    ):
        reply = session.feed(line)
        assert reply.error is None
        ours = re.sub(r"\x1b\[(?:0|1|2|3[1-6])m", "", reply.text)
        assert not set(ours) & {"\x1b", "\x07", "\x9b", "\u202e"}, line


def test_a_new_index_is_noticed(tmp_path: Path, small_book: Path, embedder: Embedder) -> None:
    store = EdgeStore(tmp_path / "home")

    def index() -> None:
        index_book(
            IndexJob(open_book(small_book), embedder),
            EdgeStore(tmp_path / "home"),
            "garden",
            journal=tmp_path / "journal",
        )

    index()
    session = ShellSession(Retriever(embedder, store, "garden"))
    assert "indexed again" not in session.feed("How do I prune apple trees?").text
    assert "indexed again" not in session.feed(":again").text
    (small_book / "trees.md").write_text(
        "# Apple trees\n\nPrune apple trees in February, before the buds swell.\n"
    )
    index()
    text = session.feed(":again").text
    assert "The book was indexed again" in text
    assert "Apple trees" in text
    assert "indexed again" not in session.feed(":again").text


@pytest.fixture
def on_a_server(
    tmp_path: Path, small_book: Path, embedder: Embedder, waits: list[float]
) -> Iterator[tuple[ShellSession, QdrantDouble]]:
    with QdrantDouble() as double:
        store = ServerStore(
            Connection(double.url, "", lambda _: None, waits.append), tmp_path / "home", ServerOptions(), None
        )
        index_book(
            IndexJob(MarkdownTree(small_book), embedder), store, "garden", journal=tmp_path / "journal"
        )
        yield ShellSession(Retriever(embedder, store, "garden")), double
        store.close()


def test_an_engine_that_is_down_for_a_while(on_a_server: tuple[ShellSession, QdrantDouble]) -> None:
    session, double = on_a_server
    assert "Bread" in session.feed("How do I make dough?").text
    double.always(status(503))
    for line in ("How do I make dough?", ":again", ":explain 1", ":module kitchen"):
        reply = session.feed(line)
        assert reply.error is not None, line
        assert reply.error.kind is ErrorKind.CONNECTION
        assert reply.error.hint
    assert session.feed(":open 1").text.endswith("/01-bread"), "this needs no engine"
    double.always(None)
    assert "Bread" in session.feed(":again").text

"""A session as its user knows it: a line in, a reply out; no terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.book.sources.tree import MarkdownTree, open_book
from recto.cli.shell.actions import ACTIONS, COMMANDS
from recto.cli.shell.session import Session
from recto.cli.shell.show import Look
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


def refused(session: Session, line: str) -> str:
    reply = session.feed(line)
    assert reply.error is not None, reply.text
    assert reply.error.hint, "an error says what to do"
    return f"{reply.error} {reply.error.hint}"


def test_a_question_is_answered_with_title_place_score_and_text(ask: Ask) -> None:
    text = ask("What is DDS in ROS 2?").text
    assert text.startswith("5 results in ")
    assert " ms | hybrid" in text
    first = text.split("\n\n")[1].split("\n")
    assert re.match(r" 1  [01]\.\d{3}  ", first[0])
    assert "DDS and Quality of Service (ros2)" in first[0]
    assert first[1:3] == ["    What is DDS in ROS 2?", f"    {DDS}#what-is-dds"]
    assert "DDS" in first[3]
    assert all(len(line) <= 80 for line in text.split("\n") if "://" not in line)


def test_what_the_book_does_not_cover_is_said_first_and_shows_few_weak_results(ask: Ask) -> None:
    lines = ask("the best recipe for apple pie").text.split("\n")
    assert lines[0].endswith(" | hybrid | the best 3 are shown")
    assert lines[1] == "The book does not seem to cover this."
    assert len([line for line in lines if re.match(r" \d  0\.\d{3} weak  ", line)]) == 3
    assert "does not seem to cover" not in ask("What is ROS 2?").text


def test_a_misspelt_word_is_corrected_and_said(ask: Ask) -> None:
    assert (
        ask("quaternoin").text.split("\n")[1] == '"quaternoin" is not in the book. Searched for "quaternion".'
    )


def test_the_mode(ask: Ask, session: Session) -> None:
    assert ask(":mode").text == "Searching in hybrid mode."
    for mode in ("lexical", "dense", "hybrid"):
        ask(f":mode {mode}", "What is DDS in ROS 2?")
        assert session.answered().response.mode == mode
        assert f"Its {mode} score is " in ask(":explain 1").text
    assert "must be one of hybrid, dense, lexical" in refused(session, ":mode fast")
    ask(":min 5")
    assert ":min must be between -1 and 1" in refused(session, ":mode dense")
    assert session.view.mode == "hybrid"


def test_an_empty_line_is_nothing(ask: Ask, session: Session) -> None:
    reply = ask("   ")
    assert (reply.text, reply.ends, session.asked) == ("", False, None)


def test_a_question_may_begin_with_a_colon(ask: Ask, session: Session) -> None:
    ask("::quit robot")
    assert session.answered().asked.question == ":quit robot"


def test_modules_narrow_the_search(ask: Ask, session: Session) -> None:
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
        assert {hit.chunk.module_name for hit in session.answered().response.hits} <= {"simulation", "isaac"}
    ask(":module ros2")
    assert session.prompt == "recto (ros2)> "
    counts = {module.name: module.chunks for module in session.retriever.modules()}
    assert f"* ros2: {counts['ros2']} passages" in ask(":module").text
    ask(":module off")
    assert session.view.filters == Filters()


def test_a_module_that_is_not_there_changes_nothing(ask: Ask, session: Session) -> None:
    ask(":module ros2")
    said = refused(session, ":module simulaton")
    assert "Did you mean 'simulation'?" in said
    assert "Modules: intro, isaac" in said
    assert session.view.filters.modules == ("ros2",)


@pytest.mark.parametrize(
    "address",
    [URDF, f"{URDF}/", f"{URDF}.md#links", "03-humanoid-urdf", "module-1-ros2/03-humanoid-urdf", "urdf"],
)
def test_a_page_by_its_address_or_a_part_of_it(ask: Ask, session: Session, address: str) -> None:
    ask(f":url {address}", "robot")
    assert {hit.chunk.page_url for hit in session.answered().response.hits} == {URDF}
    ask(":url off")
    assert session.view.filters == Filters()


def test_the_page_of_a_result(ask: Ask, session: Session) -> None:
    ask("What is DDS in ROS 2?", ":url 1")
    assert session.view.filters.page_url == DDS
    assert DDS in ask(":url").text


def test_a_page_that_is_not_there_or_could_be_several(session: Session) -> None:
    assert f"Did you mean '{DDS}'?" in refused(session, ":url local://docs/docs/module-1-ros2/04-dds-and-qso")
    assert "It could be local://" in refused(session, ":url simulation")
    assert session.view.filters == Filters()


def test_how_many(ask: Ask, session: Session) -> None:
    ask(":top 2", "robot")
    assert len(session.answered().response.hits) == 2
    assert "2 passages" in ask(":top").text
    for wrong in ("0", "101", "x", "-1", "٣", "9" * 5000):
        assert ":top must be between 1 and 100" in refused(session, f":top {wrong}")
    assert session.view.top_k == 2


def test_the_least_score(ask: Ask, session: Session) -> None:
    ask(":min 0.85", "What is ROS 2?")
    assert all(hit.score >= 0.85 for hit in session.answered().response.hits)
    reply = ask(":min 2", "What is ROS 2?")
    assert not reply.found
    assert "No chunk reaches the minimum score" in reply.text
    for wrong in ("2000", "nan", "high"):
        refused(session, f":min {wrong}")
    ask(":min off")
    assert session.view.min_score is None


def test_again_with_what_is_set_now(ask: Ask, session: Session) -> None:
    refused(session, ":again")
    ask("sensors", ":module simulation", ":top 3", ":again")
    response = session.answered().response
    assert (response.query, len(response.hits), response.filters.modules) == ("sensors", 3, ("simulation",))


def test_whole_passages(ask: Ask, session: Session) -> None:
    ask(":top 1")
    short = ask("How do I write a launch file?").text
    whole = ask(":verbose", ":again").text
    assert len(whole) > len(short)
    words = session.answered().response.hits[0].chunk.text.split()
    assert [word for word in whole.split() if word in words][-5:] == words[-5:]
    assert ask(":verbose off", ":again").text.split("\n")[1:] == short.split("\n")[1:]
    assert "takes on or off" in refused(session, ":verbose loud")


def test_json(ask: Ask, session: Session) -> None:
    data = json.loads(ask(":json on", "digital twin").text)
    assert data["total_found"] == 5
    assert data["results"][0]["anchor"]
    data = json.loads(ask(":select 1", "").text)
    assert data["selection"]["left_out"] >= 1
    assert not ask(":json off", ":again").text.startswith("{")


def test_a_result_as_selected_text(ask: Ask, session: Session) -> None:
    ask("What is a ROS 2 node?")
    selected = session.answered().response.hits[0].chunk
    ask(":select 1")
    assert session.prompt == "question> "
    text = ask("").text
    response = session.answered().response
    assert response.selection is not None
    assert response.selection.text == selected.text.strip()
    assert selected.id not in {hit.chunk.id for hit in response.hits}
    assert "left out" in text
    assert session.prompt == "recto> "


def test_a_question_about_selected_text(ask: Ask, session: Session) -> None:
    ask("What is a ROS 2 node?", ":select 1", ":module ros2", "How do they find each other?")
    first = session.answered()
    assert first.asked.question == "How do they find each other?"
    assert first.response.selection is not None
    ask(":module off", "What is a ROS 2 node?", ":module ros2", ":select 1 How do they find each other?")
    assert session.answered().response.hits == first.response.hits, "in one line it is the same"


@pytest.mark.parametrize("end", ["", "."])
def test_pasted_text(ask: Ask, session: Session, end: str) -> None:
    ask(":select")
    assert session.pasting
    assert session.prompt == "text> "
    ask(
        "One line, and a paste of two paragraphs:",
        f"{PARAGRAPH}\n\n:quit is no command here.",
        ":nor is this",
        end,
        "",
    )
    response = session.answered().response
    assert response.selection is not None
    assert response.selection.text.startswith("One line")
    assert response.selection.text.endswith(":quit is no command here.\n:nor is this")


def test_a_section_as_selected_text(ask: Ask, session: Session, retriever: Retriever) -> None:
    ask(":select 04-dds-and-qos#what-is-dds", "")
    response = session.answered().response
    assert response.selection is not None
    assert retriever.page(DDS).markdown("what-is-dds").startswith(response.selection.text)
    assert "There is no section '#what-is-sdd'" in refused(session, ":select 04-dds-and-qos#what-is-sdd")
    assert "There is no page" in refused(session, ":select no-such-page-anywhere")


def test_the_end_of_input_ends_a_selection_first(ask: Ask, session: Session) -> None:
    ask(":select", PARAGRAPH)
    assert not session.finish().ends
    assert session.prompt == "question> "
    assert "results in" in session.finish().text
    assert session.finish().ends


def test_nothing_selected(ask: Ask, session: Session) -> None:
    ask(":select")
    assert "Nothing is selected" in refused(session, "")
    assert session.prompt == "recto> "
    ask(":select", PARAGRAPH)
    session.cancel()
    assert session.prompt == "recto> "
    assert session.asked is None


def test_a_long_selection_is_cut_and_told_once(ask: Ask) -> None:
    long = (PARAGRAPH + " ") * 100
    reply = ask(":select", long, "", "")
    assert [warning for warning in reply.warnings if "selected text is long" in warning]
    assert ask(":again").warnings == ()


def test_why_a_result_is_there(ask: Ask, session: Session) -> None:
    ask(":top 3", "How do nodes find each other with DDS?")
    hits = session.answered().response.hits
    text = " ".join(ask(":explain 2").text.split())
    assert (
        f"Its hybrid score is {hits[1].score:.3f} (cosine {hits[1].dense:.3f}, BM25 {hits[1].lexical:.3f})."
        in text
    )
    count = session.retriever.open().info.chunks
    assert (
        f"It is at rank 2 among {count} chunks, {hits[0].score - hits[1].score:.3f} below the first" in text
    )
    assert "Words of the query:" in text
    assert "--- the first 3 end here ---" in text
    assert text.count("> 2 0.") == 1
    assert "It goes with the selected text" in ask(":select 1", "", ":explain 1").text.replace("\n  ", " ")


def test_a_result_is_explained_by_its_own_question(ask: Ask, session: Session) -> None:
    ask("What is DDS in ROS 2?", ":module vla", ":top 1")
    assert f"among {session.retriever.open().info.chunks} chunks" in " ".join(
        ask(":explain 5").text.split()
    ), "not by what is set since"


def test_the_address_of_a_result(ask: Ask) -> None:
    assert ask("What is DDS in ROS 2?", ":open 1").text == f"{DDS}#what-is-dds"


def test_reading_on(ask: Ask, session: Session, retriever: Retriever) -> None:
    text = ask("What is DDS in ROS 2?", ":page 1").text
    assert max(map(len, text.split("\n"))) <= 80
    assert text.split() == f"{DDS}#what-is-dds {retriever.page(DDS).markdown('what-is-dds')}".split()
    session.scripted = True  # a program reads it as it is written
    text = ask(":page 1").text
    assert text == f"{DDS}#what-is-dds\n\n{retriever.page(DDS).markdown('what-is-dds')}"
    assert ask(":page urdf").text == f"{URDF}\n\n{retriever.page(URDF).markdown()}"
    refused(session, ":page")


@pytest.mark.parametrize("command", ["explain", "open", "page", "select", "url"])
def test_results_that_are_not_there(ask: Ask, session: Session, command: str) -> None:
    assert "no results to choose from" in refused(session, f":{command} 1")
    ask(":top 2", "robot")
    for wrong in ("0", "3", "9" * 5000):
        assert "Give a number from 1 to 2" in refused(session, f":{command} {wrong}")


def test_what_searches_took(ask: Ask) -> None:
    assert "No searches yet" in ask(":stats").text
    ask("robot", "sensors", ":select 1", "")
    lines = ask(":stats").text.split("\n")
    assert lines[0].startswith("The model and the index were ready in ")
    assert lines[1].startswith("3 searches")
    assert lines[2].split() == ["last", "p50", "p95", "max"]
    table = {line.split()[0]: [float(value) for value in line.split()[1:]] for line in lines[3:]}
    assert list(table) == ["embed", "search", "total"]
    assert all(row[1] <= row[2] <= row[3] and row[0] <= row[3] for row in table.values())
    assert table["total"][0] >= table["embed"][0]


def test_another_collection(ask: Ask, session: Session) -> None:
    assert (
        f"Searching 'physical-ai-book': {session.retriever.open().info.chunks} passages"
        in ask(":collection").text
    )
    ask(":module ros2", "robot", ":collection website_embeddings")
    assert session.retriever.collection == "website_embeddings"
    assert session.view.filters == Filters()
    refused(session, ":open 1")
    said = refused(session, ":collection nowhere")
    assert "Collection 'nowhere' does not exist" in said
    refused(session, ":collection ../up")
    assert session.retriever.collection == "website_embeddings"


def test_every_command_has_an_action_and_help(ask: Ask) -> None:
    assert list(ACTIONS) == [command.name for command in COMMANDS]
    overview = ask(":help").text
    for command in COMMANDS:
        assert f"  :{command.name}" in overview
        assert ask(f":help {command.name}").text.startswith(f":{command.name}")


def test_unknown_commands_and_short_ones(ask: Ask, session: Session) -> None:
    assert "Did you mean :module?" in refused(session, ":modlue ros2")
    assert "It could be :select, :stats." in refused(session, ":s")
    assert ":help lists the commands" in refused(session, ":")
    assert ask(":modu ros2").text == "Searching only ros2."
    assert ask(":q").ends
    assert ask(":QUIT").ends
    assert "takes nothing" in refused(session, ":quit now")


def test_queries_that_cannot_be_asked(session: Session) -> None:
    assert "Query is too long" in refused(session, "a" * 2001)


def test_escapes_in_lines_are_inert(ask: Ask, session: Session) -> None:
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


def test_escapes_in_a_book_are_inert(tmp_path: Path, embedder: Embedder) -> None:
    book = tmp_path / "book"
    book.mkdir()
    nasty = "\x1b]8;;http://evil.example\x1b\\\x1b[2J\x9b31m\u202e"
    (book / "page.md").write_text(
        f"# Pumps{nasty}\n\nA pump moves {nasty}water.\n\n## Valves{nasty}\n\nA valve{nasty} stops it.\n" * 3
    )
    store = EdgeStore(tmp_path / "home")
    index_book(IndexJob(open_book(book), embedder), store, "pumps", journal=tmp_path / "journal")
    session = Session(Retriever(embedder, store, "pumps"), look=lambda: Look(80, colour=True))
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


def test_an_index_that_is_published_anew_is_noticed(
    tmp_path: Path, small_book: Path, embedder: Embedder
) -> None:
    store = EdgeStore(tmp_path / "home")

    def index() -> None:
        index_book(
            IndexJob(open_book(small_book), embedder),
            EdgeStore(tmp_path / "home"),
            "garden",
            journal=tmp_path / "journal",
        )

    index()
    session = Session(Retriever(embedder, store, "garden"))
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
) -> Iterator[tuple[Session, QdrantDouble]]:
    with QdrantDouble() as double:
        store = ServerStore(
            Connection(double.url, "", lambda _: None, waits.append), tmp_path / "home", ServerOptions(), None
        )
        index_book(
            IndexJob(MarkdownTree(small_book), embedder), store, "garden", journal=tmp_path / "journal"
        )
        yield Session(Retriever(embedder, store, "garden")), double
        store.close()


def test_an_engine_that_goes_away_and_comes_back(on_a_server: tuple[Session, QdrantDouble]) -> None:
    session, double = on_a_server
    assert "Bread" in session.feed("How do I make dough?").text
    double.always(status(503))
    for line in ("How do I make dough?", ":again", ":explain 1", ":module kitchen"):
        reply = session.feed(line)
        assert reply.error is not None, line
        assert reply.error.kind is ErrorKind.CONNECTION
        assert reply.error.hint
    assert session.feed(":open 1").text.endswith("/01-bread"), "what needs no engine goes on"
    double.always(None)
    assert "Bread" in session.feed(":again").text

"""Completion: what is offered where, at once, whatever the engine does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from recto.cli.shell.actions import COMMANDS
from recto.cli.shell.session import Session
from recto.cli.shell.terminal import Names, candidates
from recto.search.retriever import Retriever
from recto.stores.edge.store import EdgeStore
from tests.running import wait_until


@dataclass
class Sample:
    modules: tuple[str, ...] = ("intro", "isaac", "ros2", "vla")
    pages: tuple[str, ...] = ("local://docs/a/01-soil", "local://docs/a/02-seeds", "local://docs/b/01-bread")
    collections: tuple[str, ...] = ("garden", "physical-ai-book")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("", []),
        ("mod", []),
        ("::mod", []),
        (":mo", [":module", ":mode"]),
        (":S", [":select", ":stats"]),
        (":module i", ["intro", "isaac"]),
        (":module intro,i", ["isaac"]),
        (":module ros2 VL", ["vla"]),
        (":m i", []),
        (":modu i", ["intro", "isaac"]),
        (":mode d", ["dense"]),
        (":url seed", ["local://docs/a/02-seeds"]),
        (":select 01", ["local://docs/a/01-soil", "local://docs/b/01-bread"]),
        (":select 1 how", []),
        (":page bread", ["local://docs/b/01-bread"]),
        (":collection g", ["garden"]),
        (":verbose o", ["on", "off"]),
        (":help ex", ["explain"]),
        (":nonsense x", []),
        (":top 1", []),
    ],
)
def test_what_is_offered(line: str, offered: list[str]) -> None:
    found = list(candidates(line, Sample()))
    assert [candidate.text for candidate in found] == offered
    for candidate in found:
        assert candidate.replaces <= len(line)


def test_a_colon_offers_every_command_with_what_it_does() -> None:
    assert [(one.text, one.about) for one in candidates(":", Sample())] == [
        (f":{one.name}", one.summary) for one in COMMANDS
    ]


def test_names_are_looked_up_in_the_background(retriever: Retriever) -> None:
    names = Names(Session(retriever))
    assert not names.modules
    names.begin()
    wait_until(lambda: names.collections)
    assert names.modules == ("intro", "isaac", "ros2", "simulation", "vla")
    assert "local://docs/docs/intro" in names.pages
    assert "recto-sample" in names.collections
    names.close()


def test_an_engine_that_is_away_offers_nothing_and_breaks_nothing(
    retriever: Retriever, tmp_path: Path
) -> None:
    session = Session(Retriever(retriever.embedder, EdgeStore(tmp_path / "nowhere"), "garden"))
    names = Names(session)
    names.begin()
    names.close()
    assert [candidate.text for candidate in candidates(":module r", names)] == []
    session.retriever = retriever
    names.refresh()
    names.close()
    assert [candidate.text for candidate in candidates(":module r", names)] == ["ros2"], (
        "and afterwards they are there"
    )
    session.retriever = Retriever(retriever.embedder, EdgeStore(tmp_path / "nowhere"), "garden")
    names.refresh()
    names.close()
    assert [candidate.text for candidate in candidates(":module r", names)] == ["ros2"], (
        "what was known stays"
    )

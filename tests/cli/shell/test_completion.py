"""Completion of commands and names."""

from __future__ import annotations

from pathlib import Path

import pytest

from recto.cli.shell.actions import COMMANDS
from recto.cli.shell.session import ShellSession
from recto.cli.shell.terminal import KnownNames, NameLoader, candidates
from recto.search.retriever import Retriever
from recto.stores.edge.store import EdgeStore
from tests.running import wait_until

KNOWN = KnownNames(
    modules=("intro", "isaac", "ros2", "vla"),
    pages=("local://docs/a/01-soil", "local://docs/a/02-seeds", "local://docs/b/01-bread"),
    collections=("garden", "physical-ai-book"),
)


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
def test_candidates(line: str, offered: list[str]) -> None:
    found = list(candidates(line, KNOWN))
    assert [candidate.text for candidate in found] == offered
    for candidate in found:
        assert candidate.replaces <= len(line)


def test_a_colon_offers_every_command() -> None:
    assert [(one.text, one.about) for one in candidates(":", KNOWN)] == [
        (f":{one.name}", one.summary) for one in COMMANDS
    ]


def test_names_are_loaded_in_the_background(retriever: Retriever) -> None:
    names = NameLoader(ShellSession(retriever))
    assert not names.known.modules
    names.start(warm_up=True)
    wait_until(lambda: names.known.collections)
    assert names.known.modules == ("intro", "isaac", "ros2", "simulation", "vla")
    assert "local://docs/docs/intro" in names.known.pages
    assert "recto-sample" in names.known.collections
    names.close()


def test_an_unreachable_engine_offers_no_names(retriever: Retriever, tmp_path: Path) -> None:
    session = ShellSession(Retriever(retriever.embedder, EdgeStore(tmp_path / "nowhere"), "garden"))
    names = NameLoader(session)
    names.start(warm_up=True)
    names.close()
    assert [candidate.text for candidate in candidates(":module r", names.known)] == []
    session.retriever = retriever
    names.start()
    names.close()
    assert [candidate.text for candidate in candidates(":module r", names.known)] == ["ros2"], (
        "loaded when the engine is back"
    )
    session.retriever = Retriever(retriever.embedder, EdgeStore(tmp_path / "nowhere"), "garden")
    names.start()
    names.close()
    assert [candidate.text for candidate in candidates(":module r", names.known)] == ["ros2"], (
        "the old names are kept"
    )

"""The last coverage and validation of a collection are kept, and never taken for those of another index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recto.cli.commands.validate import validate_contract
from recto.errors import StorageError
from recto.evaluation import records
from recto.evaluation.coverage import cover
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.stores.edge.store import EdgeStore


def test_what_is_kept_is_read(house: Path, home: Path, embedder: Embedder) -> None:
    store = EdgeStore(house / "home")
    info = store.open("house").info
    assert records.read_report(home, info, "coverage") is None
    found = cover(Retriever(embedder, store, "house"))
    records.keep_coverage(home, info, found)
    read = records.read_report(home, info, "coverage")
    assert read is not None
    assert read["current"] is True
    assert read["total"] == len(found.sections) == sum(len(page["sections"]) for page in read["pages"])
    assert read["reached"] == read["total"] - len(found.unreachable)
    assert len(read["pages"]) == len(found.pages())
    later = records.read_report(home, replace(info, generation="gen-000099"), "coverage")
    assert later is not None
    assert later["current"] is False
    assert records.read_report(home, replace(info, collection="other"), "coverage") is None
    assert records.read_report(home, info, "suite") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1}', "\0"])
def test_what_cannot_be_read_is_as_if_it_were_not_there(house: Path, home: Path, text: str) -> None:
    info = EdgeStore(house / "home").open("house").info
    path = home / "reports" / "house" / "suite.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert records.read_report(home, info, "suite") is None


def test_the_documented_questions_are_kept_too(
    sample_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECTO_HOME", str(sample_home))
    validate_contract(None, None, ("recto", "validate"), verbose=False, as_json=False)
    assert capsys.readouterr().out
    info = EdgeStore(sample_home).open("physical-ai-book").info
    read = records.read_report(sample_home, info, "suite")
    assert read is not None
    assert (read["passed"], read["total"], read["failed"]) == (5, 5, [])
    assert read["command"] == "recto validate --collection recto-sample"


def test_a_home_that_cannot_be_written_is_told(house: Path, home: Path, embedder: Embedder) -> None:
    retriever = Retriever(embedder, EdgeStore(house / "home"), "house")
    home.mkdir()
    (home / "reports").write_text("a file where a directory should be")
    with pytest.raises(StorageError, match="cannot be written"):
        records.keep_coverage(home, retriever.open().info, cover(retriever))

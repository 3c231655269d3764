"""The last coverage and validation of a collection are kept, and never taken for those of another index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recto.errors import StorageError
from recto.evaluation import report
from recto.evaluation.coverage import Coverage, cover
from recto.search.retriever import Retriever


def test_what_is_kept_is_read(house_retriever: Retriever, home: Path) -> None:
    info = house_retriever.open().info
    assert report.read_report(home, info, "coverage") is None
    found = cover(house_retriever)
    report.keep_coverage(home, info, found)
    read = report.read_report(home, info, "coverage")
    assert read is not None
    assert read["current"] is True
    assert read["total"] == len(found.sections) == sum(len(page["sections"]) for page in read["pages"])
    assert read["reached"] == read["total"] - len(found.unreachable)
    assert len(read["pages"]) == len(found.pages())
    later = report.read_report(home, replace(info, generation="gen-000099"), "coverage")
    assert later is not None
    assert later["current"] is False
    assert report.read_report(home, replace(info, collection="other"), "coverage") is None
    assert report.read_report(home, info, "suite") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1}', "\0"])
def test_what_cannot_be_read_is_as_if_it_were_not_there(
    house_retriever: Retriever, home: Path, text: str
) -> None:
    path = home / "reports" / "house" / "suite.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert report.read_report(home, house_retriever.open().info, "suite") is None


def test_a_home_that_cannot_be_written_is_told(house_retriever: Retriever, home: Path) -> None:
    home.mkdir()
    (home / "reports").write_text("a file where a directory should be")
    with pytest.raises(StorageError, match="cannot be written"):
        report.keep_coverage(home, house_retriever.open().info, Coverage("house", (), {}))

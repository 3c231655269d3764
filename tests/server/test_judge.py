"""Test the service of the judging page: who may use it, what it tells, and what it writes."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.search.retriever import Retriever
from recto.types.search import MODES
from tests.running import recto, start
from tests.server.judging import JudgingService, read_entries, write_suite

PATHS = ("/judge/questions", "/judge/questions/0", "/judge/summary")
QUESTIONS = [
    {"query": f"What do I need to know about {title}?", "expect": {"nothing": True}}
    for title in ("beans", "jam", "slugs")
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "suite.json", QUESTIONS)


@pytest.fixture
def service(path: Path, house_retriever: Retriever) -> Iterator[JudgingService]:
    with JudgingService(path, house_retriever) as service:
        yield service


def test_only_its_own_page_may_use_it(service: JudgingService, path: Path) -> None:
    before = path.read_bytes()
    grade = {"question": 0, "candidate": 0, "grade": 2}
    for name in PATHS:
        assert service.get(name).status == 401
        assert service.get(name, Authorization="Bearer wrong").status == 401
        assert service.call(name).status == 200
    assert service.post("/judge/grades", grade).status == 401
    assert service.call("/judge/questions", Host="book.example").status == 400
    assert service.call("/judge/grades", grade, Origin="https://book.example").status == 403
    assert service.call("/judge/grades", grade, **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert path.read_bytes() == before
    page = service.get("/")
    assert page.status == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert service.get("/static/judge.js").status == 200


def test_configurations_are_told_only_in_the_summary(service: JudgingService) -> None:
    question = service.call("/judge/questions/1").json()
    assert set(question) == {"query", "candidates"}
    assert {field for one in question["candidates"] for field in one} == {
        "section", "headings", "module_title", "url", "html", "matches", "grade",
    }  # fmt: skip
    assert "house" not in service.call("/judge/questions").json()["questions"][0]
    summary = service.call("/judge/summary").json()["configurations"]
    assert [one["name"] for one in summary] == [f"house, {mode}" for mode in MODES]


def test_invalid_requests_change_nothing(service: JudgingService, path: Path) -> None:
    before = path.read_bytes()
    wrong: tuple[object, ...] = (
        {"question": 0, "candidate": 0, "grade": 3},
        {"question": 0, "candidate": 0, "grade": True},
        {"question": 0, "candidate": -1, "grade": 1},
        {"question": 99, "candidate": 0, "grade": 1},
        {"question": 0},
        [],
    )
    for data in wrong:
        assert service.call("/judge/grades", data).status == 400, data
    assert "nothing to undo" in service.call("/judge/undo", {}).error
    assert service.call("/judge/questions/99").status == 400
    assert service.call("/judge/other").status == 404
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written_is_reported(service: JudgingService, path: Path) -> None:
    moved = path.rename(path.with_name("moved.json"))
    grade = {"question": 0, "candidate": 0, "grade": 2}
    assert "cannot be read" in service.call("/judge/grades", grade).error
    moved.rename(path)
    assert service.call("/judge/grades", grade).status == 200
    overview = service.call("/judge/questions").json()["questions"]
    assert [one["judged"] for one in overview] == [1, 0, 0]
    assert service.call("/judge/summary").json()["configurations"][0]["measures"]
    assert service.call("/judge/undo", {}).json() == grade | {"grade": None}
    assert read_entries(path) == QUESTIONS


def test_the_command_serves_on_loopback(house: Path, path: Path) -> None:
    process = start(house / "home", "judge", str(path), "--collection", "house", "--mode", "lexical")
    try:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("Judge at"):
            assert line, "it ended by itself"
        assert re.fullmatch(r"Judge at http://127\.0\.0\.1:\d+/#[\w-]{32}\n", line)
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert "Traceback" not in output


def test_wrong_options_are_reported(home: Path, path: Path) -> None:
    done = recto(home, "judge", str(path), "--mode", "dense,sparse")
    assert (done.returncode, "'sparse' is not a mode" in done.stderr) == (4, True)
    lines = path.rename(path.with_suffix(".jsonl"))
    done = recto(home, "judge", str(lines))
    assert (done.returncode, "cannot be added" in done.stderr) == (4, True)

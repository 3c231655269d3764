"""`recto gaps` and `recto suite add`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recto.evaluation.suites import load_suite
from tests.running import recto

QUERIES = "nuclear submarine reactor\t4\nsubmarine reactor\nHow is jam made?\t3\nwhen are beans sown\n"


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    path = tmp_path / "queries.tsv"
    path.write_text(QUERIES, "utf-8")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    place = tmp_path / "log"
    place.mkdir()
    asked = ["nuclear submarine reactor"] * 3 + ["How is jam made?"] * 2
    entries = [{"time": "2026-11-16T10:00:00Z", "query": query, "collection": "house"} for query in asked]
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (place / "queries-2026-11-16-00000000.jsonl").write_text(text, "utf-8")
    return place


def test_text_json_html_and_the_health_page(house: Path, queries: Path, tmp_path: Path) -> None:
    page = tmp_path / "gaps.html"
    arguments = ("gaps", "--collection", "house", "--queries", str(queries), "--html", str(page))
    done = recto(house / "home", *arguments)
    assert done.returncode == 0, done.stderr
    assert "9 queries about 'house' (4 distinct)" in done.stdout
    assert "  1. nuclear submarine reactor" in done.stdout
    assert "5 queries, 100% unanswered, 5 below this book's noise floor" in done.stdout
    assert "Not in the book:" in done.stdout
    assert "Near: " in done.stdout
    html = page.read_text("utf-8")
    assert "nuclear submarine reactor" in html
    assert "<script" not in html
    data = json.loads(recto(house / "home", *arguments, "--json").stdout)
    (gap,) = data["gaps"]
    assert (gap["label"], gap["count"], gap["no_click"]) == ("nuclear submarine reactor", 5, None)
    saved = json.loads((house / "home" / "reports" / "house" / "gaps.json").read_text("utf-8"))
    assert saved["clusters"] == data["gaps"]


def test_the_configured_log(house: Path, log: Path) -> None:
    done = recto(house / "home", "gaps", "--collection", "house", RECTO_QUERY_LOG=str(log))
    assert done.returncode == 0, done.stderr
    assert "5 queries about 'house' (2 distinct) in 2 clusters" in done.stdout


def test_lines_that_are_no_entries_are_skipped_and_counted(house: Path, log: Path, tmp_path: Path) -> None:
    (path,) = log.iterdir()
    with path.open("ab") as file:
        file.write(
            b"[" * 50_000 + b'\n{"time": 1}\n{"time": "2026-11-16T10:00:00Z", "collection": ["house"]}\n'
        )
    suite = tmp_path / "suite.json"
    for command in (("gaps",), ("suite", "add", str(suite), "--from-log")):
        done = recto(house / "home", *command, "--collection", "house", "--log", str(log))
        assert done.returncode == 0, done.stderr
        assert "Skipped 3 lines of the query log that cannot be read" in done.stderr


def test_what_is_missing_is_said(house: Path, queries: Path, tmp_path: Path) -> None:
    none = recto(house / "home", "gaps", "--collection", "house")
    assert none.returncode == 4
    assert "recto serve --query-log" in none.stderr
    missing = recto(house / "home", "gaps", "--collection", "house", "--log", str(tmp_path / "nowhere"))
    assert missing.returncode == 4
    both = recto(house / "home", "gaps", "--queries", str(queries), "--log", str(tmp_path))
    assert both.returncode == 4
    unread = recto(house / "home", "gaps", "--queries", str(tmp_path / "none.txt"), "--collection", "house")
    assert unread.returncode == 4
    assert "Check the path." in unread.stderr
    assert "suite" not in unread.stderr


def test_queries_of_the_log_are_added_to_a_suite_once(house: Path, log: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    arguments = ("suite", "add", str(suite), "--from-log", "--collection", "house", "--log", str(log))
    done = recto(house / "home", *arguments)
    assert done.returncode == 0, done.stderr
    first, second = load_suite(suite).expectations
    assert (first.query, first.nothing, first.drafted) == ("nuclear submarine reactor", True, True)
    assert second.pages[0].startswith("module-2-kitchen/03-jam")
    assert recto(house / "home", *arguments).returncode == 1
    assert recto(house / "home", "suite", "lint", str(suite), "--collection", "house").returncode == 0

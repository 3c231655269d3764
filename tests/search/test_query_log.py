"""The query log: what is stored, what is not, for how long, and what survives."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recto.errors import InvalidArgument, StorageError
from recto.search import query_log
from recto.search.query_log import QueryLog, log_files, open_query_log, read_query_log, remove_old_files
from recto.settings import QueryLogOptions, QueryLogText, Settings
from recto.testing.parts import chunk
from recto.types.search import Filters, Hit, Outcome, SearchResponse, Timings
from tests.running import wait_until


def response(query: str, **changes: Any) -> SearchResponse:
    hits = tuple(Hit(0.9 - number / 10, chunk(number), 0.7 - number / 10) for number in range(7))
    scored = {"noise_floor": 0.6, "generation": "gen-000001", "mode": "hybrid", "answerable": 0.8}
    base = SearchResponse(query, hits, Filters(("garden",)), "house", Outcome.FOUND, Timings(1, 2, 3.456))
    return replace(base, **{**scored, **changes})


def write(path: Path, *queries: str, key: bytes = b"k", text: QueryLogText = "keep") -> list[dict[str, Any]]:
    log = QueryLog(QueryLogOptions(path, text), key)
    for query in queries:
        log.add(response(query), "search")
    log.add_report(queries[0], "house", click="local://docs/a", rank=2)
    log.close()
    return list(read_query_log(path))


def queries(path: Path) -> list[str]:
    return [entry["query"] for entry in read_query_log(path) if "click" not in entry]


def test_an_entry_has_these_fields_and_no_others(tmp_path: Path) -> None:
    first, click = write(tmp_path, "How is jam made?")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first.pop("time"))
    assert first == {
        "query": "How is jam made?",
        "collection": "house",
        "generation": "gen-000001",
        "via": "search",
        "mode": "hybrid",
        "filters": {"module": ["garden"], "url": None},
        "hits": [{"url": chunk(number).url, "score": round(0.9 - number / 10, 4)} for number in range(5)],
        "answerable": 0.8,
        "coverage": None,
        "covered": True,
        "above_noise": True,
        "ms": 3.46,
    }
    del click["time"]
    assert click == {"query": "How is jam made?", "collection": "house", "click": "local://docs/a", "rank": 2}


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such permissions")
def test_only_this_user_can_read_the_log(tmp_path: Path) -> None:
    write(tmp_path / "new" / "log", "jam")
    ((_, path),) = log_files(tmp_path / "new" / "log")
    assert [one.stat().st_mode & 0o777 for one in (path, path.parent)] == [0o600, 0o700]


def test_hashed_queries_can_be_counted_but_not_read(tmp_path: Path) -> None:
    one, same, other, click = write(tmp_path, "Is jam sweet?", "is  JAM sweet", "bread", text="hash")
    ((_, path),) = log_files(tmp_path)
    assert "jam" not in path.read_text("utf-8").lower()
    assert one["query_hash"] == same["query_hash"] == click["query_hash"] != other["query_hash"]
    (differs, *_) = write(tmp_path / "other", "Is jam sweet?", text="hash", key=b"another key")
    assert differs["query_hash"] != one["query_hash"]


def test_the_key_of_hashes_is_made_once_and_is_not_in_the_log(tmp_path: Path) -> None:
    options = QueryLogOptions(tmp_path / "log", "hash")
    for _ in range(2):
        log = open_query_log(Settings("local", "edge", tmp_path / "home", query_log=options))
        assert log is not None
        log.add(response("jam"), "search")
        log.close()
    one, other = (entry["query_hash"] for entry in read_query_log(tmp_path / "log"))
    assert one == other
    assert (tmp_path / "home" / "query-log.key").stat().st_mode & 0o777 == 0o600


def test_without_a_usable_directory_there_is_no_log(tmp_path: Path) -> None:
    assert open_query_log(Settings("local", "edge", tmp_path)) is None
    with pytest.raises(InvalidArgument, match="no query log"):
        list(read_query_log(tmp_path / "missing"))
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="query log cannot be written"):
        open_query_log(Settings("local", "edge", tmp_path, query_log=QueryLogOptions(tmp_path / "file")))


def test_a_full_queue_drops_and_counts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_log, "_MAX_WAITING", 3)
    monkeypatch.setattr(query_log, "_WRITE_SECONDS", 3600)
    dropped: list[int] = []
    log = QueryLog(QueryLogOptions(tmp_path), on_drop=dropped.append)
    for number in range(5):
        log.add(response(f"query {number}"), "search")
    log.close()
    assert dropped == [1, 1]
    assert queries(tmp_path) == ["query 0", "query 1", "query 2"]


def test_an_unwritable_disk_drops_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a batch is written before the disk is full; the next batch goes to a file of its own."""
    dropped: list[int] = []
    monkeypatch.setattr(query_log, "_WRITE_SECONDS", 0)
    log = QueryLog(QueryLogOptions(tmp_path), on_drop=dropped.append)
    real, sizes = os.write, iter([100, 0])

    def full(descriptor: int, data: bytes) -> int:
        if (size := next(sizes, len(data))) == 0:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[:size])

    monkeypatch.setattr(os, "write", full)
    log.add(response("lost"), "search")
    wait_until(lambda: dropped)
    log.add(response("kept"), "search")
    log.close()
    assert (dropped, queries(tmp_path)) == ([1], ["kept"])
    assert len(log_files(tmp_path)) == 2


def test_a_deleted_file_is_not_written_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_log, "_WRITE_SECONDS", 0)
    log = QueryLog(QueryLogOptions(tmp_path))
    log.add(response("deleted"), "search")
    wait_until(lambda: log_files(tmp_path))
    for _, path in log_files(tmp_path):
        path.unlink()
    log.add(response("kept"), "search")
    log.close()
    assert queries(tmp_path) == ["kept"]


def test_an_incomplete_last_line_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, "first", "second")
    ((_, path),) = log_files(tmp_path)
    for cut, expected in ((30, ["first", "second"]), (200, ["first"])):
        path.write_bytes(path.read_bytes()[:-cut])
        assert queries(tmp_path) == expected


def test_several_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    make_file(tmp_path, date(2020, 1, 1), 1)  # deleted when a service starts
    logs = [QueryLog(QueryLogOptions(tmp_path)) for _ in range(3)]
    for number in range(90):
        logs[number % 3].add(response(f"query {number}"), "search")
    for log in logs:
        log.close()
    assert set(queries(tmp_path)) == {f"query {n}" for n in range(90)}
    assert len(log_files(tmp_path)) == 3


def make_file(directory: Path, day: date, size: int) -> Path:
    path = directory / f"queries-{day}-{os.urandom(4).hex()}.jsonl"
    path.write_bytes(b"x" * size)
    return path


def test_files_are_deleted_by_age_and_then_by_size(tmp_path: Path) -> None:
    today = date(2026, 11, 16)
    days = [make_file(tmp_path, today - timedelta(days=age), 400_000) for age in (0, 1, 2, 30, 31)]
    other = tmp_path / "notes.txt"
    other.write_text("not ours")
    remove_old_files(QueryLogOptions(tmp_path, days=30, megabytes=100), today)
    assert [path.exists() for path in days] == [True, True, True, True, False]
    remove_old_files(QueryLogOptions(tmp_path, days=30, megabytes=1), today)
    assert [path.exists() for path in days] == [True, True, False, False, False]
    assert other.exists()


def test_only_recent_entries(tmp_path: Path) -> None:
    write(tmp_path, "jam")
    ((_, path),) = log_files(tmp_path)
    with path.open("a") as file:
        file.write(json.dumps({"time": "2020-01-01T00:00:00Z", "query": "old"}) + "\n")
    since = datetime.now(UTC) - timedelta(days=1)
    assert len(list(read_query_log(tmp_path, since))) == 2
    assert len(list(read_query_log(path))) == 3


@pytest.mark.parametrize("text", ["keep", "hash", "drop"])
def test_all_that_a_visitor_sends_is_bounded_and_hashed_alike(tmp_path: Path, text: QueryLogText) -> None:
    log = QueryLog(QueryLogOptions(tmp_path, text), b"k")
    modules = tuple(f"my-name-is-{number}-{'x' * 5000}" for number in range(100))
    filters = Filters(modules, "my-address" * 900, "my-language")
    log.add(response("my question", filters=filters), "search")
    log.add_report("my question", "house", click="my-click" * 900, rank=1)
    log.close()
    (path,) = tmp_path.iterdir()
    stored = path.read_text("utf-8")
    assert len(stored) < 80_000
    assert ("my-" in stored) is (text == "keep")
    search, click = read_query_log(tmp_path)
    assert len(search["filters"]["module"]) <= 20
    assert ("my-language" in search["filters"]["lang"]) is (text == "keep")
    if text == "hash":
        assert re.fullmatch("[0-9a-f]{16}", click["click"])
        assert re.fullmatch("[0-9a-f]{16}", search["filters"]["url"])


def test_the_log_stays_within_its_size(tmp_path: Path) -> None:
    for _ in range(3):
        log = QueryLog(QueryLogOptions(tmp_path, megabytes=1))
        for number in range(1500):
            log.add_report(f"{number} {'q' * 1000}", "house", click="u" * 400, rank=1)
        log.close()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert 800_000 < sum(sizes) <= 1_000_000
    assert len(sizes) >= 7


def test_bad_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    good, _ = write(tmp_path, "How is jam made?")
    (path,) = tmp_path.iterdir()
    dated = b'{"time": "2026-01-01T00:00:00Z", "query": '
    bad = [
        *(
            b"[" * 50_000,
            b"\xff\xfe",
            b"null",
            b"3",
            b'"time"',
            b'{"query": "x"}',
            b'{"time": 3, "query": "x"}',
        ),
        dated + b'["x"], "collection": "house"}',
        dated + b'"x", "collection": {"a": 1}}',
        dated + b'"\\ud800", "collection": "house"}',
        dated + b'"' + b"x" * 500_000 + b'"}',
    ]
    with path.open("ab") as file:
        file.write(b"\n".join(bad) + b"\n" + json.dumps(good).encode() + b"\n")
    skipped: list[None] = []
    assert len(list(read_query_log(tmp_path, on_skip=lambda: skipped.append(None)))) == 3
    assert len(skipped) == len(bad)

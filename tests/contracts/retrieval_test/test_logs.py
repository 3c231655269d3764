"""The log file: format, contents, rotation, and a directory that cannot be written."""

from __future__ import annotations

import logging
import os
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from recto.cli.retrieval_test import LOG_FILE, command, logging_to, run
from tests.conftest import QDRANT_KEY
from tests.contracts.retrieval_test.conftest import Call
from tests.running import ROOT

LINE = re.compile(
    r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] "
    r"\[(?:DEBUG|INFO|WARNING|ERROR)\] \[(?:EMBED|SEARCH|FORMAT|CLI)\] .+"
)
EMBED = logging.getLogger("recto.contracts.retrieval_test.embed")


def test_every_line_has_the_contracts_format(call: Call, embedded: Path, workdir: Path) -> None:
    outcome = call("--query", "What is a digital twin?", "--verbose")
    logged = (workdir / LOG_FILE).read_text("utf-8").rstrip("\n").split("\n")
    shown = outcome.stderr.rstrip("\n").split("\n")
    assert all(LINE.fullmatch(line) for line in (*logged, *shown))
    assert {re.findall(r"\[([A-Z]+)\]", line)[1] for line in logged} == {"EMBED", "SEARCH", "FORMAT", "CLI"}
    text = "\n".join(logged)
    assert "What is a digital twin?" in text
    assert outcome.document["results"][0]["text"][:40] not in text, "queries are logged, results are not"


def test_without_verbose(call: Call, embedded: Path, workdir: Path) -> None:
    outcome = call("--query", "robot")
    assert outcome.stderr == ""
    assert "[DEBUG]" not in (workdir / LOG_FILE).read_text("utf-8")


def test_a_query_cannot_forge_a_line(call: Call, embedded: Path, workdir: Path) -> None:
    call("--query", "robot\n[2026-01-01T00:00:00.000Z] [ERROR] [CLI] forged\r\x1b[2J\u2028\u202e")
    lines = (workdir / LOG_FILE).read_bytes().decode("utf-8").split("\n")
    assert all("[CLI] query" in line or "[CLI] slow" in line for line in lines if line), "slow: under load"
    assert "robot\\u000a[2026" in lines[0]
    assert "\\u001b[2J\\u2028\\u202e" in lines[0]


def test_injections_and_errors_are_logged(call: Call, embedded: Path, workdir: Path) -> None:
    call("--query", "x; DROP TABLE chunks")
    call("--query", "")
    text = (workdir / LOG_FILE).read_text("utf-8")
    assert "[INFO] [EMBED] the query looks like an injection" in text
    assert "[ERROR] [CLI] Query cannot be empty" in text


def test_a_key_in_a_query_is_not_logged(cloud: None, workdir: Path) -> None:
    assert run(command, ["--query", f"my key is {QDRANT_KEY}"], "test_retrieval.py") == 0
    text = (workdir / LOG_FILE).read_text("utf-8")
    assert "my key is ***" in text
    assert QDRANT_KEY not in text


def test_rotation(workdir: Path) -> None:
    today = datetime.now(UTC).date()
    yesterday = today - timedelta(days=1)
    log = workdir / LOG_FILE
    log.write_text("yesterday's\n")
    stamp = datetime(yesterday.year, yesterday.month, yesterday.day, 12, tzinfo=UTC).timestamp()
    os.utime(log, (stamp, stamp))
    days = {age: workdir / f"{LOG_FILE}.{today - timedelta(days=age)}" for age in (2, 30, 31, 400)}
    for path in (
        *days.values(),
        workdir / f"{LOG_FILE}.notes",
        workdir / f"{LOG_FILE}.2001-99-99",
        workdir / "other.log.2001-01-01",
    ):
        path.write_text("x")
    with logging_to(workdir, lambda _: None, verbose=False):
        EMBED.info("today's")
    assert (workdir / f"{LOG_FILE}.{yesterday}").read_text() == "yesterday's\n"
    assert log.read_text().endswith("today's\n")
    assert [age for age, path in days.items() if path.exists()] == [2, 30]
    assert (workdir / f"{LOG_FILE}.notes").exists()
    assert (workdir / "other.log.2001-01-01").exists()


def test_old_files_are_deleted_by_date(workdir: Path) -> None:
    old = workdir / f"{LOG_FILE}.2026-01-01"
    old.write_text("x")
    with logging_to(workdir, lambda _: None, verbose=False, today=date(2026, 1, 31)):
        assert old.exists()
    with logging_to(workdir, lambda _: None, verbose=False, today=date(2026, 2, 1)):
        assert not old.exists()


def test_a_log_that_cannot_be_written_is_a_warning(call: Call, embedded: Path, workdir: Path) -> None:
    (workdir / LOG_FILE).mkdir()
    outcome = call("--query", "robot")
    assert outcome.code == 0
    assert outcome.stderr.startswith(f"[WARNING] {LOG_FILE} cannot be written")


def test_logging_is_restored(workdir: Path) -> None:
    root = logging.getLogger("recto.contracts.retrieval_test")
    before = (root.level, root.propagate, list(root.handlers))
    with logging_to(workdir, lambda _: None, verbose=True):
        assert root.level == logging.DEBUG
    assert (root.level, root.propagate, list(root.handlers)) == before


def test_the_log_is_not_committed() -> None:
    assert "retrieval_test.log*" in (ROOT / ".gitignore").read_text("utf-8").split("\n")

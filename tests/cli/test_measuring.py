"""`recto explain`, `coverage`, `calibrate`, `gaps`, `suite add` and `doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recto.evaluation.suites import load_suite
from recto.stores.edge import EdgeStore
from tests.breaking import publish_broken, with_noise, without_module
from tests.running import recto


def test_explain(house: Path) -> None:
    arguments = ("--collection", "house", "--expect", "module-1-garden/01-soil#compost")
    done = recto(house / "home", "explain", "How is compost made?", *arguments)
    assert done.returncode == 0, done.stderr
    assert " chunks of 'house' in hybrid mode\nWords: compost, made\n" in done.stdout
    assert "Noise floor: a score of 0." in done.stdout
    assert "--- end of the top 5 ---" in done.stdout
    assert "Expected: module-1-garden/01-soil#compost: found\n  It is at rank 1." in done.stdout
    assert "  Dense: rank 1, cosine 0." in done.stdout
    assert "  Lexical: rank 1, score " in done.stdout
    assert "  Words of the query: has compost, made; lacks none" in done.stdout


def test_explain_json(house: Path) -> None:
    options = ["--collection", "house", "--module", "kitchen", "--top-k", "2", "--json", "--expect"]
    compost = "module-1-garden/01-soil#compost"
    done = recto(house / "home", "explain", "How is compost made?", *options, compost)
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    assert data["expected"]["verdict"] == "filtered_out"
    assert data["expected"]["rank"] == 1
    assert len(data["results"]) == 2
    assert len(data["near_misses"]) == 5
    first = data["results"][0]
    assert first["margin"] == round(first["dense"] - data["noise_floor"], 6)
    assert data["mode"] == "hybrid"
    assert data["words"] == ["compost", "made"]
    assert data["expected"]["dense"]["rank"] == data["expected"]["lexical"]["rank"] == 1
    assert data["expected"]["words"] == ["compost", "made"]
    assert first["above_noise"] is (first["margin"] >= 0), "the same as over HTTP and MCP"
    steps = {"open", "load the model", "embed", "search", "find the expected page"}
    assert set(data["timings_ms"]) == steps


def test_coverage_its_page_and_its_json(house: Path, tmp_path: Path) -> None:
    page = tmp_path / "coverage.html"
    done = recto(house / "home", "coverage", "--collection", "house", "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert "By at least one of them:" in done.stdout
    assert "Unreachable: none" in done.stdout
    assert "garden" in done.stdout
    assert "local://docs/docs/module-3-workshop/04-electricity" in done.stdout
    assert "<h1>Coverage of house</h1>" in page.read_text("utf-8")
    more = ("--mode", "dense", "--fail-under", "99")
    done = recto(house / "home", "coverage", "--collection", "house", "--json", *more)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["mode"], data["share"]) == ("dense", 1.0)
    assert len(data["pages"]) == 13
    assert data["unreachable"] == data["duplicates"] == data["shadowed"] == []
    assert all(max(row, key=row.__getitem__) == name for name, row in data["confusion"].items())
    assert sum(sum(row.values()) for row in data["confusion"].values()) == 2 * data["sections"]


def test_calibrate(house_copy: Path) -> None:
    store = EdgeStore(house_copy)
    assert publish_broken(house_copy, without_module, "again").info.calibration is None
    done = recto(house_copy, "calibrate", "--collection", "again")
    assert done.returncode == 0, done.stderr
    assert "Cosine similarities below 0." in done.stdout
    calibration = store.open("house").info.calibration
    assert calibration is not None
    # The copy has no lexical vectors, which `answerability` needs.
    assert store.open("again").info.calibration == calibration._replace(answerability=None)
    data = json.loads(recto(house_copy, "calibrate", "--collection", "again", "--json").stdout)
    assert (data["collection"], data["kept"]) == ("again", True)


def test_the_chunk_size_is_a_setting(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# Page\n\n" + "A sentence about robots. " * 20)
    index = ("index", str(tmp_path / "docs"), "--dry-run", "--json")
    plans = (recto(tmp_path / "home", *index, RECTO_CHUNK_TOKENS=size).stdout for size in ("64", "160"))
    small, large = (json.loads(plan)["chunks"] for plan in plans)
    assert small > large == 1


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


def test_gaps_as_text_json_html_and_on_the_health_page(house: Path, queries: Path, tmp_path: Path) -> None:
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


def test_lines_that_are_no_entries_are_skipped_and_counted(house: Path, log: Path, tmp_path: Path) -> None:
    done = recto(house / "home", "gaps", "--collection", "house", RECTO_QUERY_LOG=str(log))
    assert (done.returncode, done.stderr) == (0, ""), "the configured log"
    assert "5 queries about 'house' (2 distinct) in 2 clusters" in done.stdout
    (path,) = log.iterdir()
    with path.open("ab") as file:
        file.write(b"[" * 50_000 + b'\n{"time": 1}\n{"time": "2026-11-16T10:00:00Z", "collection": [""]}\n')
    suite = tmp_path / "suite.json"
    for command in (("gaps",), ("suite", "add", str(suite))):
        done = recto(house / "home", *command, "--collection", "house", "--log", str(log))
        assert done.returncode == 0, done.stderr
        assert "Skipped 3 lines of the query log that cannot be read" in done.stderr


def test_queries_of_the_log_are_added_to_a_suite_once(house: Path, log: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    arguments = ("suite", "add", str(suite), "--collection", "house", "--log", str(log))
    done = recto(house / "home", *arguments)
    assert done.returncode == 0, done.stderr
    first, second = load_suite(suite).expectations
    assert (first.query, first.nothing, first.drafted) == ("nuclear submarine reactor", True, True)
    assert second.pages[0].startswith("module-2-kitchen/03-jam")
    assert recto(house / "home", *arguments).returncode == 1
    assert recto(house / "home", "suite", "lint", str(suite), "--collection", "house").returncode == 0


KEY = "qdrant_secret_key_123"


def test_doctor_without_problems(house: Path) -> None:
    done = recto(house / "home", "doctor", "--collection", "house")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("No problems found.\n")
    data = json.loads(recto(house / "home", "doctor", "--collection", "house", "--all", "--json").stdout)
    assert data["healthy"] is True
    assert {finding["severity"] for finding in data["findings"]} == {"ok"}
    found = {finding["check"]: finding for finding in data["findings"]}
    assert {"fingerprint", "calibration", "search", "source", "content"} <= set(found)
    assert any("texts embedded again" in line for line in found["content"]["evidence"])
    assert "none of COHERE_API_KEY, QDRANT_URL" in found["configuration"]["message"]


def test_doctor_names_damage_and_its_repair(house: Path, house_copy: Path) -> None:
    publish_broken(house_copy, with_noise(0.05))
    done = recto(house_copy, "doctor", "--collection", "broken")
    assert done.returncode == 5
    assert "[ERROR]   content: 2 vectors of another text" in done.stdout
    assert f"Repair: recto index {house / 'book'} --collection broken --rebuild" in done.stdout
    assert "1 error, 0 warnings." in done.stdout


def test_doctor_on_configuration_and_storage_errors(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    done = recto(tmp_path / "home", "doctor", QDRANT_API_KEY=KEY)
    assert done.returncode == 2
    assert "[ERROR]   configuration: COHERE_API_KEY is required but not set" in done.stdout
    assert KEY not in done.stdout + done.stderr
    done = recto(tmp_path / "home", "doctor", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["healthy"] is False
    assert "RECTO_HOME" in done.stdout
    assert recto(tmp_path / "home", "doctor", "--collection", "a/b").returncode == 4

"""`recto explain`, and weak results of `recto search`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.running import recto, retrieve


def test_text(house: Path) -> None:
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


def test_json(house: Path) -> None:
    arguments = (
        "--collection house --module kitchen --top-k 2 --json --expect module-1-garden/01-soil#compost"
    )
    done = recto(house / "home", "explain", "How is compost made?", *arguments.split())
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


def test_exit_codes(house: Path) -> None:
    home = house / "home"
    assert recto(home, "explain", "", "--collection", "house").returncode == 4
    assert recto(home, "explain", "compost", "--expect", "#a", "--collection", "house").returncode == 4
    assert recto(home, "explain", "compost", "--collection", "nowhere").returncode == 2
    done = recto(home, "explain", "compost", "--collection", "house", "--expect", "no-such-page")
    assert done.returncode == 1
    assert "no such page" in done.stdout


def test_only_recto_search_marks_weak_results(house: Path) -> None:
    home = house / "home"
    done = recto(home, "search", "What is a quark made of?", "--collection", "house")
    assert "The book does not seem to cover this." in done.stdout
    assert " weak  " in done.stdout
    data = json.loads(recto(home, "search", "compost", "--collection", "house", "--json").stdout)
    assert 0 < data["noise_floor"] < 1
    contract = retrieve(home, "What is a quark made of?", "--collection", "house").stdout
    assert "noise_floor" not in contract
    assert "weak" not in contract
    assert "noise_floor" not in json.loads(
        retrieve(home, "compost", "--collection", "house", "--json").stdout
    )

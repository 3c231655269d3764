"""`recto tune`, and the setting of the chunk size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_validate import HELD_OUT
from tests.running import recto


def test_tune_prints_a_table_and_a_recommendation(sample_home: Path) -> None:
    done = recto(sample_home, "tune", "--suite", HELD_OUT, "--weight", "0.1,0.2", "--mode", "dense,hybrid")
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.split("\n"))) <= 80
    assert "hybrid 0.25 " in done.stdout
    assert "(current)" in done.stdout
    assert "Keep what you have" in done.stdout or "Recommended: " in done.stdout
    assert "with a probability of 80 %." in done.stdout
    as_json = recto(
        sample_home, "tune", "--suite", HELD_OUT, "--weight", "0.1,0.2", "--mode", "dense,hybrid", "--json"
    )
    data = json.loads(as_json.stdout)
    assert data["current"] == {
        "collection": "recto-sample",
        "mode": "hybrid",
        "lexical_weight": 0.25,
    }
    assert [one["mode"] for one in data["configurations"]] == ["hybrid", "hybrid", "hybrid", "dense"]
    assert (data["measure"], data["questions"], data["left_out"]) == ("nDCG@10", 100, 0)
    assert data["verdict"] in done.stdout


def test_tune_compares_with_another_weight_and_index(sample_home: Path) -> None:
    arguments = ("tune", "--suite", HELD_OUT, "--weight", "0.1", "--mode", "hybrid", "--json")
    named = ("--collection", "physical-ai-book")
    other = ("--index", "recto-sample,RECTO_THREADS=1", "--index", "website_embeddings")
    done = recto(sample_home, *arguments, *named, *other, RECTO_LEXICAL_WEIGHT="1")
    data = json.loads(done.stdout)
    assert data["current"]["lexical_weight"] == 1
    assert [one["collection"] for one in data["configurations"]] == [
        "physical-ai-book",
        "physical-ai-book",
        "recto-sample",
        "website_embeddings",
    ]
    means = [one["mean"] for one in data["configurations"]]
    assert means[1] == means[2] == means[3], "all of them are names of one index"
    if data["recommended"]:
        assert data["apply"] == ["Set RECTO_LEXICAL_WEIGHT=0.1 in the environment or in .env."]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mode", "sparse"], "'sparse' is not a mode"),
        (["--weight", "0.1,2"], "'2' is not a number from 0 to 1"),
        (["--weight", "nan"], "'nan' is not a number"),
        (["--index", "a b"], "--index is not a usable collection name"),
        (["--index", "book,RECTO_MODEL"], "is not COLLECTION,NAME=VALUE"),
        (["--measure", "nDGC@10"], "did you mean nDCG@10"),
        (["--measure", "Judged@5"], "Judged@5 cannot be used"),
    ],
)
def test_tune_explains_wrong_options(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = recto(tmp_path, "tune", "--suite", HELD_OUT, *arguments)
    assert (done.returncode, done.stdout) == (4, "")
    assert words in done.stderr


def test_the_chunk_size_is_a_setting(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# Page\n\n" + "A sentence about robots. " * 20)
    arguments = ("index", str(tmp_path / "docs"), "--collection", "book", "--json")
    found = [
        json.loads(recto(tmp_path / "home", *arguments, RECTO_CHUNK_TOKENS=size).stdout)
        for size in ("64", "160")
    ]
    assert [one["fingerprint"]["chunker"].split()[1] for one in found] == ["max_tokens=64", "max_tokens=160"]
    assert found[0]["chunks"] > found[1]["chunks"] == 1

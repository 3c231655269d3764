"""`recto validate` and `recto suite`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.running import recto, retrieve

HELD_OUT = "tests/evaluation/heldout.json"
DDS = "module-1-ros2/04-dds-and-qos"


def suite_file(directory: Path, *entries: dict[str, Any], **more: Any) -> str:
    path = directory / "suite.json"
    path.write_text(json.dumps({"queries": entries, **more}), "utf-8")
    return str(path)


EXPECTED = {"module": "ros2", "page": f"{DDS}#what-is-dds"}
RIGHT = {"query": "What is DDS in ROS 2?", "expect": EXPECTED, "tags": ["dds"]}
WRONG = {"query": "What is a digital twin?", "expect": {"page": DDS}, "tags": ["twin"]}


def test_without_a_suite(sample_home: Path) -> None:
    theirs, ours = retrieve(sample_home, "--validate"), recto(sample_home, "validate")
    assert ours.returncode == theirs.returncode == 0
    assert ours.stdout.split("Duration")[0] == theirs.stdout.split("Duration")[0]
    assert ours.stdout.startswith("Running Retrieval Validation Suite...")
    report = json.loads((sample_home / "reports" / "recto-sample" / "suite.json").read_text("utf-8"))
    assert (report["passed"], report["total"], report["failed"]) == (5, 5, [])
    assert report["command"] == "recto validate --collection recto-sample"


@pytest.mark.parametrize("more", [[], ["--gate", "Hit@5>=0.9"]])
def test_another_book_needs_a_suite(house: Path, more: list[str]) -> None:
    done = recto(house / "home", "validate", "--collection", "house", *more)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == (
        "[ERROR] Invalid argument: 'house' needs a suite: the built-in questions are about the sample book, "
        "and 'house' has no module ros2 or simulation or isaac or vla\n"
        "        Write a suite (see docs/how-to/validate.md), then run "
        "`recto validate --suite questions.json --collection house`.\n"
    )


def test_suite_and_baseline(sample_home: Path, tmp_path: Path) -> None:
    baseline, junit = tmp_path / "expected_results.json", tmp_path / "junit.xml"
    arguments = ("validate", "--suite", HELD_OUT, "--baseline", str(baseline))
    gates = ("--gate", "Hit@5>=0.9", "--gate", "MRR>0.5")
    done = recto(sample_home, *arguments, "--update-baseline", "--junit", str(junit), *gates)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "nDCG@10" in done.stdout
    assert "[PASS] Hit@5>=0.9" in done.stdout
    root = ET.parse(junit).getroot()
    assert root.attrib["tests"] == "103"
    assert len(root.findall("./testsuite[1]/testcase")) == 100
    written = baseline.read_text("utf-8")
    again = recto(sample_home, *arguments, "--json")
    data = json.loads(again.stdout)
    assert again.returncode == 0
    assert data["comparison"]["changes"] == []
    assert data["comparison"]["measures"]["MRR"]["delta"]["mean"] == 0
    assert data["gate"]["passed"] is True
    assert recto(sample_home, *arguments, "--update-baseline").returncode == 0
    assert baseline.read_text("utf-8") == written, "the same index gives the same file"
    assert recto(sample_home, *arguments, "--top-k", "7").returncode == 4, "another top_k cannot be compared"
    broken = json.loads(Path(HELD_OUT).read_text("utf-8"))
    for number, entry in enumerate(broken["queries"][:12]):  # as if the index had lost their answers
        entry["id"], entry["query"] = entry["query"], f"pizza dough recipe number {number}"
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(broken))
    worse = recto(sample_home, "validate", "--suite", str(path), "--baseline", str(baseline))
    assert worse.returncode == 5
    assert "[FAIL] no loss of MRR" in worse.stdout
    assert "WORSE" in worse.stdout
    assert "The suite is not the one of the baseline." in worse.stdout


def test_gates_and_tags(sample_home: Path, tmp_path: Path) -> None:
    suite = suite_file(tmp_path, RIGHT, WRONG)
    done = recto(sample_home, "validate", "--suite", suite)
    assert done.returncode == 5
    assert "[FAIL] at least 80% pass: 1 of 2 questions passed" in done.stdout
    assert recto(sample_home, "validate", "--suite", suite, "--gate", "Hit@1>=0.5").returncode == 0, (
        "a gate replaces the 80 %"
    )
    lower = suite_file(tmp_path, RIGHT, WRONG, threshold=0.5)
    assert recto(sample_home, "validate", "--suite", lower).returncode == 0
    done = recto(sample_home, "validate", "--suite", suite, "--tag", "dds", "--verbose")
    assert done.returncode == 0
    assert '[PASS] "What is DDS in ROS 2?"' in done.stdout
    assert "digital twin" not in done.stdout
    assert recto(sample_home, "validate", "--suite", suite, "--tag", "none").returncode == 4


def test_an_expected_page_that_is_not_in_the_index(sample_home: Path, tmp_path: Path) -> None:
    nasty = 'a <b> & "c" \x00\x1b[31m ]]> 🤖'
    gone = {"query": nasty, "expect": {"page": f"{DDS}#what-is-ddss"}}
    junit = tmp_path / "junit.xml"
    suite = suite_file(tmp_path, RIGHT, gone)
    done = recto(sample_home, "validate", "--suite", suite, "--junit", str(junit), "--gate", "Hit@5>=0")
    assert done.returncode == 5
    assert "UNMEASURED" in done.stdout
    assert "what-is-dds'" in done.stdout.replace("\n    ", " ")
    assert "\x1b" not in done.stdout
    (error,) = ET.parse(junit).getroot().findall(".//error")
    assert "what-is-dds" in error.attrib["message"]
    names = [case.attrib["name"] for case in ET.parse(junit).getroot().iter("testcase")]
    assert 'a <b> & "c" [31m ]]> 🤖' in names
    done = recto(sample_home, "validate", "--suite", suite_file(tmp_path, gone), "--gate", "Hit@5>=0")
    assert done.returncode == 5
    assert "nothing in this suite can be measured" in done.stdout.replace("\n    ", " ")


def test_a_question_that_the_book_does_not_cover(sample_home: Path, tmp_path: Path) -> None:
    suite = suite_file(tmp_path, RIGHT, {"query": "best pizza dough hydration", "expect": {"nothing": True}})
    assert recto(sample_home, "validate", "--suite", suite).returncode == 0


def test_compare_with_the_cloud(home: Path, small_book: Path, tmp_path: Path, cloud: dict[str, str]) -> None:
    """Compare two models and two stores; each index is searched with its own model."""
    assert recto(home, "index", str(small_book), "--collection", "garden", **cloud).returncode == 0
    assert recto(home, "index", str(small_book), "--collection", "garden").returncode == 0
    questions = {"compost": "garden", "knead the dough": "kitchen"}
    entries = [{"query": query, "expect": {"module": module}} for query, module in questions.items()]
    suite = suite_file(tmp_path, *entries)
    arguments = ("validate", "--suite", suite, "--collection", "garden", "--compare", "garden", "--json")
    done = recto(home, *arguments, "--compare-setting", "RECTO_PROFILE=embedded", **cloud)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["comparison"]
    assert (data["against"].startswith("garden"), data["compared"]) == (True, 2)


def test_lint_reads_the_file_and_the_index(sample_home: Path) -> None:
    checked = recto(sample_home, "suite", "lint", HELD_OUT, "--collection", "physical-ai-book")
    assert (checked.returncode, checked.stdout) == (0, "100 questions: 0 problems, 0 warnings.\n")

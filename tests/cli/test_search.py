"""`recto search`: modes, snippets, pages, corrections, and queries that the book does not cover."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recto.search.display import SNIPPET
from tests.book.files import write
from tests.cli.terminals import Terminal
from tests.running import recto, retrieve
from tests.search.test_editions import CURRENT, DE_1, FILES, TEAM

QUERY = "What is DDS in ROS 2?"


def test_text_has_title_section_url_and_snippet(sample_home: Path) -> None:
    done = recto(sample_home, "search", QUERY, "--top-k", "2")
    assert done.returncode == 0, done.stderr
    head, first, second = done.stdout.split("\n\n")
    assert re.fullmatch(rf'Query: "{re.escape(QUERY)}"\n2 results in \d+ ms \| hybrid', head)
    lines = first.split("\n")
    assert re.match(r" 1  [01]\.\d{3}  DDS and Quality of Service \(ros2\)", lines[0])
    assert lines[1] == "    What is DDS in ROS 2?"
    assert lines[2] == "    local://docs/docs/module-1-ros2/04-dds-and-qos#what-is-dds"
    snippet = " ".join(line.strip() for line in lines[3:])
    assert "DDS" in snippet
    assert len(snippet) <= SNIPPET + 2
    assert second.startswith(" 2  ")
    assert "\x1b" not in done.stdout, "no colors on a pipe"
    whole, data = (recto(sample_home, "search", QUERY, more).stdout for more in ("--verbose", "--json"))
    text = json.loads(data)["results"][0]["text"]
    assert len(snippet) < len(text)
    assert " ".join(text.split()) in " ".join(whole.split())


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_json(sample_home: Path, mode: str) -> None:
    data = json.loads(recto(sample_home, "search", QUERY, "--mode", mode, "--json").stdout)
    assert data["mode"] == mode
    assert data["corrections"] == {}
    assert data["groups"] == []
    assert (data["answerable"] is None) == (data["coverage"] is None) == (mode != "hybrid")
    for rank, result in enumerate(data["results"], 1):
        assert result["rank"] == rank
        assert (result["dense"] is None) == (mode == "lexical")
        assert (result["lexical"] is None) == (mode == "dense")
        assert len(result["snippet"]) <= SNIPPET + 2
    assert "DDS" in data["results"][0]["matches"]
    scores = [result["score"] for result in data["results"]]
    assert scores == sorted(scores, reverse=True)
    if mode == "hybrid":
        best = data["results"][0]
        assert best["lexical"] < scores[0] < best["dense"], "a hybrid score is a mean of both"
    if mode == "dense":
        assert scores == [result["dense"] for result in data["results"]]


def test_results_by_page(sample_home: Path) -> None:
    arguments = ("search", "QoS profiles", "--by-page", "--top-k", "2")
    done = recto(sample_home, *arguments)
    assert re.search(r"^2 pages in \d+ ms", done.stdout, re.MULTILINE)
    first = done.stdout.split("\n\n")[1].split("\n")
    others = [line for line in first if re.match(r"      \d\.\d{3}  \S", line)]
    assert others, "the other sections are below the best chunk"
    assert len({line.split("  ")[-1] for line in others}) == len(others), "each section once"
    assert len(json.loads(recto(sample_home, *arguments, "--json").stdout)["groups"]) == 2


def test_corrections(sample_home: Path) -> None:
    done = recto(sample_home, "search", "quaternoin", "--top-k", "1")
    assert '\n"quaternoin" is not in the book. Searched for "quaternion".\n' in done.stdout
    data = json.loads(recto(sample_home, "search", "quaternoin", "--top-k", "1", "--json").stdout)
    assert data["corrections"] == {"quaternoin": ["quaternion"]}
    assert "quaternion" in data["results"][0]["matches"]


def test_a_query_that_the_book_does_not_cover(sample_home: Path) -> None:
    done = recto(sample_home, "search", "best pizza in Naples")
    assert done.returncode == 0
    head, *results = done.stdout.strip().split("\n\n")
    assert head.split("\n")[1].endswith(" | hybrid | the best 3 are shown")
    assert head.split("\n")[2] == "The book does not seem to cover this."
    assert len(results) == 3
    assert all(re.match(r" \d  0\.\d{3} weak  ", result) for result in results)
    data = json.loads(recto(sample_home, "search", "best pizza in Naples", "--json").stdout)
    assert data["answerable"] < 0.5
    assert len(data["results"]) == 5
    done = recto(sample_home, "search", "xylophone", "--mode", "lexical")
    assert done.returncode == 1
    assert "No chunk contains any word of the query" in done.stdout


def test_matched_words_are_bold_on_a_terminal_and_lines_are_short(sample_home: Path) -> None:
    with Terminal(sample_home, QUERY, "--top-k", "1", command="search", columns="120") as terminal:
        assert terminal.end() == 0
    assert "\x1b[1mDDS\x1b[0m" in terminal.raw
    assert all(len(line) <= 100 for line in terminal.text.splitlines() if "://" not in line)


def test_versions_and_locales_of_a_site(home: Path, tmp_path: Path) -> None:
    """All are in one index, and a later run without options reads all of them again."""
    book = str(write(tmp_path / "garden", FILES))
    indexed = recto(home, "index", book, "--docs-version", "all", "--locale", "all")
    assert indexed.returncode == 0, indexed.stderr
    again = json.loads(recto(home, "index", book, "--json").stdout)
    assert (again["published"], again["chunks"]) == (False, 9)

    def found(*flags: str) -> tuple[set[str], list[str]]:
        done = recto(home, "search", "pump", "--json", *flags)
        data = json.loads(done.stdout)
        return {hit["page_url"].removeprefix("https://x.org") for hit in data["results"]}, data["warnings"]

    urls, warnings = found()
    assert urls == CURRENT
    assert warnings == ["Only version 2.0 was searched. The book also has: current, 1.0."]
    assert found("--docs-version", "1.0", "--lang", "de") == ({TEAM, DE_1}, [])


def test_modes_of_the_contract(sample_home: Path) -> None:
    printed = [retrieve(sample_home, QUERY, "--json", *more).stdout for more in ((), ("--mode", "dense"))]
    shown = [json.loads(text)["results"] for text in printed]
    assert shown[0] == shown[1]
    dense = json.loads(recto(sample_home, "search", QUERY, "--mode", "dense", "--json").stdout)["results"]
    assert [result["text"] for result in shown[0]] == [result["text"] for result in dense]
    assert set(shown[0][0]) == {"score", "module_name", "page_title", "page_url", "chunk_index", "text"}
    hybrid = json.loads(recto(sample_home, "search", QUERY, "--json").stdout)["results"]
    asked = json.loads(retrieve(sample_home, QUERY, "--json", "--mode", "hybrid").stdout)["results"]
    assert [(one["text"], one["score"]) for one in asked] == [(one["text"], one["score"]) for one in hybrid]
    done = retrieve(sample_home, QUERY, "--mode", "lexical")
    assert done.returncode == 4
    assert "'dense', 'hybrid'" in done.stderr


def test_a_query_that_looks_like_an_option(sample_home: Path, home: Path) -> None:
    for run, name in ((recto, "recto search"), (retrieve, "retrieve.py")):
        arguments = ("search",) if run is recto else ()
        done = run(home, *arguments, "--use-sim-time")
        assert (done.returncode, done.stdout) == (4, "")
        assert f'To search for this text: `{name} -- "--use-sim-time"`.' in done.stderr
        assert run(sample_home, *arguments, "--", "--use-sim-time").returncode == 0


def test_the_help_groups_the_commands_and_a_mistyped_one_is_suggested(home: Path) -> None:
    text = recto(home, "--help").stdout
    assert re.findall(r"^(\w+):$", text, re.MULTILINE)[1:5] == [
        "Everyday", "Evaluation", "Service", "Maintenance"
    ]  # fmt: skip
    assert "  backup, restore, rollback, " in text, "the last group has only names"
    assert "No such command 'serch'. Did you mean 'search'?" in recto(home, "serch", "ROS 2").stderr

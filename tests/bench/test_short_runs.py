"""Short forms of the other benchmarks: hostile input, kills, attacks, scale and selections."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from bench import attack, fuzz, hostile, kills, scale, synthetic
from recto.book.sources import tree


def run(
    module: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str
) -> str:
    monkeypatch.setattr(sys, "argv", ["bench", *options])
    module.main()  # type: ignore[attr-defined]
    return capsys.readouterr().out


def test_hostile_requests_cause_no_unexpected_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = json.loads(run(hostile, monkeypatch, capsys, "requests", "--count=60", "--json"))
    assert figures["requests"] >= 60
    assert figures["5xx"] == 0


def test_mutated_books_are_read_or_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    figures = json.loads(run(fuzz, monkeypatch, capsys, "--count=120", "--jobs=2", "--json"))
    assert figures["files"] >= 120
    assert (figures["unexpected errors"], figures["pages that vanished"]) == (0, 0)
    run(fuzz, monkeypatch, capsys, "--case=3", f"--write={tmp_path}")
    name, files, mutated = fuzz.mutated_book(1, 3)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == set(files)
    assert sum(files[file] != data for file, data in fuzz.books()[name].items()) == mutated


def test_a_fault_of_a_reader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is not yielded, and an error that `recto index` would not report."""
    monkeypatch.setattr(tree, "_limited", lambda *_: iter(()))
    assert "vanished" in fuzz.run_case(1, 2).findings[0]
    monkeypatch.setattr(tree, "_limited", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in fuzz.run_case(1, 2).findings[0]


def test_hostile_inputs_are_read_or_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--only=front matter", "--only=mkdocs.yml: depth", "--json"]
    figures = json.loads(run(hostile, monkeypatch, capsys, *options))
    assert list(figures) == ["front matter", "mkdocs.yml: depth"]
    # The memory of a child process includes what the test process had when it started the child.
    outcomes = [text.split(", ")[-1].removesuffix(" **over the limit**") for text in figures.values()]
    assert outcomes == ["read", "refused"]


def test_mutations_are_the_same_for_a_seed() -> None:
    first, again, other = (fuzz.mutate("# A page\n" * 9, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_killed_commands_lose_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = json.loads(run(kills, monkeypatch, capsys, "--count=3", "--json"))
    assert figures["kills"] == 3
    assert not any(figures[name] for name in figures if "(goal 0)" in name or "failed" in name), figures


def test_an_attack_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--seconds=1", "--connections=2", "--only=mistyped pages", "--json"]
    figures = json.loads(run(attack, monkeypatch, capsys, *options))
    assert figures["mistyped pages: p95 quiet, ms"] > 0
    assert figures["mistyped pages: clients refused (goal 0)"] == 0


def test_a_thousand_chunks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run(scale, monkeypatch, capsys, "--sizes=1000")
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1] for line in printed.splitlines() if line}
    assert float(rows["dense search recall@10"]) == 1
    assert float(rows["hybrid search recall@1"]) > 0.9
    assert "hybrid search ms p50 / p95" in rows


def test_the_words_of_a_synthetic_book_are_short_if_they_are_frequent() -> None:
    assert [synthetic.generated_word(rank) for rank in (0, 79, 80)] == ["ba", "zu", "babe"]

"""Index a book again: plans, progress, reports, and `recto watch`."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recto.stores.edge.store import EdgeStore
from tests.cli.test_index import WITH_CTRL_C
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.running import ROOT, environment, recto, recto_process, wait_until


def test_dry_run_embedded(home: Path, small_book: Path) -> None:
    done = recto(home, "index", str(small_book), "--collection", "garden", "--dry-run", "--verbose")
    assert (done.returncode, done.stderr) == (0, "")
    assert not home.exists(), "nothing is written"
    head, pages, chunks, embedding, *table = done.stdout.splitlines()
    assert head == "Plan for 'garden' (nothing is written):"
    assert pages == "  Pages: 4 new"
    assert re.fullmatch(r"  Chunks: 4 to embed \(\d+ tokens\), 0 reused", chunks)
    assert embedding == "  Embedding: on this machine, at no cost"
    assert [line.split() for line in table[:4]] == [
        ["Module", "Pages", "Chunks", "Title"],
        ["garden", "2", "2", "Garden"],
        ["kitchen", "1", "1", "Kitchen"],
        ["intro", "1", "1", "Introduction"],
    ]
    assert table[4].split() == [
        "new",
        "1",
        "module-1-garden/01-soil.md",
        "local://docs/docs/module-1-garden/01-soil",
    ]


def test_dry_run_with_cohere_estimates_the_cost(home: Path, small_book: Path) -> None:
    with CohereDouble(api_key="co_key_12345") as cohere, QdrantDouble() as qdrant:
        cloud = {
            "COHERE_API_KEY": "co_key_12345",
            "COHERE_API_URL": cohere.url,
            "QDRANT_URL": qdrant.url,
            "COHERE_PACE": "off",
        }
        (small_book / "long.md").write_text(
            "\n\n".join(f"## Part {n}\n\n" + "Water the beans daily. " * 70 for n in range(300))
        )
        done = recto(home, "index", str(small_book), "--collection", "garden", "--dry-run", "--json", **cloud)
        assert done.returncode == 0, done.stderr
        data = json.loads(done.stdout)
        assert (cohere.calls, [request.method for request in qdrant.requests if request.method != "GET"]) == (
            0,
            [],
        )
        estimate, texts, tokens = data["estimate"], data["embedded"]["texts"], data["embedded"]["tokens"]
        assert texts > 300
        assert estimate["api_calls"] == -(-texts // 96)
        assert estimate["trial_minutes"] == pytest.approx(max(tokens / 100_000, texts / 2000), abs=0.01)
        assert estimate["dollars"] == pytest.approx(tokens * 0.10 / 1e6, abs=1e-6)
        text = recto(home, "index", str(small_book), "--collection", "garden", "--dry-run", **cloud).stdout
        assert re.search(
            r"Embedding: \d+ API calls, (about \d+ minutes?|less than a minute) at trial limits, "
            r"about \$0\.0",
            text,
        )


def embedded_chunks(cohere: CohereDouble) -> int:
    """Count the embedded chunks; the calibration embeds only queries."""
    return sum(
        len(request.body["texts"])
        for request in cohere.requests
        if request.body["input_type"] == "search_document"
    )


def test_only_changes_are_sent_to_the_services(home: Path, small_book: Path) -> None:
    with CohereDouble(api_key="co_key_12345") as cohere, QdrantDouble() as qdrant:
        cloud = {
            "COHERE_API_KEY": "co_key_12345",
            "COHERE_API_URL": cohere.url,
            "QDRANT_URL": qdrant.url,
            "COHERE_PACE": "off",
        }
        arguments = ("index", str(small_book), "--collection", "garden")
        assert recto(home, *arguments, **cloud).returncode == 0
        assert embedded_chunks(cohere) == 4
        qdrant.requests.clear()
        done = recto(home, *arguments, **cloud)
        assert done.stdout.startswith("Nothing has changed: 4 pages, 4 chunks in 'garden'")
        assert [request.path for request in qdrant.requests if request.method == "PUT"] == []
        (small_book / "welcome.md").write_text("# Welcome\n\nHello again.\n")
        (small_book / "module-2-kitchen" / "01-bread.md").unlink()
        qdrant.requests.clear()
        assert recto(home, *arguments, **cloud).returncode == 0
        assert embedded_chunks(cohere) == 5
        upserts = [
            request
            for request in qdrant.requests
            if request.method == "PUT" and request.path.endswith("/points")
        ]
        assert [len(upsert.body["points"]) for upsert in upserts] == [1], "unchanged chunks are not sent"


def test_the_report_of_changes(home: Path, small_book: Path) -> None:
    arguments = ("index", str(small_book), "--collection", "garden")
    recto(home, *arguments)
    done = recto(home, *arguments)
    assert done.stdout.startswith(
        "Nothing has changed: 4 pages, 4 chunks in 'garden' (gen-000001), checked in "
    )
    (small_book / "welcome.md").write_text("# Welcome\n\nHello again.\n")
    (small_book / "module-2-kitchen" / "01-bread.md").write_bytes(b"\xff")
    done = recto(home, *arguments)
    assert done.returncode == 1
    assert "[WARNING] Kept the old version of module-2-kitchen/01-bread.md: not UTF-8" in done.stderr
    assert "Pages: 1 changed, 2 unchanged, 1 kept" in done.stdout
    assert "1 to embed" in done.stdout
    assert "3 reused" in done.stdout
    assert "Bread" in recto(home, "search", "dough", "--collection", "garden").stdout
    done = recto(home, *arguments, "--module", "gardn")
    assert done.returncode == 4
    assert "Did you mean 'garden'?" in done.stderr


def test_progress_on_a_pipe(home: Path, small_book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("index", str(small_book), "--collection", "garden", "--rebuild")
    assert recto_process(home, *command).stderr == "", "a short run prints no progress"
    monkeypatch.setattr("recto.cli.indexing._LOG_SECONDS", 0.0)
    lines = recto(home, *command).stderr.splitlines()
    assert {"Reading: 1 page, 1 chunk", "Reading: 4 pages, 4 chunks"} <= set(lines)
    assert re.fullmatch(r"4 pages, 4 of 4 chunks, [\d,]+ tokens/s, 0:00 left", lines[-1])
    assert recto(home, *command[:-1]).stderr.splitlines()[-1] == "Reading: 4 pages, 0 chunks"


def test_progress_bar(home: Path, small_book: Path) -> None:
    leader, follower = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "recto", "index", str(small_book), "--collection", "garden"],
            cwd=ROOT,
            env=environment(home, TERM="xterm", COLUMNS="120"),
            stdout=subprocess.PIPE,
            stderr=follower,
        )
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 4096)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        assert process.wait(timeout=300) == 0
        assert process.stdout is not None
        process.stdout.close()
    finally:
        os.close(leader)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode("utf-8", "replace"))
    assert "4 pages, " in text
    assert " of 4 chunks" in text
    assert "tokens/s" in text


@contextmanager
def watching(home: Path, book: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            WITH_CTRL_C,
            "watch",
            str(book),
            "--collection",
            "garden",
            "--interval",
            "0.1",
        ],
        cwd=ROOT,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_watch(home: Path, small_book: Path) -> None:
    store = EdgeStore(home)

    def texts() -> str:
        return (
            ""
            if "garden" not in store.collections()
            else "\n".join(chunk.text for chunk in store.open("garden").scroll())
        )

    with watching(home, small_book) as process:
        wait_until(lambda: "worms" in texts().lower(), 120)
        (small_book / "welcome.md").write_text("# Welcome\n\nHello again, gardeners.\n")
        wait_until(lambda: "Hello again" in texts(), 120)
        (small_book / "module-2-kitchen" / "01-bread.md").unlink()
        wait_until(lambda: "dough" not in texts(), 120)
        (small_book / "new.md").write_bytes(b"\xff\xfe")
        (small_book / "welcome.md").write_text("# Welcome\n\nThird time.\n")
        wait_until(lambda: "Third time" in texts(), 120)
        (small_book / "snippet.txt").write_text("A snippet.")
        (small_book / "welcome.md").write_text('# Welcome\n\nFourth time.\n\n--8<-- "snippet.txt"\n')
        wait_until(lambda: "A snippet." in texts(), 120)  # then the third run has been reported
        (small_book / "snippet.txt").write_text("Another snippet.")
        wait_until(lambda: "Another snippet." in texts(), 120)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    first, *rounds = out.splitlines()
    assert first.startswith("gen-000001: ")
    assert any("welcome.md; 1 chunk embedded in " in line for line in rounds)
    assert "Watching " in err
    assert "[WARNING] Left out new.md: not UTF-8" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["watch", "https://example.org"], 4, "A website cannot be watched"),
        (["index", "docs", "--delay", "1"], 4, "--delay is for websites"),
        (["index", "docs", "--allow-private"], 4, "--allow-private is for websites"),
        (["index", "https://example.org", "--docs-version", "1"], 4, "--docs-version is for books on disk"),
        (["index", "https://example.org", "--no-trailing-slash"], 4, "--trailing-slash is for books on disk"),
        (["index", "docs", "--docs-version", "9"], 2, "--docs-version is for Docusaurus sites"),
        (["index", "docs", "--locale", "fr", "--dry-run"], 2, "--locale is for Docusaurus sites"),
    ],
)
def test_options_without_effect_are_errors(home: Path, arguments: list[str], code: int, words: str) -> None:
    done = recto(home, *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert not home.exists()


def test_watch_a_missing_directory(home: Path, tmp_path: Path) -> None:
    done = recto(home, "watch", str(tmp_path / "nowhere"))
    assert done.returncode == 4
    assert "does not exist" in done.stderr


def test_broken_pages_are_reported(home: Path, small_book: Path) -> None:
    """Broken or hostile files are reported one by one, and the rest is indexed."""
    with (small_book / "huge.md").open("wb") as huge:
        huge.truncate(50 << 20)
    (small_book / "nested.md").write_text("- " * 10_000 + "deep\n\n" + "> " * 10_000 + "quoted\n")
    (small_book / "latin.md").write_bytes("# Café\n\nGrüße\n".encode("latin-1"))
    (small_book / "loop").symlink_to(small_book, target_is_directory=True)
    (small_book / "pictures.md").write_text("![](a.png)\n\n<img src='b.png' />\n")
    done = recto(home, "index", str(small_book), "--collection", "garden", "--json")
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert sorted(failure.split(":")[0] for failure in data["failed"]) == ["huge.md", "latin.md"]
    assert any("pictures.md has no text" in note for note in data["notes"])
    assert any("loop/ is a symbolic link to a directory" in note for note in data["notes"])
    assert (
        "deep"
        in recto(
            home, "search", "deep nesting", "--collection", "garden", "--verbose", "--top-k", "20"
        ).stdout
    )
    assert "Bread" in recto(home, "search", "dough", "--collection", "garden").stdout

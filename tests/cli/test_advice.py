"""Errors say what is wrong and what helps, each as a new user meets it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from recto import cli
from recto.types.search import Vector
from tests.cli.terminals import piped
from tests.running import Done, recto, run
from tests.shared_embedder import RememberingEmbedder

AS_ROOT = os.name == "posix" and os.geteuid() == 0
WRONG_PLURAL = re.compile(
    r"(?<![\d.,])1 (?:\w+-)?"
    r"(?:pages|chunks|sections|questions|queries|results|texts|searches|errors|warnings|collections|characters)"
)
Close = Callable[[Path, int], Path]
WITHOUT_OVERRIDE = ["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"]


def test_a_page_that_is_too_large(home: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.md"
    large.touch()
    os.truncate(large, 34 << 20)
    for path in (large, tmp_path):
        done = recto(home, "index", str(path))
        assert (done.returncode, done.stdout) == (4, "")
        assert done.stderr == (
            f"[ERROR] Invalid argument: No page can be read in {path}\n"
            "        large.md: it has 34.0 MiB, and the limit is 2 MiB (split it into several pages)\n"
        )


@pytest.fixture
def closed() -> Iterator[Close]:
    """Return a function that changes the mode of a path until the end of the test."""
    modes: dict[Path, int] = {}

    def change(path: Path, mode: int) -> Path:
        modes.setdefault(path, path.stat().st_mode)
        path.chmod(mode)
        return path

    yield change
    for path, mode in reversed(modes.items()):
        path.chmod(mode)


def restricted(home: Path, *arguments: str) -> Done:
    """Run `recto` without the right of root to ignore permissions."""
    prefix = WITHOUT_OVERRIDE if AS_ROOT else []
    return run([*prefix, sys.executable, "-m", "recto", *arguments], home)


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
@pytest.mark.skipif(AS_ROOT and not shutil.which("setpriv"), reason="needs setpriv")
def test_missing_permissions(home: Path, tmp_path: Path, small_book: Path, closed: Close) -> None:
    recto(home, "index", str(small_book), "--collection", "garden")
    (home / "journal").mkdir(exist_ok=True)
    (tmp_path / "other").mkdir()
    index = ("index", str(small_book), "--collection", "garden", "--rebuild")
    for place, used in (
        (home / "journal", home),
        (home / "collections" / "garden", home),
        (tmp_path / "other", tmp_path / "other" / "home"),
    ):
        closed(place, 0o555)
        done = restricted(used, *index)
        assert done.returncode == 4
        assert "Permission denied" in done.stderr
        assert f"Give yourself write permission for {place}, or set RECTO_HOME" in done.stderr
        assert "space" not in done.stderr
        place.chmod(0o755)
    closed(home, 0o555)
    repair = f"Repair: Give yourself write permission for {home}"
    assert repair in restricted(home, "doctor", "--collection", "garden").stdout
    home.chmod(0o755)
    closed(small_book, 0)
    done = restricted(home, *index)
    assert done.returncode == 4
    assert done.stderr.endswith(f"        Give yourself read and search permission for {small_book}.\n")
    small_book.chmod(0o755)
    part = closed(small_book / "module-1-garden", 0)
    done = restricted(home, "index", str(small_book), "--collection", "part")
    assert (done.returncode, "Indexed 2 pages" in done.stdout) == (1, True), "the rest is read"
    assert "Left out module-1-garden/: Permission denied (give yourself permission to read it)" in done.stderr
    part.chmod(0o755)
    page = closed(small_book / "welcome.md", 0)
    done = restricted(home, "index", str(page), "--collection", "new")
    assert done.returncode == 4
    assert "welcome.md: Permission denied (give yourself permission to read it)" in done.stderr


class PanicException(BaseException):
    """Stands for the class that pyo3 defines at run time."""


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (MemoryError(), "Out of memory\n        Close other programs, or give Recto more memory.\n"),
        (PanicException("out of bounds"), "Unexpected error: PanicException: out of bounds\n"),
    ],
)
def test_memory_and_panics(raised: BaseException, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @click.option("--index", is_flag=True)
    def fail(index: bool) -> None:
        if index:
            cli.use_exit_codes(cli.INDEX_EXIT_CODES)
        raise raised

    assert cli.run(fail, [], "fail") == 3
    assert cli.run(fail, ["--index"], "fail") == 4
    assert f"[ERROR] {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (0, "Nothing was embedded, so nothing is kept. The old index is unchanged."),
        (1, "1 embedding kept: run the same command again to continue. The old index is unchanged."),
    ],
)
def test_an_interrupted_run_says_what_is_kept(
    home: Path, small_book: Path, monkeypatch: pytest.MonkeyPatch, calls: int, message: str
) -> None:
    recto(home, "index", str(small_book / "welcome.md"), "--collection", "garden")
    embed, left = RememberingEmbedder.embed_documents, calls

    def interrupted(self: RememberingEmbedder, texts: Sequence[str], *more: Any) -> list[Vector]:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return embed(self, texts, *more)

    with monkeypatch.context() as patch:
        patch.setattr(RememberingEmbedder, "batch_size", 1)
        patch.setattr(RememberingEmbedder, "embed_documents", interrupted)
        done = recto(home, "index", str(small_book), "--collection", "garden")
    assert done.returncode == 130
    assert done.stderr.split("\n", 1)[1] == f"Interrupted.\n{message}\n"
    done = recto(home, "index", str(small_book), "--collection", "garden", "--json")
    data = json.loads(done.stdout)
    assert (data["embedded"]["texts"], data["reused"]) == (3 - calls, calls + 1)


def test_an_interrupted_first_run(home: Path, small_book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RememberingEmbedder, "embed_documents", interrupted)
        done = recto(home, "index", str(small_book), "--collection", "garden")
        assert done.stderr.endswith("Interrupted.\nNothing was embedded, so nothing is kept.\n")
    monkeypatch.setattr("recto.evaluation.calibration.calibrate", interrupted)
    done = recto(home, "index", str(small_book), "--collection", "garden")
    assert done.stderr.endswith(
        "Interrupted.\nThe new index is published. The noise floor was not measured. "
        "Run `recto calibrate --collection garden`.\n"
    )
    assert "Bread" in recto(home, "search", "dough", "--collection", "garden").stdout


def test_counts_of_one(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page is not "1 pages", in any command."""
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "a.md").write_text("# Pumps\n\nA pump is a machine.\n")
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"queries": [{"query": "What is a pump?", "expect": {"page": "a.md"}}]}))
    monkeypatch.setattr("recto.cli.commands.index._LOG_SECONDS", 0.0)
    book = ("index", str(tmp_path / "book"), "--collection", "pumps")
    others = (
        "collections; search pump; search pump --by-page; explain pump; coverage --verbose; calibrate; doctor; "
        f"validate --suite {suite} --gate Hit@1>=0; validate --suite {suite} --compare pumps; suite lint {suite}"
    )
    for command in ([*book, "--dry-run"], book, book, *(one.split() for one in others.split(";"))):
        done = recto(home, *command)
        assert done.returncode in (0, 1), done.stderr
        assert not WRONG_PLURAL.search(done.stdout + done.stderr), done.stdout + done.stderr
    done = piped(home, "pump\n:module\n:page 1\n:select 1\nx\n")
    assert not WRONG_PLURAL.search(done.stdout), done.stdout
    (tmp_path / "book" / "a.md").write_text("# Pumps\n\nA pump is not a machine.\n")
    done = recto(home, "doctor", "--json")
    assert "(pages: 1 changed; 1 chunk to embed)" in done.stdout

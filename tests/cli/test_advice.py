"""Errors say what is wrong and what helps, each as a new user meets it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from recto.cli import runner
from tests.running import ROOT, Done, environment, recto

AS_ROOT = os.name == "posix" and os.geteuid() == 0
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
            "        large.md: it has 34.0 MiB, and the limit is 4 MiB (split it into several pages)\n"
        )


@pytest.fixture
def closed() -> Iterator[Callable[[Path, int], Path]]:
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
    return subprocess.run(
        [*prefix, sys.executable, "-m", "recto", *arguments],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
@pytest.mark.skipif(AS_ROOT and not shutil.which("setpriv"), reason="needs setpriv")
def test_missing_permissions(
    home: Path, tmp_path: Path, small_book: Path, closed: Callable[[Path, int], Path]
) -> None:
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
    page = closed(small_book / "welcome.md", 0)
    for path, code in ((small_book, 1), (page, 4)):
        done = restricted(home, "index", str(path), "--collection", f"new-{code}")
        assert done.returncode == code
        assert "welcome.md: Permission denied (give yourself permission to read it)" in done.stderr


class PanicException(BaseException):
    """Stands for the class that pyo3 defines at run time."""


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (MemoryError(), "[ERROR] Out of memory\n        Close other programs, or give Recto more memory.\n"),
        (
            PanicException("index out of bounds"),
            "[ERROR] Unexpected error: PanicException: index out of bounds\n",
        ),
    ],
)
def test_out_of_memory_and_panics(
    raised: BaseException, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    @click.option("--index", is_flag=True)
    def fail(index: bool) -> None:
        if index:
            runner.use_exit_codes(runner.INDEX_EXIT_CODES)
        raise raised

    assert runner.run(fail, [], "fail") == 3
    assert runner.run(fail, ["--index"], "fail") == 4
    assert message in capsys.readouterr().err

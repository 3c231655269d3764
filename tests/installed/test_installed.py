"""The wheel and the example plugin in a fresh environment: used by configuration alone, and read by type checkers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from recto._util.files import WriterLock
from tests.book.files import write
from tests.running import ROOT, environment

pytestmark = pytest.mark.slow

PLUGIN = ROOT / "docs" / "how-to" / "examples" / "recto-demo-plugin"
PARTS = {"RECTO_EMBEDDER": "demo-hash", "RECTO_STORE": "demo-sqlite"}
RST = """\
======
Robots
======
A robot senses and acts.

Arms
----

An arm has joints: a shoulder and an elbow.
"""
MARKDOWN = "# Introduction\n\nThis book is about robots.\n"


def call(*command: object, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    pipes: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 600}
    env = environment(folder / "home", **variables)
    return subprocess.run([*map(str, command)], cwd=folder, env=env, check=False, **pipes)


def uv(*arguments: object) -> None:
    done = call("uv", *arguments)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def installed(shared_home: Path) -> Path:
    """Return the directory of the programs of a fresh environment; the workers of a test run share it."""
    if not shutil.which("uv"):
        pytest.skip("uv is not installed")
    folder = shared_home.with_name("installed")
    folder.mkdir(exist_ok=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    with WriterLock(folder / "lock", "The environment", wait=print):
        if not (folder / "done").exists():
            plugin = shutil.copytree(PLUGIN, folder / "plugin", dirs_exist_ok=True)
            uv("build", "--wheel", "--out-dir", folder, ROOT)
            (wheel,) = folder.glob("recto_search-*.whl")
            uv("venv", "--clear", folder / "venv")
            packages = (wheel, plugin, "pytest", "mypy", "pyright")
            uv("pip", "install", "--python", programs / "python", *packages)
            (folder / "done").touch()
    return programs


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return write(tmp_path / "book", {"guide/robots.rst": RST, "intro.md": MARKDOWN})


def run(installed: Path, home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    done = call(installed / "recto", *arguments, folder=home.parent, **more)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def results(installed: Path, home: Path, *arguments: str, **more: str) -> dict[str, Any]:
    done = run(installed, home, *arguments, "--json", **more)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_all_parts_together(installed: Path, home: Path, book: Path) -> None:
    planned = results(installed, home, "index", str(book), "--dry-run", **PARTS)
    assert (planned["pages"], planned["chunks"]) == (2, 3)
    report = results(installed, home, "index", str(book), "--collection", "demo", **PARTS)
    assert report["fingerprint"]["embedder"]["model"] == "demo-hash"
    assert (home / "demo-sqlite" / "collections.db").exists()
    assert not (home / "collections").exists(), "the built-in store is not used"
    result = results(installed, home, "search", "shoulder and elbow", "--collection", "demo", **PARTS)
    first = result["results"][0]
    assert (first["title"], first["section"]) == ("Robots", "Arms")
    assert first["url"] == "local://docs/docs/guide/robots#arms"
    again = results(installed, home, "index", str(book), "--collection", "demo", **PARTS)
    assert again["states"]["unchanged"] == 2
    doctor = run(installed, home, "doctor", "--collection", "demo", **PARTS)
    assert doctor.returncode == 0, doctor.stdout
    assert "demo-hash embedder, demo-sqlite store" in doctor.stdout


@pytest.mark.parametrize("part", PARTS)
def test_one_part_beside_the_built_in_ones(installed: Path, home: Path, book: Path, part: str) -> None:
    more = {part: PARTS[part]}
    results(installed, home, "index", str(book), "--collection", "demo", **more)
    result = results(installed, home, "search", "shoulder and elbow", "--collection", "demo", **more)
    assert result["results"][0]["section"] == "Arms"


def test_a_book_in_a_location_of_the_plugin(installed: Path, home: Path, tmp_path: Path) -> None:
    with ZipFile(tmp_path / "book.zip", "w") as archive:
        archive.writestr("guide/robots.rst", RST)
        archive.writestr("intro.md", MARKDOWN)
    report = results(installed, home, "index", "zip:book.zip", "--collection", "zipped", **PARTS)
    assert report["pages"] == 2
    result = results(installed, home, "search", "shoulder and elbow", "--collection", "zipped", **PARTS)
    assert result["results"][0]["url"] == "zip://book/guide/robots#arms"
    wrong = run(installed, home, "index", "s3://bucket/book", **PARTS)
    assert wrong.returncode == 4
    assert "Installed: zip." in wrong.stderr


def test_watch_notices_a_file_of_the_plugin(installed: Path, home: Path, book: Path) -> None:
    with subprocess.Popen(
        [str(installed / "recto"), "watch", str(book), "--collection", "demo", "--interval", "0.1"],
        env=environment(home, PYTHONUNBUFFERED="1", **PARTS),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert "robots.rst" in process.stdout.readline()
            (book / "guide" / "robots.rst").write_text(RST + "\nLegs\n----\n\nTwo legs are enough.\n")
            assert "robots.rst; 1 " in process.stdout.readline()
        finally:
            process.send_signal(signal.SIGINT)


def test_an_unknown_name_lists_what_is_installed(installed: Path, home: Path) -> None:
    done = run(installed, home, "search", "robots", RECTO_EMBEDDER="voyage")
    assert done.returncode == 2
    assert "RECTO_EMBEDDER must be one of local, cohere, openai, demo-hash, not 'voyage'" in done.stderr
    assert "recto.embedders must be installed" in done.stderr


def test_the_conformance_suites_pass(installed: Path, tmp_path: Path) -> None:
    tests = shutil.copytree(PLUGIN / "tests", tmp_path / "tests")
    done = call(installed / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "failed" not in done.stdout


Checker = Callable[[Path, Path], str]
PROJECT = Path(__file__).parent / "project"
WRONG = """\
import recto.protocols

recto.conect("my-book")
recto.connect("my-book").search("x", top_k="5")
recto.connect("my-book").search("x", mode="fuzzy")
recto.connect("my-book").search("x", filters=["ros2"])
recto.index(5)
recto.evaluate(None)
embedder: recto.protocols.Embedder = object()
print(recto.connect("my-book").search("x").hits[0].chunk.page)
"""


def mypy(installed: Path, folder: Path) -> str:
    return check([str(installed / "mypy"), "--strict", "--no-error-summary", "."], folder)


def pyright(installed: Path, folder: Path) -> str:
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "include": ["."]}))
    return check([str(installed / "pyright"), "--pythonpath", str(installed / "python")], folder)


def check(command: list[str], folder: Path) -> str:
    """Return the errors of a type checker."""
    done = call(*command, folder=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if "error:" in line)


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_only_wrong_calls_are_errors(installed: Path, tmp_path: Path, checker: Checker) -> None:
    for project in (PROJECT, PLUGIN / "recto_demo"):
        shutil.copytree(project, tmp_path / project.name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "wrong.py").write_text(WRONG)
    errors = checker(installed, tmp_path).splitlines()
    assert [line for line in errors if "wrong.py:" not in line] == []
    lines = {int(number) for number in re.findall(r"wrong\.py:(\d+)", "\n".join(errors))}
    assert lines == set(range(3, WRONG.count("\n") + 1))

"""`recto backup`, `restore`, and the generations of `recto collections` and `rollback`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from recto.stores.edge import EdgeStore
from recto.testing.parts import chunk, publish
from recto.types.search import MODES
from tests.conftest import QDRANT_KEY
from tests.doubles.qdrant import QdrantDouble
from tests.running import recto
from tests.stores.test_backup import set_format, signed


def answers(home: Path) -> list[str]:
    """Return the output of a search in every mode, without the time that it took."""
    commands = [("search", "What is ROS 2?", "--mode", mode, "--json") for mode in MODES]
    return [re.sub(r'"\w+_ms": [\d.]+', "", recto(home, *one).stdout) for one in commands]


def test_a_restored_book_gives_the_same_answers(sample_home: Path, home: Path, tmp_path: Path) -> None:
    archive = tmp_path / "sample.recto"
    done = recto(sample_home, "backup", "--output", str(archive))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"Wrote gen-\d+ of 'recto-sample' to .*: \d+ chunks, \d\.\d MB\.\n", done.stdout)
    restored = recto(home, "restore", str(archive))
    assert restored.stdout.startswith("Restored 'recto-sample' from ")
    assert answers(home) == answers(sample_home)
    assert recto(home, "doctor").returncode == 0


def test_commands_print_json(home: Path, tmp_path: Path) -> None:
    publish(EdgeStore(home), "books", [chunk(1), chunk(2)])
    file = str(tmp_path / "x.recto")
    written = json.loads(recto(home, "backup", "books", "--output", file, "--json").stdout)
    index = {"collection": "books", "generation": "gen-000001", "chunks": 2}
    assert written == {**index, "bytes": Path(file).stat().st_size, "file": file}
    done = recto(home, "restore", file)
    assert (done.returncode, done.stdout) == (4, "")
    assert "--replace" in done.stderr
    restored = json.loads(recto(home, "restore", file, "--replace", "--json").stdout)
    assert restored == {"collection": "books", "generation": "gen-000002", "chunks": 2, "file": file}
    listed = json.loads(recto(home, "collections", "books", "--json").stdout)
    assert [(one["name"], one["current"]) for one in listed] == [("gen-000002", True), ("gen-000001", False)]
    assert "gen-000002 (current)" in recto(home, "collections", "books").stdout
    assert "gen-000001" in recto(home, "rollback", "books", "--to", "gen-000001").stdout


def test_retention_is_a_setting(home: Path) -> None:
    for number in range(3):
        publish(EdgeStore(home, keep_generations=20), "books", [chunk(number)])
    file = str(home / "x.recto")
    recto(home, "backup", "books", "--output", file)
    recto(home, "restore", file, "--replace", RECTO_KEEP_GENERATIONS="2")
    listed = json.loads(recto(home, "collections", "books", "--json").stdout)
    assert [one["name"][-1] for one in listed] == ["4", "3", "2"]
    wrong = recto(home, "collections", RECTO_KEEP_GENERATIONS="0")
    assert wrong.returncode == 2
    assert "RECTO_KEEP_GENERATIONS must be a whole number from 1 to 20" in wrong.stderr


def copy_house(house: Path, home: Path) -> None:
    """Copy the home of the fixture, with another name for its collection."""
    shutil.copytree(house / "home", home)
    (home / "collections" / "house").rename(home / "collections" / "books")


@pytest.mark.parametrize(("format", "age"), [(1, "an older"), (3, "a newer")])
def test_an_index_of_another_version_is_named_everywhere(
    house: Path, home: Path, format: int, age: str
) -> None:
    copy_house(house, home)
    set_format(home, format)
    repair = f"recto index {house / 'book'} --collection books --rebuild"
    advice = repair if format == 1 else "Install a newer version of Recto"
    for command in (["search", "soil"], ["doctor"], ["index", str(house / "book")]):
        done = recto(home, *command, "--collection", "books")
        text = done.stdout + done.stderr
        assert f"was made by {age} version of Recto (format {format}; this version reads 2)" in text, command
        assert advice in text
        assert "damaged" not in text.lower()
        assert done.returncode == 2
    assert advice in recto(home, "collections").stdout
    if format == 1:
        assert recto(home, *repair.split()[1:]).returncode == 0, "the advice helps"
        assert recto(home, "search", "soil", "--collection", "books").returncode == 0


def test_an_index_with_another_analyzer_is_named(house: Path, home: Path) -> None:
    copy_house(house, home)
    path = home / "collections" / "books" / "gen-000001.json"
    manifest = json.loads(path.read_text())
    manifest["fingerprint"]["analyzer"] = "recto-2"
    path.write_text(signed(manifest))
    done = recto(home, "search", "soil", "--collection", "books")
    assert "soil" in done.stdout
    assert "lexical analysis" not in done.stdout + done.stderr, "it is searched by its words, too"
    manifest["fingerprint"]["analyzer"] = "old-1"
    path.write_text(signed(manifest))
    index_again = f"recto index {house / 'book'} --collection books"
    for command in ("collections", "search soil --collection books", "doctor --collection books"):
        done = recto(home, *command.split())
        text = done.stdout + done.stderr
        assert "another lexical analysis (old-1), so it is searched in dense mode" in text
        assert index_again in text
    done = recto(home, "index", str(house / "book"), "--collection", "books", "--json")
    assert json.loads(done.stdout)["embedded"]["texts"] == 0


def test_a_server_has_snapshots_of_its_own(home: Path, qdrant: QdrantDouble, tmp_path: Path) -> None:
    server = {"QDRANT_URL": qdrant.url, "QDRANT_API_KEY": QDRANT_KEY, "RECTO_EMBEDDER": "local"}
    done = recto(
        home, "backup", "house", "--output", str(tmp_path / "x.recto"), RECTO_STORE="server", **server
    )
    assert done.returncode == 4
    assert "snapshots of Qdrant" in done.stderr

"""`recto backup`, `restore`, `upgrade`, and the generations of `recto collections` and `rollback`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from recto.stores.edge import EdgeStore, layout
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


def test_an_older_index_is_named_everywhere(house: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_house(house, home)
    set_format(home, 0)
    index_again = f"recto index {house / 'book'} --collection books --rebuild"
    for command in (["search", "soil"], ["doctor"], ["index", str(house / "book")]):
        done = recto(home, *command, "--collection", "books")
        text = done.stdout + done.stderr
        assert "was made by an older version of Recto (format 0; this version reads 2)" in text, command
        assert index_again in text
        assert "damaged" not in text.lower()
        assert done.returncode == 2
    assert index_again in recto(home, "collections").stdout
    done = recto(home, "upgrade")
    assert (done.returncode, done.stdout) == (2, "")
    assert index_again in done.stderr
    monkeypatch.setitem(layout.MIGRATIONS, 0, lambda _, body: {**body, "format": 1})
    assert "recto upgrade books" in recto(home, "search", "soil", "--collection", "books").stderr
    assert recto(home, "upgrade", "books").stdout == "books: upgraded as gen-000002\n"
    assert recto(home, "upgrade", "--json").stdout.count("up to date") == 1
    assert recto(home, "search", "soil", "--collection", "books").returncode == 0
    set_format(home, 3, "gen-000002")
    newer = recto(home, "search", "soil", "--collection", "books").stderr
    assert "was made by a newer version of Recto (format 3; this version reads 2)" in newer
    monkeypatch.undo()
    set_format(home, 0)
    assert recto(home, *index_again.split()[1:]).returncode == 0, "the advice helps"
    assert recto(home, "search", "soil", "--collection", "books").returncode == 0


def test_an_index_with_another_analyzer_is_named(house: Path, home: Path) -> None:
    copy_house(house, home)
    path = home / "collections" / "books" / "gen-000001.json"
    manifest = json.loads(path.read_text())
    manifest["fingerprint"]["analyzer"] = "old-1"
    path.write_text(signed(manifest))
    index_again = f"recto index {house / 'book'} --collection books"
    for command in ("collections", "search soil --collection books", "doctor --collection books"):
        done = recto(home, *command.split())
        text = done.stdout + done.stderr
        assert "another lexical analysis (old-1), so it is searched in dense mode" in text
        assert index_again in text
    assert recto(home, "upgrade").returncode == 2
    done = recto(home, "index", str(house / "book"), "--collection", "books", "--json")
    assert json.loads(done.stdout)["embedded"]["texts"] == 0
    assert recto(home, "upgrade").stdout == "books: up to date\n"


def test_a_server_is_backed_up(house: Path, home: Path, qdrant: QdrantDouble, tmp_path: Path) -> None:
    shutil.copytree(house / "home", home)
    server = {"QDRANT_URL": qdrant.url, "QDRANT_API_KEY": QDRANT_KEY, "RECTO_EMBEDDER": "local"}
    file = str(tmp_path / "x.recto")
    assert recto(home, "promote", "--collection", "house", **server).returncode == 0
    done = recto(home, "backup", "house", "--output", file, **server)
    assert done.returncode == 0, done.stderr
    assert QDRANT_KEY not in Path(file).read_bytes().decode("latin-1")
    assert recto(home, "delete", "house", "--yes", **server).returncode == 0
    assert "Restored 'house'" in recto(home, "restore", file, **server).stdout
    assert recto(home, "search", "soil", "--collection", "house", **server).returncode == 0
    refused = recto(tmp_path / "other", "restore", file)
    assert refused.returncode == 4
    assert "snapshot of a Qdrant server" in refused.stderr

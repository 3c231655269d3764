"""`recto doctor`: output and exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from recto.stores.edge.store import EdgeStore
from tests.breaking import publish_broken, with_noise
from tests.running import recto

KEY = "qdrant_secret_key_123"


def test_no_problems(house: Path) -> None:
    done = recto(house / "home", "doctor", "--collection", "house")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("No problems found.\n")
    data = json.loads(recto(house / "home", "doctor", "--collection", "house", "--all", "--json").stdout)
    assert data["healthy"] is True
    assert {finding["severity"] for finding in data["findings"]} == {"ok"}


def test_damage_and_its_repair(house: Path, tmp_path: Path) -> None:
    shutil.copytree(house / "home", tmp_path / "home")
    publish_broken(EdgeStore(tmp_path / "home"), "house", "broken", with_noise(0.05))
    done = recto(tmp_path / "home", "doctor", "--collection", "broken")
    assert done.returncode == 5
    assert "[ERROR]   content: 2 vectors of another text" in done.stdout
    assert f"Repair: recto index {house / 'book'} --collection broken --rebuild" in done.stdout
    assert "1 error, 0 warnings." in done.stdout


def test_configuration_and_storage_errors(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    done = recto(tmp_path / "home", "doctor", QDRANT_API_KEY=KEY)
    assert done.returncode == 2
    assert "[ERROR]   configuration: COHERE_API_KEY is required but not set" in done.stdout
    assert KEY not in done.stdout + done.stderr
    done = recto(tmp_path / "home", "doctor", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["healthy"] is False
    assert recto(tmp_path / "home", "doctor", "--collection", "a/b").returncode == 4

"""`recto coverage` and `recto calibrate`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from recto.stores.edge.store import EdgeStore
from tests.breaking import publish_broken, without_module
from tests.running import recto


def test_text(house: Path) -> None:
    done = recto(house / "home", "coverage", "--collection", "house")
    assert done.returncode == 0, done.stderr
    assert "By at least one of them:" in done.stdout
    assert "Unreachable: none" in done.stdout
    assert "garden" in done.stdout
    assert "local://docs/docs/module-3-workshop/04-electricity" in done.stdout


def test_json(house: Path) -> None:
    done = recto(house / "home", "coverage", "--collection", "house", "--json", "--fail-under", "99")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["share"] == 1.0
    assert len(data["pages"]) == 13
    assert data["confusion"]["garden"]["garden"] > 10


def test_invalid_threshold(house: Path) -> None:
    assert recto(house / "home", "coverage", "--collection", "house", "--fail-under", "101").returncode == 4


def test_calibrate(house: Path, tmp_path: Path) -> None:
    shutil.copytree(house / "home", tmp_path / "home")
    store = EdgeStore(tmp_path / "home")
    publish_broken(store, "house", "again", without_module)
    assert store.open("again").info.calibration is None
    done = recto(tmp_path / "home", "calibrate", "--collection", "again")
    assert done.returncode == 0, done.stderr
    assert "Scores below 0." in done.stdout
    calibration = store.open("house").info.calibration
    assert calibration is not None
    # The copy has no lexical vectors, which `answerability` needs.
    assert store.open("again").info.calibration == calibration._replace(answerability=None)
    data = json.loads(recto(tmp_path / "home", "calibrate", "--collection", "again", "--json").stdout)
    assert (data["collection"], data["kept"]) == ("again", True)

"""An environment as a user makes it: the built wheel, the example plugin, pytest and two type checkers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from recto._util.files import WriterLock
from tests.running import ROOT

PLUGIN = ROOT / "docs" / "how-to" / "examples" / "recto-demo-plugin"


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
            _uv("build", "--wheel", "--out-dir", str(folder), str(ROOT))
            plugin = shutil.copytree(PLUGIN, folder / "plugin", dirs_exist_ok=True)
            (wheel,) = folder.glob("recto_search-*.whl")
            _uv("venv", "--clear", str(folder / "venv"))
            packages = [str(wheel), str(plugin), "pytest", "mypy", "pyright"]
            _uv("pip", "install", "--python", str(programs / "python"), *packages)
            (folder / "done").touch()
    return programs


def _uv(*arguments: str) -> None:
    done = subprocess.run(
        ["uv", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr

"""Type checkers against the installed wheel."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.installed.conftest import PLUGIN

pytestmark = pytest.mark.slow

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
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if "error:" in line)


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_correct_programs_pass_and_wrong_calls_are_errors(
    installed: Path, tmp_path: Path, checker: Checker
) -> None:
    for project in (PROJECT, PLUGIN / "recto_demo"):
        shutil.copytree(project, tmp_path / project.name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "wrong.py").write_text(WRONG)
    errors = checker(installed, tmp_path).splitlines()
    assert [line for line in errors if "wrong.py:" not in line] == []
    lines = {int(number) for number in re.findall(r"wrong\.py:(\d+)", "\n".join(errors))}
    assert lines == set(range(3, WRONG.count("\n") + 1))

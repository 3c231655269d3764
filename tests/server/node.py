"""Run JavaScript in Node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest


def program(name: str) -> str:
    """Return the path of a program; skip the test if it is not installed, or fail where it must be."""
    path = shutil.which(name)
    if path is None:
        (pytest.fail if os.environ.get("RECTO_NEED_BROWSER") == "1" else pytest.skip)(f"{name} is missing")
    return str(path)


def run_node(directory: Path, script: str, *arguments: str, values: Any = None) -> Any:
    """Run a module in a directory, which finds `values` in values.json; return what it prints as JSON."""
    (directory / "package.json").write_text('{"type": "module"}')
    (directory / "run.js").write_text(script, "utf-8")
    (directory / "values.json").write_text(json.dumps(values), "utf-8")
    command = [program("node"), "run.js", *arguments]
    done = subprocess.run(command, check=False, cwd=directory, capture_output=True, timeout=500)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)

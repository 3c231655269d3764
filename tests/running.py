"""Run the programs as a user does: a fresh process, a home of its own, nothing else configured."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import CONFIGURATION

ROOT = Path(__file__).parent.parent
SAMPLE_DOCS = ROOT / "src" / "recto" / "sample" / "docs"


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the variables of a fresh process: fp32, as in this process, unless `more` says otherwise."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(CONFIGURATION)}
    return {**clean, "RECTO_HOME": str(home), "RECTO_THREADS": "2", "RECTO_PRECISION": "fp32", **more}


def retrieve(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "retrieve.py", *arguments], home, **more)


def recto(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "recto", *arguments], home, **more)


def run(command: list[str], home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(home, **more),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it did not happen in time")

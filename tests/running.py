"""Run the commands with a home of their own and nothing else configured: in this process, or in a new one."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recto.embedders.granite import embedder as granite
from recto.protocols import Embedder
from recto.settings import Precision
from recto.stores.edge.index import EdgeIndex
from tests.conftest import CONFIGURATION, SHARED
from tests.shared_embedder import shared_embedder

Done = subprocess.CompletedProcess[str]
ROOT = Path(__file__).parent.parent
SAMPLE_DOCS = ROOT / "src" / "recto" / "sample" / "docs"
WITH_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes ignore it
from recto.cli.main import main
main()
"""


def copy_home(home: Path, target: Path, *ignored: str) -> Path:
    """Copy a home that other processes may have open: their drafts can be gone when they are copied."""
    names = shutil.ignore_patterns(".atomicwrite*", *ignored)
    return shutil.copytree(home, target, symlinks=True, dirs_exist_ok=True, ignore=names)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the variables of a fresh process: fp32, as in this process, unless `more` says otherwise."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(CONFIGURATION)}
    return {**clean, "RECTO_HOME": str(home), "RECTO_THREADS": "1", "RECTO_PRECISION": "fp32", **more}


def recto(home: Path, *arguments: str, **more: str) -> Done:
    """Run `recto` in this process."""
    return in_process("recto", home, arguments, ROOT, **more)


def retrieve(home: Path, *arguments: str, **more: str) -> Done:
    """Run `retrieve.py` in this process."""
    return in_process("retrieve.py", home, arguments, ROOT, **more)


def retrieve_process(home: Path, *arguments: str, **more: str) -> Done:
    """Run `retrieve.py` as a user does."""
    return run([sys.executable, "retrieve.py", *arguments], home, **more)


def in_process(
    name: str,
    home: Path,
    arguments: Sequence[str],
    directory: Path = ROOT,
    stdin: bytes = b"",
    /,
    **more: str,
) -> Done:
    """Call a command's own runner with the variables, directory and streams of a new process."""
    from recto.cli import run as run_command
    from recto.cli.main import recto
    from recto.cli.retrieve import retrieve

    command = {"recto": recto, "retrieve.py": retrieve}[name]
    call = partial(run_command, command, list(arguments), name)
    return _call([name, *arguments], call, home, directory, stdin, more)


def python_in_process(code: str, home: Path, directory: Path, **more: str) -> Done:
    """Run a piece of Python with the variables, directory and streams of a new process."""

    def call() -> int:
        exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
        return 0

    return _call(["-c", code], call, home, directory, b"", more)


def _call(
    words: list[str], call: Callable[[], int], home: Path, directory: Path, stdin: bytes, more: dict[str, str]
) -> Done:
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        variables = environment(home, **more)
        for variable in set(os.environ) - set(variables):
            patch.delenv(variable)
        for variable, value in variables.items():
            patch.setenv(variable, value)
        patch.chdir(directory)
        patch.setattr(granite, "built_in_embedder", reuse_embedder)
        patch.setattr(EdgeIndex, "leak_on_exit", lambda _: None)  # this process goes on
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        code = copy_context().run(call)
    stdout, stderr = (stream.buffer.getvalue().decode("utf-8") for stream in streams)
    assert "Traceback" not in stderr, stderr
    return subprocess.CompletedProcess(words, code, stdout, stderr)


def reuse_embedder(_: Path, threads: int, precision: Precision, **more: object) -> Embedder:
    """Return the embedder of this process, in place of `built_in_embedder`."""
    return shared_embedder(SHARED, threads, precision)


def run(command: list[str] | str, home: Path, directory: str | Path = ROOT, **more: str) -> Done:
    """Run a program, or a line in a shell, in a new process."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "encoding": "utf-8"}
    options = {"shell": isinstance(command, str), "cwd": directory, "timeout": 300, **pipes}
    done = subprocess.run(command, env=environment(home, **more), check=False, **options)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def start(home: Path, *arguments: str, directory: str | Path = ROOT, **more: str) -> subprocess.Popen[str]:
    """Start `recto` in a new process, which Ctrl-C interrupts; both of its outputs come through one pipe."""
    command = [sys.executable, "-c", WITH_CTRL_C, *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=directory, env=environment(home, **more), **pipes)


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it did not happen in time")

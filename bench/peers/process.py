"""Start the runners of the systems and exchange JSON lines with them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import IO, Any, Self

from bench.peers.environments import Environment
from bench.peers.listing import System


class RunnerError(Exception):
    """A system failed; the message is its own."""


@dataclass(frozen=True, slots=True)
class Cold:
    """The result of a fresh process: seconds until its answer, CPU seconds, and the found ids."""

    wall: float
    cpu: float
    found: list[str]


class RunnerProcess:
    """A runner process that executes one command after the other."""

    def __init__(self, system: System, environment: Environment, scratch: Path) -> None:
        self._system = system
        # Open as long as the process runs; `close` closes both.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", dir=scratch)  # noqa: SIM115
        self._process = _start(system, environment, scratch, self._errors, "serve")

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        """Send a command and wait for its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RunnerError(_last_message(self._system, self._errors)) from None
        line = self._process.stdout.readline()
        if not line:
            raise RunnerError(_last_message(self._system, self._errors))
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RunnerError(answer["error"])
        return answer

    def close(self) -> None:
        """Ask the runner to exit; kill it if it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write('{"do": "exit"}\n')
            self._process.stdin.close()
            self._process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the runner."""
        self.close()


def cold(system: System, environment: Environment, scratch: Path, arguments: Sequence[str]) -> Cold:
    """Start a process that answers one query, and measure it from the outside."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", dir=scratch) as errors:
        began = perf_counter()
        process = _start(system, environment, scratch, errors, "cold", *arguments)
        assert process.stdin is not None
        assert process.stdout is not None
        # A library may print lines before the answer.
        answer = next((line for line in iter(process.stdout.readline, "") if line.startswith("[")), "")
        wall = perf_counter() - began
        process.stdin.close()
        process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if not answer:
            raise RunnerError(_last_message(system, errors))
    return Cold(wall, used.ru_utime + used.ru_stime, json.loads(answer))


def _start(
    system: System, environment: Environment, scratch: Path, errors: IO[str], *arguments: str
) -> subprocess.Popen[str]:
    runner = f"bench.peers.runners.{system.runner}"
    return subprocess.Popen(
        [str(environment.python), "-m", runner, *system.arguments, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        encoding="utf-8",
        cwd=scratch,
        env=environment.variables(),
    )


def _last_message(system: System, errors: IO[str]) -> str:
    errors.seek(0)
    lines = errors.read().strip().splitlines()
    return f"{system.name} ended: {lines[-1] if lines else 'no message'}"

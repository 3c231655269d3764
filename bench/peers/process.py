"""The driver's side of the conversation with a runner."""

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
from typing import Any, Self

from bench.peers.environments import Environment
from bench.peers.listing import System

_TAIL = 1500


class Refused(Exception):
    """A system could not do what it was asked; the message is its own."""


@dataclass(frozen=True, slots=True)
class Cold:
    """What a fresh process took: seconds until its answer, seconds of the processor, and the ids it found."""

    wall: float
    cpu: float
    found: list[str]


class Conversation:
    """A runner that is asked one thing after the other."""

    def __init__(self, system: System, environment: Environment, scratch: Path) -> None:
        self._system = system
        # Open as long as the process is; `close` closes both.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", dir=scratch)  # noqa: SIM115
        self._process = subprocess.Popen(
            _command(system, environment, "talk"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            cwd=scratch,
            env=environment.variables(),
        )

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        """Give an order and wait for its answer."""
        self.begin(do, **order)
        return self.end()

    def begin(self, do: str, **order: Any) -> None:
        """Give an order; others may be given theirs before this one is answered."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Refused(self._last_words()) from None

    def end(self) -> dict[str, Any]:
        """Wait for an answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Refused(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def close(self) -> None:
        """Say goodbye; whoever does not leave is shown out."""
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
        """Use it in a `with` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        said = self._errors.read()[-_TAIL:].strip()
        return f"{self._system.name} ended: {said.splitlines()[-1] if said else 'it said nothing'}"


def cold(system: System, environment: Environment, scratch: Path, arguments: Sequence[str]) -> Cold:
    """Start a process that answers one question, and measure it from the outside."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", dir=scratch) as errors:
        began = perf_counter()
        process = subprocess.Popen(
            _command(system, environment, "cold", *arguments),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=scratch,
            env=environment.variables(),
        )
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        # A library may print lines of its own before the answer.
        answer = next((line for line in lines if line.startswith("[")), "")
        wall = perf_counter() - began
        process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if not answer:
            errors.seek(0)
            said = errors.read()[-_TAIL:].strip()
            raise Refused(said.splitlines()[-1] if said else f"{system.name} gave no answer")
    return Cold(wall, used.ru_utime + used.ru_stime, json.loads(answer))


def _command(system: System, environment: Environment, *arguments: str) -> list[str]:
    return [
        str(environment.python),
        "-m",
        f"bench.peers.runners.{system.runner}",
        *system.arguments,
        *arguments,
    ]

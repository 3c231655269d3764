"""Run `recto shell` from a pipe, or a command in a pseudo-terminal: press keys, and read what is shown."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, Self

from tests.running import ROOT, Done, environment, in_process

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[=>()][0B]?|\x1b\][^\x07]*\x07")
_PROGRAM = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C then sends a signal
sys.argv = ["recto", *sys.argv[1:]]
from recto.cli.main import main
main()
"""
CTRL_C, CTRL_D, TAB, UP = "\x03", "\x04", "\t", "\x1b[A"


def piped(home: Path, lines: str | bytes, *arguments: str, **more: str) -> Done:
    """Run `recto shell` with lines from a pipe."""
    stdin = lines if isinstance(lines, bytes) else lines.encode()
    return in_process("recto", home, ["shell", *arguments], ROOT, stdin, **more)


class Terminal:
    """`recto shell`, or another command, in its own pseudo-terminal."""

    def __init__(
        self,
        home: Path,
        *arguments: str,
        command: str = "shell",
        columns: str = "80",
        directory: str | Path = ROOT,
        **more: str,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, int(columns), 0, 0))
        self._theirs = theirs
        self.initial_state = self.state()
        self.raw = ""
        self._seen = 0
        clean = environment(home)
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            clean.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, command, *arguments],
            cwd=directory,
            env=clean | {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **more},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._theirs)
        os.close(self._ours)

    def state(self) -> list[Any]:
        """Return the attributes of the terminal."""
        return termios.tcgetattr(self._theirs)

    @property
    def text(self) -> str:
        """The output without escape sequences."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def see(self, expected: str, seconds: float = 60) -> str:
        """Wait until a text is shown, and return the output since the last call."""
        deadline = time.monotonic() + seconds
        while (start := self.text.find(expected, self._seen)) < 0:
            assert time.monotonic() < deadline, f"{expected!r} is not shown:\n{self.text[self._seen :]}"
            self.read()
        since, self._seen = self._seen, start + len(expected)
        return self.text[since : self._seen]

    def end(self, seconds: float = 25) -> int:
        """Wait until the command ends, and return its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
            self.read()
        self.read()
        return self.process.wait()

    def read(self) -> None:
        """Read new output, if there is any."""
        if select.select([self._ours], [], [], 0.2)[0]:
            self.raw += os.read(self._ours, 65536).decode("utf-8", "replace")

"""Standard input and output for the protocol alone, without the threads that the SDK's own would pass every message to."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import sys
from collections.abc import AsyncIterator
from typing import IO

from anyio import wait_writable

_LONGEST_MESSAGE = 64 << 20
_LONE_SURROGATE = re.compile(r"""\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})""")


class Outbox:
    """Standard output; whatever else is printed goes to standard error."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._descriptor = os.dup(1)
        os.dup2(2, 1)

    async def write(self, text: str) -> None:
        """Write all of a message."""
        rest = memoryview(text.encode())
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # one socket for both directions: waiting for input has made it one that does not block
                await wait_writable(self._descriptor)

    async def flush(self) -> None:
        """Nothing is held back."""


def inbox() -> AsyncIterator[str] | None:
    """Return standard input as lines, or None where the event loop cannot wait for it: a terminal, a file, another system."""
    if os.name != "posix" or not _is_pipe(os.fstat(0).st_mode):
        return None
    descriptor = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # what we start must not read the protocol's messages
    os.close(nothing)
    return _lines(os.fdopen(descriptor, "rb", buffering=0))


async def _lines(pipe: IO[bytes]) -> AsyncIterator[str]:
    reader = asyncio.StreamReader(limit=_LONGEST_MESSAGE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        while line := await reader.readline():
            yield whole_characters(line.decode("utf-8", "replace"))
    finally:
        transport.close()


def whole_characters(line: str) -> str:
    """Replace halves of characters in a message: JSON can hold them, the SDK would drop the request without an answer.

    A program that counts UTF-16, as those in JavaScript do, leaves one wherever it cuts a text in the middle of an emoji.
    """
    return _LONE_SURROGATE.sub(lambda found: r"\ufffd" if found[1] else found[0], line) if "\\u" in line else line


def _is_pipe(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)

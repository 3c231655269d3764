"""The lines of earlier sessions, in a file that only its owner reads; where it cannot be kept, it is not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import History

_LINES = 2000


class OwnHistory(History):
    """One line of the file for each line that was typed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Yield the lines, newest first."""
        try:
            text = self._path.read_text("utf-8", "replace")
        except OSError:
            return
        yield from reversed(text.split("\n")[:-1][-_LINES:])

    def store_string(self, string: str) -> None:
        """Add a line; several that were pasted become one."""
        with suppress(OSError):  # a home that cannot be written to costs the history, not the session
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as file:
                file.write(" ".join(string.split()) + "\n")

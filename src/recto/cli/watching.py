"""Notice that a book's files have changed, by looking at them now and then: no service, no limits on watches, any file system."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import sleep

from recto.book.tree import SKIPPED
from recto.errors import InvalidArgument

_TEXT = frozenset({".md", ".mdx"})
_SETTINGS = frozenset({".json", ".yml", ".yaml", ".toml", ".js", ".ts", ".mjs", ".cjs", ".mts", ".cts"})
_QUIET = 0.3  # seconds without a change after which an author has finished saving

State = dict[str, tuple[int, int]]


class Tree:
    """The files of a book, those that they include, and the settings of its site in the directory above."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise InvalidArgument(f"{path} does not exist", hint="Give the directory that holds the book's Markdown files.")
        self.root = path.resolve()
        self._included: tuple[str, ...] = ()

    def state(self) -> State:
        """Return what changes when a file does."""
        found: State = {}
        for file in self._files():
            try:
                status = os.stat(file)
            except OSError:  # it went away meanwhile
                continue
            found[file] = (status.st_mtime_ns, status.st_size)
        return found

    def include(self, files: Mapping[Path, tuple[int, int]]) -> State:
        """Watch the files that pages include, too, wherever they lie; return the state in which they were read."""
        self._included = tuple(map(str, files))
        return {str(file): seen for file, seen in files.items()}

    def wait_for_change(self, before: State, interval: float) -> None:
        """Return when the files differ from a state and have come to rest."""
        while (now := self.state()) == before:
            sleep(interval)
        while True:
            sleep(_QUIET)
            if now == (now := self.state()):
                return

    def _files(self) -> Iterator[str]:
        if self.root.is_file():
            yield str(self.root)
        else:
            for folder, names, files in os.walk(self.root):
                names[:] = [name for name in names if name not in SKIPPED and not name.startswith(".")]
                yield from (os.path.join(folder, name) for name in files if _ending(name) in _TEXT | _SETTINGS)  # noqa: PTH118 - many of them
        for entry in os.scandir(self.root.parent):
            if _ending(entry.name) in _SETTINGS:
                yield entry.path
        yield from self._included


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 - called for every file

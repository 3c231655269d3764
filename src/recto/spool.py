"""Passages set aside between reading a book and embedding it: in memory while they are few, on disk beyond."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from recto.book.chunker import Passage
from recto.stores.payload import from_payload, to_payload

_IN_MEMORY = 4 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """A passage of the new index; `stays` says that the current index holds the very same chunk."""

    passage: Passage
    stays: bool
    tokens: int = 0


class Spool:
    """Entries in the order of the book; nothing of it outlives the `with` block."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY, mode="w+", encoding="utf-8", newline="\n")  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Drop everything."""
        self._file.close()

    def append(self, entry: Entry) -> None:
        """Set a passage aside."""
        chunk = entry.passage.chunk
        json.dump((chunk.id, to_payload(chunk), entry.passage.embedded, entry.stays, entry.tokens), self._file)
        self._file.write("\n")

    def __iter__(self) -> Iterator[Entry]:
        """Yield what was set aside, from the beginning."""
        self._file.seek(0)
        for line in self._file:
            id, payload, embedded, stays, tokens = json.loads(line)
            yield Entry(Passage(from_payload(id, payload), embedded), stays, tokens)

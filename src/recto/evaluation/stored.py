"""What is said of a stored passage: its name for people, and the text that its vector was made of."""

from __future__ import annotations

import hashlib

from recto.types import HEADING_SEPARATOR, Chunk


def place(chunk: Chunk) -> str:
    """Name a passage for people."""
    return f"{chunk.page_url or chunk.source or chunk.id} (passage {chunk.chunk_index})"


def embedded_text(chunk: Chunk) -> str | None:
    """Return the text that was embedded for one of Recto's chunks: the one that its hash was made of, or None if that is another.

    A heading path that is too long for the model's window was shortened: outer headings first, then the last one by halves.
    """
    headings = chunk.headings
    paths = [HEADING_SEPARATOR.join(headings[start:]) for start in range(max(len(headings), 1))]
    while len(paths[-1]) > 1:
        paths.append(paths[-1][: len(paths[-1]) // 2])
    candidates = (f"{path}\n\n{chunk.text}" for path in paths)
    return next((text for text in candidates if hashlib.sha256(text.encode()).hexdigest() == chunk.content_hash), None)

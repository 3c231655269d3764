"""Write the files of a book."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a directory, and return the directory."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def write_pages(root: Path, *names: str) -> Path:
    """Write pages with a heading and a paragraph below a directory, and return the directory."""
    return write(root, dict.fromkeys(names, "# A page\n\nText.\n"))

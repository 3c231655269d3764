"""Weights made ready for a graph once, and kept in a file that later starts map into memory instead of making them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto._util.files import checked_sha256, replace_bytes
from recto.embedders.onnx import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

Arrays = Mapping[str, "NDArray[Any]"]

_ALIGNMENT = 1 << 16  # Windows maps files from multiples of this


def prepared(folder: Path, name: str, sha256: str, make: Callable[[], Arrays]) -> Weights:
    """Return the weights in a file of the folder, made anew if it is missing or damaged; in memory where it cannot be kept."""
    path, verdict = folder / name, folder / f"{name}.json"
    with suppress(OSError):
        if checked_sha256(path, verdict) == sha256:
            return Weights(folder)
    arrays = make()
    with suppress(
        OSError
    ):  # a home that is missing, full or not ours costs this work at each start, nothing more
        folder.mkdir(exist_ok=True)
        replace_bytes(path, _parts(arrays))
        if checked_sha256(path, verdict) == sha256:
            return Weights(folder)
    return Weights(arrays=arrays)


def layout(arrays: Arrays) -> dict[str, int]:
    """Return where each array begins in the file."""
    places: dict[str, int] = {}
    end = 0
    for name in sorted(arrays):
        places[name] = end + -end % _ALIGNMENT
        end = places[name] + arrays[name].nbytes
    return places


def _parts(arrays: Arrays) -> Iterator[bytes]:
    end = 0
    for name, start in layout(arrays).items():
        yield bytes(start - end)
        yield arrays[name].tobytes()
        end = start + arrays[name].nbytes

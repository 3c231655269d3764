"""What a generation must look like on disk; the engine itself does not notice when it does not."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recto.atomic import replace_text
from recto.errors import IndexDamaged
from recto.stores.edge.layout import CollectionDirectory
from recto.stores.edge.sparse import digest
from recto.types import Calibration, Fingerprint

FORMAT = 1
LEXICON = "lexicon.bin"
"""The vocabulary of a generation, in its directory."""
_ALWAYS_READ = 32 << 20  # bytes on disk; a smaller index is compared whole at every start
_SMALL_FILE = 2 << 20  # bytes; the engine touches most files up to this size whenever it opens an index, and changes nothing


@dataclass(frozen=True, slots=True)
class Manifest:
    """One generation: how many chunks, made how, in which files with which digests."""

    chunks: int
    engine: str
    fingerprint: Fingerprint
    files: dict[str, str]

    def to_text(self) -> str:
        """Return the manifest as JSON that carries its own checksum."""
        body = {
            "format": FORMAT,
            "chunks": self.chunks,
            "engine": self.engine,
            "fingerprint": self.fingerprint.to_dict(),
            "files": self.files,
        }
        return json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n"


def digest_files(directory: Path) -> dict[str, str]:
    """Digest every file of a generation, by its path within."""
    return {path.relative_to(directory).as_posix(): digest(path) for path in sorted(directory.rglob("*")) if path.is_file()}


def read_manifest(path: Path) -> Manifest:
    """Read a manifest that is whole, or say that the generation is damaged."""
    try:
        body = json.loads(path.read_text("utf-8"))
        checksum = body.pop("checksum")
        if body["format"] != FORMAT:
            raise IndexDamaged(
                f"{path} has format {body['format']}, this version reads {FORMAT}", hint="Index the book again with `recto index`."
            )
        if checksum != _checksum(body):
            raise ValueError("its checksum is wrong")
        return Manifest(body["chunks"], body["engine"], Fingerprint.from_dict(body["fingerprint"]), body["files"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IndexDamaged(f"{path} is missing or damaged ({error})") from error


def write_notes(path: Path, calibration: Calibration) -> None:
    """Write what was measured of a generation, with its own checksum."""
    body = {"format": FORMAT, "calibration": calibration.to_dict()}
    replace_text(path, json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n")


def read_notes(path: Path) -> Calibration | None:
    """Read what was measured of a generation; what is missing or damaged was not measured."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        body = json.loads(path.read_text("utf-8"))
        if body.pop("checksum") == _checksum(body) and body["format"] == FORMAT:
            return Calibration.from_dict(body["calibration"])
    return None


def verify_files(directory: Path, manifest: Manifest, seen: Path) -> None:
    """Compare every file with the manifest.

    A large index would take long to read at each start: there, a large file that was compared before and has kept its
    size and time of change since is trusted.
    """
    large = _large_files(directory, manifest)
    trusted = _read_seen(seen) if large else {}
    for name, expected in manifest.files.items():
        if name in large and trusted.get(name) == large[name]:
            continue
        if digest(directory / name) != expected:
            raise IndexDamaged(f"{directory / name} is not what the manifest says")
    if trusted != large:
        _remember(large, seen)


def note_seen(directory: Path, manifest: Manifest, seen: Path) -> None:
    """Trust the files of a generation whose digests were taken a moment ago: the first to open it has no need to read them again."""
    if large := _large_files(directory, manifest):
        _remember(large, seen)


def _remember(large: dict[str, list[int]], seen: Path) -> None:
    with suppress(OSError):  # a home that cannot be written costs a comparison at each start, nothing more
        replace_text(seen, json.dumps(large))


def _large_files(directory: Path, manifest: Manifest) -> dict[str, list[int]]:
    """Return size and time of change of the files that are worth trusting; of an index that is small as a whole there are none."""
    found: dict[str, list[int]] = {}
    on_disk = 0
    for name in manifest.files:
        try:
            status = (directory / name).stat()
        except OSError as error:
            raise IndexDamaged(f"{directory / name} is missing") from error
        if status.st_size > _SMALL_FILE:
            found[name] = [status.st_size, status.st_mtime_ns]
        on_disk += getattr(status, "st_blocks", 0) * 512 or status.st_size
    return found if on_disk > _ALWAYS_READ else {}


def is_whole(directory: CollectionDirectory, generation: str) -> bool:
    """Whether a generation is what its manifest says."""
    try:
        verify_files(directory.generation(generation), read_manifest(directory.manifest(generation)), directory.seen(generation))
    except IndexDamaged:
        return False
    return True


def _read_seen(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        seen = json.loads(path.read_text("utf-8"))
        if isinstance(seen, dict):
            return seen
    return {}


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

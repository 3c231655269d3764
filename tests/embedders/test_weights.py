"""The weight file is written once, checked, mapped by later starts, and written again if it is damaged."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import numpy as np
import pytest

from recto.embedders.granite.embedder import MODELS, VARIANTS, built_in_embedder, remove_damaged_weights
from recto.embedders.granite.weights import Arrays, cached_weights, layout
from recto.protocols import Embedder
from recto.settings import Precision

ARRAYS: Arrays = {
    "b": np.arange(5, dtype=np.float32),
    "a": np.arange(70_000, dtype=np.int8),
    "c": np.array(3.5, np.float32),
}


def content() -> bytes:
    whole = bytearray()
    for name, start in layout(ARRAYS).items():
        whole += bytes(start - len(whole)) + ARRAYS[name].tobytes()
    return bytes(whole)


HASH = hashlib.sha256(content()).hexdigest()


class Maker:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> Arrays:
        self.made += 1
        return ARRAYS


def test_later_starts_use_the_file(tmp_path: Path) -> None:
    make = Maker()
    for _ in range(3):
        assert cached_weights(tmp_path, "w", HASH, make).folder == tmp_path
    assert make.made == 1
    assert (tmp_path / "w").read_bytes() == content()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w", "w.json"]
    assert layout(ARRAYS) == {"a": 0, "b": 2 * 65_536, "c": 3 * 65_536}, (
        "Windows maps from multiples of 64 KiB"
    )


@pytest.mark.parametrize("damage", [b"", b"short", content()[:-1] + b"\xff"])
def test_a_damaged_file_is_written_again(tmp_path: Path, damage: bytes) -> None:
    make = Maker()
    cached_weights(tmp_path, "w", HASH, make)
    (tmp_path / "w").write_bytes(damage)
    assert cached_weights(tmp_path, "w", HASH, make).folder == tmp_path
    assert make.made == 2
    assert (tmp_path / "w").read_bytes() == content()


def test_weights_stay_in_memory_if_no_correct_file_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "no" / "home"):
        weights = cached_weights(folder, "w", HASH, Maker())
        assert weights.folder is None
        assert weights.arrays is ARRAYS
    assert not (tmp_path / "no").exists()
    assert cached_weights(tmp_path, "w", "another hash", Maker()).arrays is ARRAYS


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", VARIANTS)
def test_the_hash_of_the_weight_file(shared_home: Path, precision: Precision, model: str) -> None:
    built_in_embedder(shared_home, 1, precision, model=model).warm_up()
    variant = MODELS[model].variants[precision]
    with (shared_home / "cache" / variant.weights).open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == variant.sha256


def test_the_vectors_are_the_same_without_a_file(tmp_path: Path, embedder: Embedder) -> None:
    in_memory = built_in_embedder(tmp_path / "no" / "home", 2)
    assert in_memory.embed_query("What is ROS 2?") == pytest.approx(
        embedder.embed_query("What is ROS 2?"), abs=1e-6
    )


@pytest.mark.parametrize("days", [2, -2], ids=["a day later", "after the clock was set back"])
def test_a_file_that_rots_on_the_disk_is_written_again_within_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    make = Maker()
    cached_weights(tmp_path, "w", HASH, make)
    file = tmp_path / "w"
    status = file.stat()
    with file.open("r+b") as damaged:  # size, time and inode stay
        damaged.write(b"\x01\x02\x03")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    cached_weights(tmp_path, "w", HASH, make)
    assert make.made == 1, "trusted for a day"
    later = time.time() + days * 86_400
    monkeypatch.setattr("recto._util.files.time.time", lambda: later)
    cached_weights(tmp_path, "w", HASH, make)
    assert make.made == 2
    assert file.read_bytes() == content()


def test_damaged_weights_are_removed(tmp_path: Path) -> None:
    (tmp_path / VARIANTS["int8"].weights).parent.mkdir()
    (tmp_path / VARIANTS["int8"].weights).write_bytes(b"damaged")
    assert remove_damaged_weights(tmp_path) == [str(VARIANTS["int8"].weights)]
    assert not (tmp_path / VARIANTS["int8"].weights).exists()
    assert remove_damaged_weights(tmp_path) == []

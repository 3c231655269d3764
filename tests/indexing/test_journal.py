"""The journal returns what was written, and detects damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recto.indexing.journal import Journal
from recto.testing.parts import EMBEDDER, vector
from recto.types.index import EmbedderFingerprint

BATCHES = [["a1", "b2"], ["c3"], ["d4", "e5", "f6"]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "books.vectors"


def opened(path: Path, embedder: EmbedderFingerprint = EMBEDDER) -> Journal:
    journal = Journal(path, embedder)
    journal.load()
    return journal


def written(path: Path) -> Journal:
    journal = opened(path)
    for number, names in enumerate(BATCHES):
        journal.add(names, [vector(10 * number + index) for index in range(len(names))])
    return journal


def stored(path: Path) -> list[str]:
    journal = opened(path)
    return [name for names in BATCHES for name in names if name in journal]


def test_written_vectors_are_read(path: Path) -> None:
    written(path)
    restored = opened(path).vectors(["e5", "00", "a1"])
    assert list(restored) == ["a1", "e5"]
    assert restored["e5"] == pytest.approx(vector(21), abs=1e-6)
    assert stored(path) == ["a1", "b2", "c3", "d4", "e5", "f6"]
    for _ in range(2):
        opened(path).clear()
        assert not path.exists()


def test_a_truncated_file_keeps_complete_batches(path: Path) -> None:
    written(path)
    data = path.read_bytes()
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        assert stored(path) in ([], ["a1", "b2"], ["a1", "b2", "c3"])
    path.write_bytes(data[:-1])
    opened(path).add(["07"], [vector(7)])  # a new batch replaces the damaged one
    assert stored(path) == ["a1", "b2", "c3"]
    assert opened(path).vectors(["07"])["07"] == pytest.approx(vector(7), abs=1e-6)


def test_every_flipped_byte_is_detected(path: Path) -> None:
    written(path)
    data = path.read_bytes()
    whole = stored(path)
    for place in range(0, len(data), 5):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        restored = stored(path)
        assert restored == whole[: len(restored)]
        assert len(restored) < len(whole)


def test_vectors_of_another_model_are_ignored(path: Path) -> None:
    written(path)
    other = opened(path, replace(EMBEDDER, revision="another"))
    assert "a1" not in other
    other.add(["a1"], [vector(3)])
    assert stored(path) == []


def test_vectors_of_another_precision_are_used(path: Path) -> None:
    one, other = (replace(EMBEDDER, variant=variant) for variant in ("int8-weights-fp32", "int8-4"))
    Journal(path, one).add(["a1"], [vector(3)])
    opened(path, other).add(["b2"], [vector(4)])
    restored = opened(path, one).vectors(["a1", "b2"])
    for name, number in (("a1", 3), ("b2", 4)):
        assert restored[name] == pytest.approx(vector(number), abs=1e-6)


@pytest.mark.parametrize(
    "header",
    ["", "[]", "1", "null", "{}", '["recto-journal-2"]', '["recto-journal-1", 1, 2, 3, "x"]', "\xff"],
)
def test_an_invalid_header(path: Path, header: str) -> None:
    path.parent.mkdir()
    path.write_text(header + "\n", "latin-1")
    assert stored(path) == []

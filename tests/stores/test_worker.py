"""The worker process: the check before publishing, and no files after a failure."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from recto.stores.edge import engine
from recto.stores.edge.build import find_fault, send
from recto.types.search import Vector
from tests.running import wait_until

COUNT = 64
SAMPLES = [
    (f"00000000-0000-5000-8000-{number:012d}", [math.cos(number), math.sin(number), 0.1 * number])
    for number in range(16)
]


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Any]:
    created = engine.create_shard(tmp_path / "shard", 3)
    others = [
        (f"00000000-0000-5000-8000-9{number:011d}", [1.0, 0.3 * number, -9.0]) for number in range(COUNT)
    ]
    engine.upsert(created, [(id, vector, None, {}) for id, vector in (*SAMPLES, *others)])
    yield created
    created.close()


class IncompleteShard:
    """A shard whose first HNSW searches find nothing."""

    def __init__(self, shard: Any, missed: int) -> None:
        self._shard = shard
        self._missed = missed

    def query(self, request: Any) -> Any:
        exact = request.params is not None and request.params.exact
        self._missed -= not exact
        return self._shard.query(request) if exact or self._missed < 0 else []


def fault(shard: Any, samples: list[tuple[str, Vector]]) -> str:
    return find_fault(shard, samples, COUNT)


def test_an_intact_index_has_no_fault(shard: Any) -> None:
    assert fault(shard, SAMPLES) == ""
    assert fault(shard, []) == ""


def test_a_vector_of_another_chunk_is_a_fault(shard: Any) -> None:
    swapped = [*SAMPLES[:-1], (SAMPLES[-1][0], [1.0, 0.0, -9.0])]
    assert fault(shard, swapped) == f"chunk {SAMPLES[-1][0]} is not found by its own vector"


@pytest.mark.parametrize(
    ("missed", "message"), [(1, ""), (4, ""), (5, "5 of 16 chunks are not found by their own vectors")]
)
def test_hnsw_may_miss_a_few_chunks(shard: Any, missed: int, message: str) -> None:
    assert fault(IncompleteShard(shard, missed), SAMPLES) == message


def test_similar_versions_of_a_page_count_as_found(shard: Any) -> None:
    class NeighbourShard(IncompleteShard):
        """A shard whose HNSW searches find a neighbour instead of the chunk."""

        def query(self, request: Any) -> Any:
            hits = self._shard.query(request)
            return hits if request.params is not None and request.params.exact else hits[1:2]

    versions = [
        (f"00000000-0000-5000-8000-8{number:011d}", [1.0, 1.0, 1.0 + number / 20]) for number in range(8)
    ]
    engine.upsert(shard, [(id, vector, None, {}) for id, vector in versions])
    assert fault(NeighbourShard(shard, 0), versions) == ""
    assert (
        fault(NeighbourShard(shard, 0), SAMPLES[:1] * 3) == "3 of 3 chunks are not found by their own vectors"
    )


@pytest.mark.parametrize("removed", [True, False], ids=["its directory is removed", "its writer is killed"])
@pytest.mark.parametrize("finish", [True, False], ids=["told to finish", "not told to finish"])
def test_an_orphaned_worker_leaves_no_files(tmp_path: Path, removed: bool, finish: bool) -> None:
    """The worker of a killed writer runs for a moment, while the next writer removes its files."""
    draft = tmp_path / "building-1"
    command = [sys.executable, "-P", "-m", "recto.stores.edge.build", str(draft), "3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        wait_until(lambda: any("page_key" in path.name for path in draft.glob("segments/*/payload_index/*")))
        process.stdout.close()
        if removed:
            shutil.rmtree(draft, ignore_errors=True)
        with suppress(BrokenPipeError):
            send(process.stdin, [(id, {}) for id, _ in SAMPLES], [vector for _, vector in SAMPLES])
            if finish:
                send(process.stdin, [], [])
            process.stdin.close()
        assert process.wait(60) == 1
    assert not draft.exists()

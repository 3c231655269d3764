"""Texts side by side: the same numbers in the same order whatever the number of workers, and nothing lost when one fails."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recto.embedders.granite.embedder import FINGERPRINT, granite_embedder
from recto.embedders.onnx import LocalEmbedder, Sessions, side_by_side
from recto.errors import ConfigurationError, EmbeddingError

TEXTS = [
    f"{word} " * length
    for length, word in (
        (150, "gear"),
        (3, "arm"),
        (90, "leg"),
        (300, "foot"),
        (3, "hand"),
        (40, "eye"),
        (150, "rail"),
    )
]


def test_the_number_of_workers_changes_no_digit(shared_home: Path) -> None:
    alone, many = granite_embedder(shared_home, 1), granite_embedder(shared_home, 3)
    assert alone.embed_documents(TEXTS) == many.embed_documents(TEXTS)
    assert alone.embed_queries(TEXTS) == many.embed_queries(TEXTS)


def test_progress_is_told_by_the_callers_thread_and_ends_with_all(shared_home: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    granite_embedder(shared_home, 2).embed_documents(
        TEXTS, lambda done, total: seen.append((done, total, threading.get_ident()))
    )
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][:2] == (len(TEXTS), len(TEXTS))
    assert {thread for _, _, thread in seen} == {threading.get_ident()}


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_job_is_done_once_and_handed_over_with_its_result(workers: int) -> None:
    found: dict[int, int] = {}
    side_by_side(range(40), lambda job: job * job, workers, found.__setitem__)
    assert found == {job: job * job for job in range(40)}


def test_jobs_really_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=60)
    side_by_side([1, 2], lambda _: both.wait(), 2, lambda job, result: None)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_is_raised_and_what_was_not_begun_is_dropped(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def work(job: int) -> int:
        begun.append(job)
        if job == 0:
            raise EmbeddingError("no")
        held.wait(60)
        return job

    usual = ThreadPoolExecutor.shutdown

    def shutdown(pool: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:
        usual(pool, wait=False, cancel_futures=cancel_futures)
        held.set()
        usual(pool, wait=wait)

    held = threading.Event()
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shutdown)
    with pytest.raises(EmbeddingError, match="no"):
        side_by_side(range(500), work, workers, lambda job, result: None)
    assert len(begun) < 500
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("recto-embedder")]


def test_a_failure_of_progress_is_raised_too() -> None:
    def fail(job: int, result: int) -> None:
        raise ValueError("the listener has gone")

    with pytest.raises(ValueError, match="listener"):
        side_by_side(range(50), lambda job: job, 2, fail)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("recto-embedder")]


@pytest.mark.skipif(os.name != "posix", reason="signals are sent to a thread")
def test_an_interruption_ends_it() -> None:
    begun: list[int] = []

    def work(job: int) -> int:
        begun.append(job)
        if job == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            interrupted.wait(60)
        return job

    interrupted = threading.Event()
    threading.Timer(0.5, interrupted.set).start()
    with pytest.raises(KeyboardInterrupt):
        side_by_side(range(100_000), work, 2, lambda job, result: None)
    assert len(begun) < 100_000


def test_a_models_failure_in_a_worker_becomes_ours(shared_home: Path) -> None:
    real = granite_embedder(shared_home, 2)._loaded()

    def broken(rows: object) -> Sequence[Sequence[float]]:
        raise RuntimeError("out of memory")

    embedder = LocalEmbedder(FINGERPRINT, 512, lambda: real, Sessions(lambda _: broken, 2), threads=2)
    for texts in (TEXTS, TEXTS[:1]):
        with pytest.raises(EmbeddingError, match="out of memory"):
            embedder.embed_documents(texts)


def test_each_use_opens_one_session_when_it_is_needed() -> None:
    opened: list[int] = []

    def open(threads: int) -> object:
        opened.append(threads)
        return lambda rows: None

    sessions = Sessions(open, 4)  # type: ignore[arg-type]
    assert opened == []
    assert sessions.passages() is sessions.with_collection()
    assert sessions.with_collection() is sessions.with_collection()
    assert sessions.alone() is sessions.alone()
    assert opened == [1, 4]
    single = Sessions(open, 1)  # type: ignore[arg-type]
    assert single.alone() is single.with_collection()
    assert opened == [1, 4, 1]


def test_a_session_that_cannot_be_opened_is_tried_again() -> None:
    answers = [ConfigurationError("not yet"), None]

    def open(threads: int) -> object:
        answer = answers.pop(0)
        if answer:
            raise answer
        return lambda rows: None

    sessions = Sessions(open, 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        sessions.alone()
    assert sessions.alone()([]) is None

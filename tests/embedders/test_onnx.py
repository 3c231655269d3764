"""Parallel embedding, sessions, and the features of the processor."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from recto.embedders import onnx
from recto.embedders.granite.embedder import FINGERPRINT, built_in_embedder
from recto.embedders.onnx import LocalEmbedder, Sessions
from recto.errors import ConfigurationError, EmbeddingError

LENGTHS = {"gear": 50, "arm": 3, "leg": 30, "foot": 100, "hand": 3, "eye": 13, "rail": 50}
TEXTS = [f"{word} " * length for word, length in LENGTHS.items()]


def test_the_number_of_threads_does_not_change_the_vectors(shared_home: Path) -> None:
    alone, many = built_in_embedder(shared_home, 1), built_in_embedder(shared_home, 3)
    assert alone.embed_documents(TEXTS) == many.embed_documents(TEXTS)
    assert alone.embed_queries(TEXTS) == many.embed_queries(TEXTS)


def test_progress_is_reported_in_the_callers_thread(shared_home: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    embedder = built_in_embedder(shared_home, 2)
    embedder.embed_documents(TEXTS, lambda *counts: seen.append((*counts, threading.get_ident())))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][:2] == (len(TEXTS), len(TEXTS))
    assert {thread for _, _, thread in seen} == {threading.get_ident()}


def test_a_models_failure_in_a_worker_becomes_ours(shared_home: Path) -> None:
    real = built_in_embedder(shared_home, 2)._loaded()

    def broken(rows: object) -> Sequence[Sequence[float]]:
        raise RuntimeError("out of memory")

    embedder = LocalEmbedder(FINGERPRINT, 512, lambda: real, Sessions(lambda _: broken, 2), threads=2)
    for texts in (TEXTS, TEXTS[:1]):
        with pytest.raises(EmbeddingError, match="out of memory"):
            embedder.embed_documents(texts)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("recto-embedder")]


@pytest.mark.skipif(os.name != "posix", reason="signals are sent to a thread")
def test_an_interruption_drops_what_has_not_started(shared_home: Path) -> None:
    real, started, release = built_in_embedder(shared_home, 2)._loaded(), [0], threading.Event()

    def interrupt(rows: Sequence[Sequence[int]]) -> Sequence[Sequence[float]]:
        started[0] += 1
        if started[0] == 2:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        release.wait(0.5)
        return [[1.0] * 384] * len(rows)

    embedder = LocalEmbedder(FINGERPRINT, 512, lambda: real, Sessions(lambda _: interrupt, 2), threads=2)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            embedder.embed_documents(TEXTS * 30)
    finally:
        signal.signal(signal.SIGINT, before)
    assert started[0] < 30


def test_a_session_that_cannot_be_opened_is_tried_again() -> None:
    open = Mock(side_effect=[ConfigurationError("not yet"), lambda rows: None])
    sessions = Sessions(open, 1)
    with pytest.raises(ConfigurationError):
        sessions.single()
    assert sessions.single()([]) is None


ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd aes crc32 {} sve\nCPU part\t: 0xd0c\n"
X86 = "processor\t: 0\nmodel name\t: avx512_vnni\nflags\t\t: fpu sse2 avx2 {} rdpid\nbugs\t\t: asimddp\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ARM.format("asimddp"), True),
        (ARM.format("asimdhp"), False),
        (X86.format("avx512_vnni amx_int8"), True),
        (X86.format("avx_vnni"), True),
        (X86.format("avx512f"), False),
        ("processor: 0\n", False),
        (None, False),
    ],
)
def test_int8_dot_products_on_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expected: bool
) -> None:
    monkeypatch.setattr(onnx, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(sys, "platform", "linux")
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert onnx.has_int8_dot_product.__wrapped__() is expected


@pytest.mark.parametrize("has_it", [True, False])
def test_unsigned_weights_only_without_dot_products(monkeypatch: pytest.MonkeyPatch, has_it: bool) -> None:
    monkeypatch.setattr(onnx, "has_int8_dot_product", lambda: has_it)
    assert onnx.session_settings() == ({} if has_it else {"session.x64quantprecision": "1"})

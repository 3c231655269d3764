"""onnxruntime: parallel embedding, sessions, the features of the processor, and its C API without leaks."""

from __future__ import annotations

import _ctypes
import os
import signal
import subprocess
import sys
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import Mock

import onnx.parser
import psutil
import pytest

from recto.embedders import onnx as onnx_module
from recto.embedders.granite import runtime as graph_module
from recto.embedders.granite.embedder import FINGERPRINT, OLDER, VARIANTS
from recto.embedders.granite.runtime import OnnxError, OrtSession, find_library, open_with_library
from recto.embedders.onnx import LocalEmbedder, Sessions
from recto.errors import ConfigurationError, EmbeddingError
from recto.protocols import Embedder
from recto.settings import Precision
from tests.embedders.conftest import OpenModel

LENGTHS = {"gear": 50, "arm": 3, "leg": 30, "foot": 100, "hand": 3, "eye": 13, "rail": 50}
TEXTS = [f"{word} " * length for word, length in LENGTHS.items()]


def test_the_number_of_threads_does_not_change_the_vectors(open_model: OpenModel) -> None:
    alone, many = open_model(1), open_model(3)
    assert alone.embed_documents(TEXTS) == many.embed_documents(TEXTS)
    assert alone.embed_queries(TEXTS) == many.embed_queries(TEXTS)


def test_progress_is_reported_in_the_callers_thread(open_model: OpenModel) -> None:
    seen: list[tuple[int, int, int]] = []
    embedder = open_model(2)
    embedder.embed_documents(TEXTS, lambda *counts: seen.append((*counts, threading.get_ident())))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][:2] == (len(TEXTS), len(TEXTS))
    assert {thread for _, _, thread in seen} == {threading.get_ident()}


def test_a_models_failure_in_a_worker_becomes_ours(open_model: OpenModel) -> None:
    real = open_model(2)._loaded()

    def broken(rows: object) -> Sequence[Sequence[float]]:
        raise RuntimeError("out of memory")

    embedder = LocalEmbedder(FINGERPRINT, 512, lambda: real, Sessions(lambda _: broken, 2), threads=2)
    for texts in (TEXTS, TEXTS[:1]):
        with pytest.raises(EmbeddingError, match="out of memory"):
            embedder.embed_documents(texts)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("recto-embedder")]


@pytest.mark.skipif(os.name != "posix", reason="signals are sent to a thread")
def test_an_interruption_drops_what_has_not_started(open_model: OpenModel) -> None:
    real, started, release = open_model(2)._loaded(), [0], threading.Event()

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
    monkeypatch.setattr(onnx_module, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(sys, "platform", "linux")
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert onnx_module.has_int8_dot_product.__wrapped__() is expected


@pytest.mark.parametrize("has_it", [True, False])
def test_unsigned_weights_only_without_dot_products(monkeypatch: pytest.MonkeyPatch, has_it: bool) -> None:
    monkeypatch.setattr(onnx_module, "has_int8_dot_product", lambda: has_it)
    settings = onnx_module.session_settings()
    assert settings.get("session.x64quantprecision") == (None if has_it else "1")


Inputs: TypeAlias = "dict[str, array[Any]]"
QUERIES = ["What is ROS 2?", "x", "Schlüssel " * 90]


def graph() -> bytes:
    """Return a graph that adds two inputs of [rows, columns]."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    sum (float[r, c] a, int64[r, c] n) => (float[r, c] sum) { f = Cast <to = 1> (n)  sum = Add (a, f) }"""
    return bytes(onnx.parser.parse_model(text).SerializeToString())


@pytest.fixture(scope="module")
def library() -> Path:
    result = find_library()
    assert result is not None
    return result


def test_rows_keep_their_order(library: Path) -> None:
    session = OrtSession(library, graph(), 1, {})
    inputs: Inputs = {"a": array("f", [0.5, 1, 2, 3, 4, 5]), "n": array("q", [10, 20, 30, 40, 50, 60])}
    assert session.run(inputs, 2, "sum") == [[10.5, 21, 32], [43, 54, 65]]
    assert session.run(inputs, 3, "sum") == [[10.5, 21], [32, 43], [54, 65]]


def test_an_invalid_graph_is_an_error(library: Path) -> None:
    with pytest.raises(OnnxError, match="(?i)protobuf"):
        OrtSession(library, b"not a graph", 1, {})


def test_another_library_falls_back_to_the_python_api(
    open_model: OpenModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedder: Embedder
) -> None:
    (tmp_path / "libonnxruntime.so.9").write_bytes(b"not a library")
    for other in (tmp_path / "libonnxruntime.so.9", Path(_ctypes.__file__)):
        with pytest.raises(OSError, match=str(other.name)):
            OrtSession(other, graph(), 1, {})
        monkeypatch.setattr(graph_module, "find_library", lambda other=other: other)
        vector = open_model(1).embed_query("x")
        assert vector == pytest.approx(embedder.embed_query("x"), abs=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the mapped files")
@pytest.mark.parametrize("precision", VARIANTS)
def test_closing_releases_the_weights(open_model: OpenModel, precision: Precision) -> None:
    def mapped() -> int:
        maps = psutil.Process().memory_maps(grouped=False)
        return sum(file.path.endswith(VARIANTS[precision].weights.name) for file in maps)

    before, embedder = mapped(), open_model(2, precision)
    vectors = embedder.embed_documents(TEXTS), embedder.embed_query("x")
    older = embedder.for_index(OLDER)
    assert older is not None
    older.embed_query("x")
    assert mapped() > before
    embedder.close()
    assert mapped() == before
    assert (embedder.embed_documents(TEXTS), embedder.embed_query("x")) == vectors, "it is opened again"


def test_the_session_works_after_invalid_inputs(library: Path) -> None:
    session = OrtSession(library, graph(), 1, {})
    good: Inputs = {"a": array("f", [1.0]), "n": array("q", [1])}
    for inputs, output in (({"a": good["a"]}, "sum"), ({**good, "b": good["n"]}, "sum"), (good, "product")):
        with pytest.raises(OnnxError):
            session.run(inputs, 1, output)
    assert session.run(good, 1, "sum") == [[2.0]]


@pytest.mark.slow
def test_calls_and_sessions_do_not_leak(library: Path) -> None:
    inputs: Inputs = {"a": array("f", range(40_000)), "n": array("q", range(40_000))}

    def work() -> None:
        session = OrtSession(library, graph(), 1, {})
        for _ in range(20):
            session.run(inputs, 1, "sum")
        with pytest.raises(OnnxError):
            session.run(inputs, 1, "nothing")

    work()
    before = psutil.Process().memory_info().rss
    for _ in range(20):  # this copies twenty times what may stay in memory
        work()
    assert psutil.Process().memory_info().rss - before < 20 * 20 * 160_000 / 20 * 2


@pytest.mark.parametrize("precision", VARIANTS)
def test_both_apis(open_model: OpenModel, precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    with_library = open_model(2, precision).embed_queries(QUERIES)
    single_query = open_model(2, precision, single_query=True)
    single = [single_query.embed_query(query) for query in QUERIES]
    monkeypatch.setattr(graph_module, "find_library", lambda: None)
    with_python = open_model(2, precision).embed_queries(QUERIES)
    for result in (with_library, single):
        for left, right in zip(result, with_python, strict=True):
            assert left == pytest.approx(right, abs=1e-6 if precision == "fp32" else 0.02)


def test_a_truncated_weight_file_is_an_error(shared_home: Path, tmp_path: Path, library: Path) -> None:
    variant = VARIANTS["fp32"]
    whole = (shared_home / "cache" / variant.weights).read_bytes()
    (tmp_path / variant.weights.name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        open_with_library(library, variant.graph.read_bytes(), tmp_path, 1, single_query=True)


def test_a_text_beyond_the_models_positions_is_an_error(open_model: OpenModel) -> None:
    embedder = open_model(1)
    with pytest.raises(EmbeddingError, match="The embedding model failed"):
        embedder._run(embedder._sessions.single(), [[0, *[5] * 600, 2]])


def test_a_process_with_a_single_query_exits_cleanly(shared_home: Path) -> None:
    code = """
import sys
from pathlib import Path
from recto.embedders.granite.embedder import built_in_embedder
print(len(built_in_embedder(Path(sys.argv[1]), 2, single_query=True).embed_query("What is ROS 2?")))
"""
    command = [sys.executable, "-c", code, str(shared_home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "384\n", "")

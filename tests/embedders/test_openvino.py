"""Passages in bf16 by OpenVINO: the same graph, questions as ever, and fp32 wherever it cannot be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recto.embedders import openvino
from recto.embedders.granite import PROBE, VARIANTS, granite_embedder
from recto.embedders.graph import shaped
from recto.embedders.local import LocalEmbedder
from recto.embedders.openvino import Portable, compiled, in_bf16
from recto.embedders.session import Run, Sessions, Weights
from recto.errors import ConfigurationError
from recto.protocols import Embedder
from recto.settings import Settings, load_settings
from recto.wiring import open_embedder

TEXTS = ["A node publishes messages to a topic.", "A biped balances by moving its centre of pressure. " * 12, "Knead the dough.", "x"]
installed = pytest.mark.skipif(find_spec("openvino") is None, reason="the extra `openvino` is not installed")


@pytest.fixture
def portable(shared_home: Path, embedder: Embedder) -> Portable:
    embedder.embed_query("x")  # the weights are in their file now
    return Portable(VARIANTS["bf16"].graph, Weights(shared_home / "cache"), shaped, PROBE)


@pytest.fixture
def plain(embedder: LocalEmbedder) -> Run:
    return embedder._sessions.beside()


def with_capabilities(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the processor be another one; the engine stays."""
    core = openvino._core()

    class Other(type(core)):  # type: ignore[misc]
        def get_property(self, device: str, name: str) -> Any:
            return list(names) if name == "OPTIMIZATION_CAPABILITIES" else super().get_property(device, name)

    monkeypatch.setattr(openvino, "_core", Other)


def by(run: Run, embedder: LocalEmbedder) -> LocalEmbedder:
    """The usual embedder with passages computed in another way."""
    sessions = Sessions(lambda _: pytest.fail("not for passages"), 2, lambda: run)
    return LocalEmbedder(embedder.fingerprint, 512, embedder._loaded, sessions, threads=2)


def cosines(left: list[list[float]], right: list[list[float]]) -> Any:
    return (np.array(left) * np.array(right)).sum(axis=1)


@installed
def test_the_graph_gives_the_same_vectors(portable: Portable, embedder: LocalEmbedder) -> None:
    other = by(compiled(openvino._core(), portable, 2, "f32"), embedder)
    passages = TEXTS * 20
    assert cosines(other.embed_documents(passages), embedder.embed_documents(passages)).min() > 0.99999


@installed
def test_where_the_processor_has_bf16_openvino_computes(
    portable: Portable, embedder: LocalEmbedder, plain: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_capabilities(monkeypatch, "FP32", "BF16")  # one that has it not computes as near to it as it can
    run = in_bf16(plain, portable, 2, pytest.fail)
    assert run is not plain
    assert cosines(by(run, embedder).embed_documents(TEXTS), embedder.embed_documents(TEXTS)).min() > 0.9995


@installed
def test_a_processor_without_bf16_computes_in_fp32_and_that_is_told_once(
    shared_home: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_capabilities(monkeypatch, "FP32", "INT8")
    told: list[str] = []
    mine = granite_embedder(shared_home, 2, "bf16", told.append)
    for _ in range(2):
        assert mine.embed_documents(TEXTS) == embedder.embed_documents(TEXTS)
    assert len(told) == 1
    assert "this processor does not multiply in bf16" in told[0]


def damaged(portable: Portable, folder: Path) -> Portable:
    (folder / "graph.onnx").write_bytes(b"not a graph")
    return replace(portable, graph=folder / "graph.onnx", weights=Weights(folder))


def homeless(portable: Portable, folder: Path) -> Portable:
    return replace(portable, weights=Weights(arrays={}))


def unmasked(portable: Portable, folder: Path) -> Portable:
    return replace(portable, inputs=lambda rows: {**shaped(rows), "mask": 0 * shaped(rows)["mask"]})


@installed
@pytest.mark.parametrize(
    ("spoil", "reason"), [(damaged, "cannot compile the model"), (homeless, "cannot be kept"), (unmasked, "wrong numbers")]
)
def test_whatever_openvino_cannot_do_is_computed_in_fp32(
    portable: Portable,
    plain: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Portable, Path], Portable],
    reason: str,
) -> None:
    with_capabilities(monkeypatch, "FP32", "BF16")
    told: list[str] = []
    assert in_bf16(plain, spoil(portable, tmp_path), 2, told.append) is plain
    assert len(told) == 1
    assert reason in told[0]


@installed
def test_nothing_is_reported_to_anyone() -> None:
    openvino._core()
    assert "openvino.tools.ovc.telemetry_stub" in sys.modules
    assert "openvino_telemetry" not in sys.modules


def test_without_the_package_passages_are_refused_and_questions_are_not(
    shared_home: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    mine = open_embedder(Settings("local", "edge", shared_home, threads=2, precision="bf16"), pytest.fail)
    with pytest.raises(ConfigurationError, match="RECTO_PRECISION=bf16") as caught:
        mine.embed_documents(TEXTS)
    assert "pip install 'recto[openvino]'" in caught.value.hint
    for questions in (["What is a topic?"], ["What is a topic?", "How is bread made?"]):
        assert mine.embed_queries(questions) == embedder.embed_queries(questions)


def test_the_setting(tmp_path: Path) -> None:
    assert load_settings({"RECTO_PRECISION": "bf16"}, tmp_path).precision == "bf16"

"""The built-in model in int8: close to fp32, compatible with it, and checked on each processor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from recto.api import open_embedder
from recto.contracts import QUERY_COLLECTION
from recto.embedders.granite import embedder as granite
from recto.embedders.granite.embedder import FINGERPRINT, GRANITE, VARIANTS, built_in_embedder
from recto.embedders.granite.runtime import check_vector
from recto.embedders.granite.runtime import open_graph as original
from recto.embedders.granite.weights import LINEAR, find_pack, quantize, read_calibration, read_pack
from recto.errors import ConfigurationError
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.settings import Precision, Settings
from recto.stores.edge.store import EdgeStore
from scripts.calibrate_int8 import measure, texts


@pytest.fixture(scope="module")
def int8(shared_home: Path) -> Embedder:
    return open_embedder(Settings("local", "edge", shared_home, threads=2, precision="int8"), print)


def test_vectors_are_close_to_fp32(int8: Embedder, embedder: Embedder, retriever: Retriever) -> None:
    documents = [chunk.text for chunk in retriever.open().scroll()][::60]
    left, right = np.array(int8.embed_documents(documents)), np.array(embedder.embed_documents(documents))
    cosines = (left * right).sum(axis=1)
    assert cosines.min() >= 0.98
    assert cosines.mean() >= 0.995


def test_each_weight_is_rounded_by_at_most_half_a_step() -> None:
    weights, calibration = read_pack(find_pack()), read_calibration()
    small = quantize(weights, calibration)
    for name in LINEAR:
        if name.endswith(("qkv", "kv")):  # these contain attention's values, which are divided
            continue
        required = weights[f"{name}.w"] * calibration[name].factors
        restored = (small[f"{name}.w8"] * small[f"{name}.scales"]).T
        assert (np.abs(restored - required).max(axis=1) <= small[f"{name}.scales"] * 0.5001).all()


def test_the_calibration_fits_the_sample_book() -> None:
    """Activations lie within 255 steps, or at most a fifth beyond: a few are clipped."""
    ranges = measure(GRANITE.variants["fp32"].make(find_pack()), texts()[::120])
    for name, measured in read_calibration().items():
        low, high = (edge / measured.factors for edge in ranges[name])
        assert -low.min() / measured.scale <= measured.zero * 1.2 + 1
        assert high.max() / measured.scale <= (255 - measured.zero) * 1.2 + 1


def test_an_fp32_index_is_searched_in_int8(sample_home: Path, int8: Embedder, retriever: Retriever) -> None:
    other = Retriever(int8, EdgeStore(sample_home), QUERY_COLLECTION)
    for query in ("What is ROS 2?", "How do robots keep their balance?"):
        mine, theirs = (each.search(query).hits[0] for each in (other, retriever))
        assert mine.chunk == theirs.chunk
        assert mine.score == pytest.approx(theirs.score, abs=0.02)


def test_all_precisions_of_one_model_are_compatible() -> None:
    names = ("int8-weights-fp32", "int8-weights-bf16", "int8-1", "int8-2", "int8-3", "int8-4")
    created = [replace(FINGERPRINT, variant=name) for name in names]
    assert {variant.fingerprint for variant in VARIANTS.values()} <= set(created)
    assert all(one.is_compatible(other) for one in created for other in created)


@pytest.mark.parametrize("name", ["model", "revision", "dim", "distance", "variant"])
def test_another_model_is_not_compatible(name: str) -> None:
    other = replace(FINGERPRINT, **{name: 8 if name == "dim" else "x"})  # type: ignore[arg-type]
    assert other.is_compatible(other)
    assert not other.is_compatible(FINGERPRINT)
    assert not FINGERPRINT.is_compatible(other)


def test_wrong_vectors(shared_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "probe.f32"
    np.roll(np.fromfile(VARIANTS["int8"].probe or "", np.float32), 7).tofile(wrong)
    monkeypatch.setitem(granite.VARIANTS, "int8", VARIANTS["int8"]._replace(probe=wrong))
    for single_query in (False, True):
        with pytest.raises(ConfigurationError, match="wrong numbers on this processor") as caught:
            built_in_embedder(shared_home, 1, "int8", single_query=single_query).embed_query("x")
        assert "RECTO_PRECISION=fp32" in caught.value.hint


@pytest.mark.parametrize(
    ("dot_product", "precision", "expected"),
    [(True, "int8", True), (False, "int8", False), (False, "fp32", True)],
)
def test_int8_is_always_optimized_without_dot_products(
    shared_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    dot_product: bool,
    precision: Precision,
    expected: bool,
) -> None:
    open_graph = Mock(side_effect=original)
    monkeypatch.setattr(granite, "open_graph", open_graph)
    monkeypatch.setattr(granite, "has_int8_dot_product", lambda: dot_product)
    built_in_embedder(shared_home, 1, precision, single_query=True).embed_query("x")
    assert open_graph.call_args.kwargs == {"single_query": expected}


def test_every_copy_of_the_probe_is_compared(tmp_path: Path) -> None:
    stored = tmp_path / "probe.f32"
    np.array([0.6, 0.8], np.float32).tofile(stored)
    check_vector(lambda rows: [[0.6, 0.8]] * len(rows), [0, 2], stored, copies=3)
    with pytest.raises(ConfigurationError, match="wrong numbers"):
        check_vector(lambda rows: [[0.6, 0.8], *[[0.8, 0.6]] * (len(rows) - 1)], [0, 2], stored, copies=3)


@pytest.mark.parametrize(("dot_product", "precision"), [(True, "int8"), (False, "fp32")])
def test_the_default_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dot_product: bool, precision: Precision
) -> None:
    monkeypatch.setattr(granite, "has_int8_dot_product", lambda: dot_product)
    embedder = open_embedder(Settings("local", "edge", tmp_path), print)
    assert embedder.fingerprint == VARIANTS[precision].fingerprint


def test_int8_is_only_for_the_built_in_model(tmp_path: Path) -> None:
    for model in (str(tmp_path), "BAAI/bge-small-en-v1.5"):
        with pytest.raises(ConfigurationError, match="is for the built-in model") as caught:
            open_embedder(Settings("local", "edge", tmp_path, model=model, precision="int8"), print)
        assert caught.value.hint

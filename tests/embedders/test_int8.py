"""The int8 form of the built-in model: near to fp32, told apart from it, and refused where it cannot be computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recto.embedders import granite
from recto.embedders.granite import VARIANTS, granite_embedder
from recto.embedders.int8 import LINEAR, quantised, read_calibration
from recto.embedders.pack import find_pack, read_pack
from recto.errors import ConfigurationError, FingerprintMismatch
from recto.protocols import Embedder
from recto.retriever import Retriever
from recto.settings import QUERY_COLLECTION, Precision, Settings, load_settings
from recto.stores.edge.store import EdgeStore
from recto.wiring import open_embedder
from scripts.calibrate_int8 import measure, texts


@pytest.fixture(scope="module")
def int8(shared_home: Path) -> Embedder:
    return open_embedder(Settings("local", "edge", shared_home, threads=2, precision="int8"), print)


def test_vectors_are_near_those_of_fp32(int8: Embedder, embedder: Embedder, retriever: Retriever) -> None:
    passages = [chunk.text for chunk in retriever.open().scroll()][::24]
    left, right = np.array(int8.embed_documents(passages)), np.array(embedder.embed_documents(passages))
    cosines = (left * right).sum(axis=1)
    assert cosines.min() >= 0.98
    assert cosines.mean() >= 0.995


def test_questions_find_the_same_page(int8: Embedder, embedder: Embedder) -> None:
    passages = ["A node publishes messages to a topic.", "A biped balances by moving its centre of pressure.", "Knead the dough."]
    for questions in (["How do robots keep their balance?"], ["What is a topic?", "How is bread made?"]):
        mine, theirs = (np.array(each.embed_queries(questions)) @ np.array(each.embed_documents(passages)).T for each in (int8, embedder))
        assert mine.argmax(axis=1).tolist() == theirs.argmax(axis=1).tolist()


def test_each_weight_is_at_most_half_a_step_from_what_it_was() -> None:
    weights, calibration = read_pack(find_pack()).weights, read_calibration()
    small = quantised(weights, calibration)
    for name in LINEAR:
        if name.endswith(("qkv", "kv")):  # attention's values are made small in these
            continue
        wanted = weights[f"{name}.w"] * calibration[name].factors
        restored = (small[f"{name}.w8"] * small[f"{name}.scales"]).T
        assert (np.abs(restored - wanted).max(axis=1) <= small[f"{name}.scales"] * 0.5001).all()


def test_what_was_measured_holds_for_the_sample_book() -> None:
    """What passages need lies within 255 steps, or a little beyond where the book was changed since."""
    pack = read_pack(find_pack())
    ranges = measure(pack, texts(pack)[::40])
    for name, measured in read_calibration().items():
        low, high = (edge / measured.factors for edge in ranges[name])
        assert -low.min() / measured.scale <= measured.zero * 1.05 + 1
        assert high.max() / measured.scale <= (255 - measured.zero) * 1.05 + 1


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_an_index_of_one_form_refuses_questions_of_the_other(sample_home: Path, precision: Precision) -> None:
    other = open_embedder(Settings("local", "edge", sample_home, precision=precision), print)
    with pytest.raises(FingerprintMismatch, match=precision) as caught:
        Retriever(other, EdgeStore(sample_home), QUERY_COLLECTION).search("What is ROS 2?")
    assert "RECTO_PRECISION back" in caught.value.hint


def test_the_forms_have_fingerprints_of_their_own() -> None:
    assert len({variant.fingerprint for variant in VARIANTS.values()}) == len(VARIANTS)
    assert VARIANTS["fp32"].fingerprint.variant == "int8-weights-fp32"  # what indexes were made with so far


def test_a_processor_that_computes_something_else_is_told(shared_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "probe.f32"
    np.roll(np.fromfile(VARIANTS["int8"].probe or "", np.float32), 7).tofile(wrong)
    monkeypatch.setitem(granite.VARIANTS, "int8", replace(VARIANTS["int8"], probe=wrong))
    with pytest.raises(ConfigurationError, match="wrong numbers on this processor") as caught:
        granite_embedder(shared_home, 1, "int8").embed_query("x")
    assert "RECTO_PRECISION" in caught.value.hint


def test_the_setting(tmp_path: Path) -> None:
    assert load_settings({}, tmp_path).precision == "fp32"
    assert load_settings({"RECTO_PRECISION": "INT8"}, tmp_path).precision == "int8"
    with pytest.raises(ConfigurationError, match="RECTO_PRECISION must be one of"):
        load_settings({"RECTO_PRECISION": "int4"}, tmp_path)


def test_another_model_has_no_int8_form(tmp_path: Path) -> None:
    for model in (str(tmp_path), "BAAI/bge-small-en-v1.5"):
        with pytest.raises(ConfigurationError, match="is for the built-in model") as caught:
            open_embedder(Settings("local", "edge", tmp_path, model=model, precision="int8"), print)
        assert caught.value.hint

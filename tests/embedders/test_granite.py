"""The built-in model: tokens, vectors, limits, its weight file, int8, and a damaged or missing file."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recto.api import open_embedder, sample_source
from recto.contracts import QUERY_COLLECTION
from recto.embedders.granite import embedder as granite
from recto.embedders.granite import weights as weights_module
from recto.embedders.granite.bpe import MergeRules, QueryTokenizer
from recto.embedders.granite.embedder import FINGERPRINT, VARIANTS, built_in_embedder
from recto.embedders.granite.runtime import check_vector, open_graph
from recto.embedders.granite.weights import MERGES, PROMPT_TOKENS, Arrays
from recto.embedders.onnx import new_tokenizer
from recto.errors import ConfigurationError, install_command
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.settings import Precision, Settings
from recto.stores.edge import EdgeStore
from scripts import make_graph
from tests.book.files import write
from tests.embedders.conftest import OpenModel
from tests.languages import SENTENCES

LIBRARY = new_tokenizer(MergeRules(MERGES).description())


def reference(ids: list[int], weights: Arrays) -> Any:
    """Compute a model in numpy, every layer for every token."""

    def linear(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.w"].T + weights[f"{name}.b"]

    def layer_norm(x: Any, name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * weights[f"{name}.w"] + weights[f"{name}.b"]

    count = len(ids)
    groups = weights["word.q"][ids].astype(float).reshape(count, -1, 64) * weights["word.s"][ids][:, :, None]
    x = layer_norm(groups.reshape(count, 384) + weights["positions"][:count], "emb_ln")
    for name in (f"l{layer}" for layer in range(6)):
        parts = [f"{name}.qkv"] if name != "l5" else [f"{name}.q", f"{name}.kv"]
        mixed = np.concatenate([linear(x, part) for part in parts], axis=1)
        query, key, value = mixed.reshape(count, 3, 12, 32).transpose(1, 2, 0, 3)
        scores = np.exp(query @ key.transpose(0, 2, 1) / math.sqrt(32))
        mixed = ((scores / scores.sum(-1, keepdims=True)) @ value).transpose(1, 0, 2).reshape(count, 384)
        x = layer_norm(x + linear(mixed, f"{name}.ao"), f"{name}.aln")
        inner = linear(x, f"{name}.f1")
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = layer_norm(x + linear(inner, f"{name}.f2"), f"{name}.fln")
    return x[0] / np.linalg.norm(x[0])


@pytest.mark.parametrize("precision", VARIANTS)
def test_the_graphs_are_up_to_date(precision: Precision) -> None:
    built = make_graph.build(precision).SerializeToString(deterministic=True)
    assert VARIANTS[precision].graph.read_bytes() == built


def test_vectors_equal_those_of_a_numpy_implementation(embedder: Embedder) -> None:
    weights = VARIANTS["fp32"].make()
    for text in (
        "What is ROS 2?",
        "A node publishes messages to a topic. " * 3,
        "🤖 روبوت",
        "机器人是什么？",
    ):
        expected = reference(LIBRARY.encode(text).ids, weights)
        assert embedder.embed_query(text) == pytest.approx(expected.tolist(), abs=2e-5)


def test_queries_for_context_begin_with_the_prompt(open_model: OpenModel) -> None:
    embedder, weights = open_model(2), VARIANTS["fp32"].make()
    texts = ["What is ROS 2?", "روبوت", "robot " * 600]
    embed = embedder.abilities.embed_context_queries
    assert embed is not None
    vectors = embed(texts)
    assert not {*PROMPT_TOKENS} & {*LIBRARY.get_vocab().values()}, "no text has these tokens"
    assert len(weights["word.q"]) > max(LIBRARY.get_vocab().values())
    for text, vector in zip(texts, vectors, strict=True):
        start, *rest = LIBRARY.encode(text).ids
        ids = [start, *PROMPT_TOKENS, *rest]
        ids = ids if len(ids) <= 512 else [*ids[:511], ids[-1]]
        assert vector == pytest.approx(reference(ids, weights).tolist(), abs=2e-5)
    assert embed(texts[:1])[0] == pytest.approx(vectors[0], abs=1e-5)


def test_the_models_limit_is_exact(embedder: Embedder) -> None:
    exact = "robot " * 508
    assert embedder.count_tokens(exact) == embedder.max_tokens == 512
    assert embedder.embed_documents([exact])


@pytest.mark.parametrize("exists", [False, True])
def test_a_damaged_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    monkeypatch.setattr(weights_module, "MODEL", tmp_path / ("model.npz" if exists else "missing.npz"))
    (tmp_path / "model.npz").touch()
    with pytest.raises(ConfigurationError, match="does not have the expected hash") as caught:
        built_in_embedder(tmp_path, 1).embed_query("x")
    assert install_command(again=True) in caught.value.hint


FLOATS: Arrays = {"b": np.arange(5, dtype=np.float32), "c": np.array(3.5, np.float32)}
ARRAYS: Arrays = {**FLOATS, "a": np.arange(70_000, dtype=np.int8)}


def content() -> bytes:
    whole = bytearray()
    for name, start in weights_module.layout(ARRAYS).items():
        whole += bytes(start - len(whole)) + ARRAYS[name].tobytes()
    return bytes(whole)


HASH = hashlib.sha256(content()).hexdigest()


@pytest.fixture
def make() -> Mock:
    return Mock(return_value=ARRAYS)


def test_later_starts_use_the_file(tmp_path: Path, make: Mock) -> None:
    """A damaged file is written again."""
    for _ in range(3):
        assert weights_module.cached_weights(tmp_path, "w", HASH, make).folder == tmp_path
    make.assert_called_once()
    assert (tmp_path / "w").read_bytes() == content()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w", "w.json"]
    # Windows maps from multiples of 64 KiB.
    assert weights_module.layout(ARRAYS) == {"a": 0, "b": 2 << 16, "c": 3 << 16}
    for damage in (b"", b"short", content()[:-1] + b"\xff"):
        (tmp_path / "w").write_bytes(damage)
        assert weights_module.cached_weights(tmp_path, "w", HASH, make).folder == tmp_path
        assert (tmp_path / "w").read_bytes() == content()


def test_weights_stay_in_memory_if_no_correct_file_can_be_written(tmp_path: Path, make: Mock) -> None:
    (tmp_path / "file").touch()
    for folder, digest in (("file", HASH), ("no/home", HASH), (".", "another hash")):
        weights = weights_module.cached_weights(tmp_path / folder, "w", digest, make)
        assert weights.folder is None
        assert weights.arrays is ARRAYS
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("precision", VARIANTS)
def test_the_hash_of_the_weight_file(shared_home: Path, open_model: OpenModel, precision: Precision) -> None:
    open_model(1, precision).warm_up()
    variant = VARIANTS[precision]
    with (shared_home / "cache" / variant.weights).open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == variant.sha256


def test_the_vectors_are_the_same_without_a_file(
    tmp_path: Path, open_model: OpenModel, embedder: Embedder
) -> None:
    in_memory = open_model(2, home=tmp_path / "no" / "home").embed_query("What is ROS 2?")
    assert in_memory == pytest.approx(embedder.embed_query("What is ROS 2?"), abs=1e-6)


@pytest.mark.parametrize("days", [2, -2], ids=["a day later", "after the clock was set back"])
def test_a_file_that_rots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, make: Mock) -> None:
    weights_module.cached_weights(tmp_path, "w", HASH, make)
    file = tmp_path / "w"
    status = file.stat()
    with file.open("r+b") as damaged:  # size, time and inode stay
        damaged.write(b"\x01\x02\x03")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    weights_module.cached_weights(tmp_path, "w", HASH, make)
    make.assert_called_once()  # the file is trusted for a day
    later = time.time() + days * 86_400
    monkeypatch.setattr("recto._util.files.time.time", lambda: later)
    weights_module.cached_weights(tmp_path, "w", HASH, make)
    assert file.read_bytes() == content()


def test_damaged_weights_are_removed(tmp_path: Path) -> None:
    name = str(VARIANTS["int8"].weights)
    write(tmp_path, {name: b"damaged"})
    assert granite.remove_damaged_weights(tmp_path) == [name]
    assert not (tmp_path / name).exists()
    assert granite.remove_damaged_weights(tmp_path) == []


FAST = QueryTokenizer(MERGES)
WORDS = ["robot's", "I'll", " 2", "2.0", "''ve", "  ", "\t\n", "aaaaa", "x://y#a", "__init__()", "Ġ", "1e-5"]


@given(st.text())
@example("Wie prüfe ich Anfragen? Zażółć gęślą jaźń. مرحبا بالعالم 日本語のテキスト 🤖")
def test_every_text_can_be_read_back_from_its_tokens(text: str) -> None:
    assert LIBRARY.decode(LIBRARY.encode(text, add_special_tokens=False).ids, False) == text


@given(
    st.text(st.characters(max_codepoint=127))
    | st.lists(st.sampled_from(WORDS)).map("".join)
    | st.text(st.characters(exclude_categories=["Cn", "Cs"]))
    | st.text("aé '1½٣中ح\u0301\u0085\u00a0\u2003\u200b\n!。")
)
@example("")
@example(" \x1c\x1f \x00\x7f ")
@example("\x00é")
@example("What is ROS 2?")
@example("<s> special </s> tokens")
@example("Grüße, naïve café — 机器人 🤖")
@settings(max_examples=100)
def test_any_text_gets_the_tokens_of_the_library_or_none(embedder: Embedder, text: str) -> None:
    result, is_left = FAST.encode(text), "<" in text or len(text) > 64
    assert embedder.count_tokens(text) == len(LIBRARY.encode(text).ids), "counted in another way"
    assert result == LIBRARY.encode(text).ids or (result is None and is_left)


def test_a_book_gets_the_tokens_of_the_library() -> None:
    lines = [line for page in sample_source().pages() for line in page.text.splitlines()][::5]
    tokens = [(FAST.encode(line), LIBRARY.encode(line).ids) for line in lines]
    assert all(mine in (None, theirs) for mine, theirs in tokens)
    assert sum(mine is not None for mine, _ in tokens) > 200
    for text in SENTENCES.values():
        assert FAST.encode(text) == LIBRARY.encode(text).ids
    for text in ("what does <mask> mean", "x" * 65, "中" * 65, "\ud800", "\U00013fff"):
        assert FAST.encode(text) is None, "left to the library"


@pytest.fixture(scope="module")
def int8(shared_home: Path) -> Iterator[Embedder]:
    settings = Settings("local", "edge", shared_home, threads=2, precision="int8")
    with closing(open_embedder(settings, print)) as embedder:
        yield embedder


def test_vectors_are_close_to_fp32(int8: Embedder, embedder: Embedder, retriever: Retriever) -> None:
    documents = [chunk.text for chunk in retriever.open().scroll()][::60]
    left, right = np.array(int8.embed_documents(documents)), np.array(embedder.embed_documents(documents))
    cosines = (left * right).sum(axis=1)
    assert cosines.min() >= 0.98
    assert cosines.mean() >= 0.995


def test_an_fp32_index_is_searched_in_int8(sample_home: Path, int8: Embedder, retriever: Retriever) -> None:
    other = Retriever(int8, EdgeStore(sample_home), QUERY_COLLECTION)
    for query in ("What is ROS 2?", "How do robots keep their balance?"):
        mine, theirs = (each.search(query).hits[0] for each in (other, retriever))
        assert mine.chunk == theirs.chunk
        assert mine.score == pytest.approx(theirs.score, abs=0.02)


def test_only_precisions_of_one_model_are_compatible() -> None:
    names = ("int8-weights-fp32", "int8-weights-bf16", "int8-4")
    created = [replace(FINGERPRINT, variant=name) for name in names]
    assert {variant.fingerprint for variant in VARIANTS.values()} <= set(created)
    assert all(left.is_compatible(right) for left in created for right in created)
    for name in ("model", "revision", "dim", "distance", "variant"):
        other = replace(FINGERPRINT, **{name: 8 if name == "dim" else "x"})  # type: ignore[arg-type]
        assert other.is_compatible(other)
        assert not other.is_compatible(FINGERPRINT)
        assert not FINGERPRINT.is_compatible(other)


def test_wrong_vectors(open_model: OpenModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "probe.f32"
    np.roll(np.fromfile(VARIANTS["int8"].probe or "", np.float32), 7).tofile(wrong)
    monkeypatch.setitem(granite.VARIANTS, "int8", VARIANTS["int8"]._replace(probe=wrong))
    for single_query in (False, True):
        with pytest.raises(ConfigurationError, match="wrong numbers on this processor") as caught:
            open_model(1, "int8", single_query=single_query).embed_query("x")
        assert "RECTO_PRECISION=fp32" in caught.value.hint


@pytest.mark.parametrize(
    ("dot_product", "precision", "expected"),
    [(True, "int8", True), (False, "int8", False), (False, "fp32", True)],
)
def test_int8_is_always_optimized_without_dot_products(
    open_model: OpenModel,
    monkeypatch: pytest.MonkeyPatch,
    dot_product: bool,
    precision: Precision,
    expected: bool,
) -> None:
    opened = Mock(side_effect=open_graph)
    monkeypatch.setattr(granite, "open_graph", opened)
    monkeypatch.setattr(granite, "has_int8_dot_product", lambda: dot_product)
    open_model(1, precision, single_query=True).embed_query("x")
    assert opened.call_args.kwargs == {"single_query": expected}


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


def test_a_single_query_loads_the_model_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only with weights that were written before; an error waits for the query."""
    warm_up = Mock(side_effect=RuntimeError("broken"))
    monkeypatch.setattr(granite.BuiltInEmbedder, "warm_up", warm_up)
    weights = tmp_path / "cache" / VARIANTS["int8"].weights
    for loads in (False, True):
        built_in_embedder(tmp_path, 1, "int8", single_query=True)
        for thread in threading.enumerate():
            if thread.name == "recto-load":
                thread.join()
        assert warm_up.called == loads
        weights.parent.mkdir(parents=True, exist_ok=True)
        weights.touch()
    assert capsys.readouterr().err == ""

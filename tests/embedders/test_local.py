"""Models in a directory, made here from the built-in model's weights, and models of fastembed."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import helper, numpy_helper

from recto.api import open_embedder
from recto.embedders.granite.bpe import MergeRules
from recto.embedders.granite.embedder import VARIANTS
from recto.embedders.granite.weights import MERGES
from recto.embedders.local import directory_embedder
from recto.errors import ConfigurationError
from recto.protocols import Embedder
from recto.settings import Settings
from scripts import make_graph
from tests.book.files import write

WORD_LEVEL = {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "x"}
SIZE = '{"hidden_size": 8}'
TOKENIZER = json.dumps({"version": "1.0", "model": WORD_LEVEL, "added_tokens": []})


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the built-in model with its weights and with the usual names of inputs."""
    root = tmp_path_factory.mktemp("models") / "my-model"
    root.mkdir()
    weights, model = VARIANTS["fp32"].make(), make_graph.build()
    for tensor in list(model.graph.initializer):
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    nodes = [
        helper.make_node("Cast", ["attention_mask"], ["kept"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Sub", ["kept", "one"], ["masked"]),
        helper.make_node("Mul", ["masked", "large"], ["mask"]),
        helper.make_node("Identity", ["input_ids"], ["ids"]),
    ]
    for number, node in enumerate(nodes):
        model.graph.node.insert(number, node)
    for name, value in (("one", 1.0), ("large", 1e9)):
        model.graph.initializer.append(helper.make_tensor(name, onnx.TensorProto.FLOAT, [], [value]))
    del model.graph.input[:]
    for name in ("input_ids", "attention_mask"):
        info = helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["batch", "tokens"])
        model.graph.input.append(info)
    onnx.save(model, root / "model.onnx")
    config = {"hidden_size": 384, "model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
    return write(
        root,
        {
            "tokenizer.json": MergeRules(MERGES).description(),
            "tokenizer_config.json": json.dumps({"model_max_length": 512, "pad_token": "<pad>"}),
            "special_tokens_map.json": json.dumps({"pad_token": "<pad>"}),
            "config.json": json.dumps(config),
            "1_Pooling/config.json": json.dumps({"pooling_mode_cls_token": True}),
        },
    )


def test_a_directory_gives_the_vectors(model_directory: Path, shared_home: Path, embedder: Embedder) -> None:
    mine = open_embedder(Settings("local", "edge", shared_home, model=str(model_directory), threads=2), print)
    assert (mine.dim, mine.max_tokens, mine.fingerprint.model) == (384, 512, "my-model")
    texts = ["What is ROS 2?", "A node publishes messages to a topic. " * 12]
    for left, right in zip(mine.embed_documents(texts), embedder.embed_documents(texts), strict=True):
        assert left == pytest.approx(right, abs=1e-4)


def test_the_fingerprint_is_a_hash(model_directory: Path, shared_home: Path, tmp_path: Path) -> None:
    first = directory_embedder(model_directory, shared_home, 1).fingerprint
    other = write(tmp_path / "my-model", {"model.onnx": b"another", "config.json": '{"hidden_size": 384}'})
    assert directory_embedder(other, tmp_path, 1).fingerprint.revision != first.revision


def test_token_vectors_are_pooled() -> None:
    import numpy as np

    from recto.embedders.local import _pool

    tokens = np.array([[[1.0, 0.0], [3.0, 4.0], [100.0, 100.0]]])
    mask = np.array([[1, 1, 0]])
    assert _pool(tokens, mask, "mean").tolist() == [[2.0, 2.0]]
    assert _pool(tokens, mask, "cls").tolist() == [[1.0, 0.0]]
    assert _pool(tokens[:, 0], mask, "mean").tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no ONNX model"),
        ({"model.onnx": "x"}, "hidden_size"),
        ({"model.onnx": "x", "config.json": "{"}, "cannot be read"),
        ({"model.onnx": "x", "config.json": SIZE}, "tokenizer.json"),
        ({"onnx/model.onnx": "x", "config.json": SIZE, "tokenizer.json": "{}"}, "tokenizer cannot be read"),
        ({"onnx/model.onnx": "x", "config.json": SIZE, "tokenizer.json": TOKENIZER}, "cannot be opened"),
    ],
)
def test_incomplete_directories_are_errors(tmp_path: Path, files: dict[str, str], words: str) -> None:
    directory = write(tmp_path, {"model/README.md": "", **{f"model/{name}": files[name] for name in files}})
    with pytest.raises(ConfigurationError, match=words) as caught:
        directory_embedder(directory / "model", tmp_path, 1).embed_query("x")
    assert caught.value.hint


def test_an_unknown_model_names_fastembed(shared_home: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_embedder(Settings("local", "edge", shared_home, model="nobody/nothing"), print)
    assert "fastembed" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "query", "document"),
    [("recto/test", "", ""), ("recto/multilingual-e5-small", "query: ", "passage: ")],
)
def test_fastembed(model_directory: Path, embedder: Embedder, name: str, query: str, document: str) -> None:
    """fastembed reads the same directory as after a download, and adds no prefixes."""
    fastembed = pytest.importorskip("fastembed", reason="the extra `fastembed` is missing; .ci/run has it")
    from fastembed.common.model_description import ModelSource, PoolingType

    from recto.embedders.local import FastembedEmbedder

    fastembed.TextEmbedding.add_custom_model(
        model=name,
        pooling=PoolingType.DISABLED,
        normalization=True,
        sources=ModelSource(hf=name),
        dim=384,
        model_file="model.onnx",
    )
    hub = FastembedEmbedder(name, 2, specific_model_path=str(model_directory))
    assert (hub.dim, hub.max_tokens) == (384, 512)
    assert hub.fingerprint.variant == "fastembed" + (f", prefix {document!r}" if document else "")
    text = "What is ROS 2?"
    assert hub.embed_query(text) == pytest.approx(embedder.embed_query(query + text), abs=1e-4)
    (vector,) = hub.embed_documents([text])
    assert vector == pytest.approx(embedder.embed_query(document + text), abs=1e-4)
    assert hub.count_tokens(text) == embedder.count_tokens(document + text)
    assert hub.count_tokens("robot " * 600) > 512
    with pytest.raises(Exception, match="longer than the 512 tokens"):
        hub.embed_documents(["robot " * 600])

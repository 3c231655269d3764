"""Write the ONNX graph of the built-in model: operators and names only, the weights stay in the model pack.

Run it after a change of the graph: ``uv run python scripts/make_graph.py``. A test compares the file with what this makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

GRAPH = Path(__file__).parent.parent / "src" / "recto" / "embedders" / "granite.onnx"

HIDDEN, LAYERS, HEADS, INTERMEDIATE, VOCAB, POSITIONS = 384, 6, 12, 1536, 50265, 512
GROUP = 64
HEAD = HIDDEN // HEADS
EPSILON = 1e-12
OPSET = 20


class Graph:
    """Collects nodes and initialisers; each method adds one operator and returns the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name: str, shape: list[int], dtype: int = TensorProto.FLOAT) -> str:
        """Declare a weight that the session receives when it is created."""
        if all(known.name != name for known in self.initializers):
            tensor = TensorProto(name=name, data_type=dtype, dims=shape, data_location=TensorProto.EXTERNAL)
            tensor.external_data.add(key="location", value="pack")
            self.initializers.append(tensor)
        return name

    def ints(self, *values: int) -> str:
        name = "ints_" + "_".join(str(value) for value in values).replace("-", "m")
        if all(known.name != name for known in self.initializers):
            self.initializers.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], list(values)))
        return name

    def scalar(self, name: str, value: float) -> str:
        if all(known.name != name for known in self.initializers):
            self.initializers.append(helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
        return name

    def index(self, name: str, value: int) -> str:
        self.initializers.append(helper.make_tensor(name, TensorProto.INT64, [], [value]))
        return name

    def linear(self, x: str, name: str, rows: int, columns: int) -> str:
        return self.op("Gemm", x, self.weight(f"{name}.w", [rows, columns]), self.weight(f"{name}.b", [rows]), transB=1)

    def norm(self, x: str, name: str) -> str:
        weight, bias = self.weight(f"{name}.w", [HIDDEN]), self.weight(f"{name}.b", [HIDDEN])
        return self.op("LayerNormalization", x, weight, bias, axis=-1, epsilon=EPSILON)

    def heads(self, x: str, shape: str) -> str:
        """[batch, tokens, heads, head] to [batch, heads, tokens, head]."""
        return self.op("Transpose", self.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def attend(self, query: str, key: str, value: str, bias: str) -> str:
        scaled = self.op("Mul", query, self.scalar("scale", HEAD**-0.5))
        scores = self.op("MatMul", scaled, self.op("Transpose", key, perm=[0, 1, 3, 2]))
        weights = self.op("Softmax", self.op("Add", scores, bias), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.op("Reshape", mixed, self.ints(-1, HIDDEN))

    def feed_forward(self, x: str, layer: str) -> str:
        inner = self.op("Gelu", self.linear(x, f"{layer}.f1", INTERMEDIATE, HIDDEN), approximate="none")
        outer = self.linear(inner, f"{layer}.f2", HIDDEN, INTERMEDIATE)
        return self.norm(self.op("Add", x, outer), f"{layer}.fln")


def embeddings(g: Graph) -> str:
    """Look up the tokens' int8 rows and scale only those: the table itself is never expanded."""
    rows = g.op("Cast", g.op("Gather", g.weight("word.q", [VOCAB, HIDDEN], TensorProto.INT8), "ids"), to=1)
    scales = g.op("Gather", g.weight("word.s", [VOCAB, HIDDEN // GROUP]), "ids")
    grouped = g.op("Reshape", rows, g.ints(0, 0, HIDDEN // GROUP, GROUP))
    words = g.op("Mul", grouped, g.op("Unsqueeze", scales, g.ints(-1)))
    words = g.op("Reshape", words, g.ints(0, 0, HIDDEN))
    tokens = g.op("Shape", "ids", start=1, end=2)
    positions = g.op("Slice", g.weight("positions", [POSITIONS, HIDDEN]), g.ints(0), tokens, g.ints(0))
    return g.norm(g.op("Reshape", g.op("Add", words, positions), g.ints(-1, HIDDEN)), "emb_ln")


def build() -> onnx.ModelProto:
    """Make the model: ids and an additive mask in, one normalised vector per text out."""
    g = Graph()
    x = embeddings(g)
    split = g.op("Concat", g.op("Shape", "ids"), g.ints(HEADS, HEAD), axis=0)
    bias = g.op("Unsqueeze", "mask", g.ints(1, 2))
    for number in range(LAYERS - 1):
        layer = f"l{number}"
        mixed = g.linear(x, f"{layer}.qkv", 3 * HIDDEN, HIDDEN)
        parts = [f"{layer}.{part}" for part in ("query", "key", "value")]
        g.nodes.append(helper.make_node("Split", [mixed], parts, name=f"{layer}.split", axis=-1, num_outputs=3))
        query, key, value = (g.heads(part, split) for part in parts)
        attended = g.attend(query, key, value, bias)
        attended = g.linear(attended, f"{layer}.ao", HIDDEN, HIDDEN)
        x = g.feed_forward(g.norm(g.op("Add", x, attended), f"{layer}.aln"), layer)
    vector = last_layer(g, x, split, bias)
    g.nodes.append(helper.make_node("LpNormalization", [vector], ["vectors"], name="normalise", axis=-1, p=2))
    graph = helper.make_graph(
        g.nodes,
        "granite-embedding-30m-english",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "tokens"]),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", "tokens"]),
        ],
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["batch", HIDDEN])],
        g.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="recto")
    model.ir_version = 10
    return model


def last_layer(g: Graph, x: str, split: str, bias: str) -> str:
    """Compute the last layer for the first token alone: no other token's vector is read after it."""
    layer = f"l{LAYERS - 1}"
    shape = g.op("Concat", g.op("Shape", "ids"), g.ints(HIDDEN), axis=0)
    first = g.op("Gather", g.op("Reshape", x, shape), g.index("first", 0), axis=1)
    query = g.heads(g.linear(first, f"{layer}.q", HIDDEN, HIDDEN), g.ints(-1, 1, HEADS, HEAD))
    both = g.linear(x, f"{layer}.kv", 2 * HIDDEN, HIDDEN)
    parts = [f"{layer}.key", f"{layer}.value"]
    g.nodes.append(helper.make_node("Split", [both], parts, name=f"{layer}.split", axis=-1, num_outputs=2))
    key, value = (g.heads(part, split) for part in parts)
    attended = g.attend(query, key, value, bias)
    attended = g.linear(attended, f"{layer}.ao", HIDDEN, HIDDEN)
    return g.feed_forward(g.norm(g.op("Add", first, attended), f"{layer}.aln"), layer)


if __name__ == "__main__":
    GRAPH.write_bytes(build().SerializeToString(deterministic=True))
    print(f"{GRAPH.name}: {GRAPH.stat().st_size} bytes")

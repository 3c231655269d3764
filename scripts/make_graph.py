"""Write the ONNX graphs of the built-in model: operators and names only; `recto-1.npz` has the weights.

Run it after a change of a graph: ``python -m scripts.make_graph``. A test compares the files with the
output of this script.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx import TensorProto, helper

from recto.embedders.granite.embedder import VARIANTS
from recto.embedders.granite.weights import Arrays, layout, read_calibration
from recto.settings import Precision

HIDDEN, LAYERS, HEADS = 384, 6, 12
GROUP = 64
HEAD = HIDDEN // HEADS
EPSILON = 1e-12
OPSET = 20
FUSED = "com.microsoft"


class Graph:
    """Collects nodes and initialisers; each method adds one operator and returns the name of its output."""

    gelu = "none"

    def __init__(self, arrays: Arrays, file: str) -> None:
        self.arrays = arrays
        self.file = file
        self.places = layout(arrays)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name: str) -> str:
        """Name a weight, and set its position in the file of weights."""
        if all(known.name != name for known in self.initializers):
            array = self.arrays[name]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            tensor = TensorProto(
                name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL
            )
            for key, value in (
                ("location", self.file),
                ("offset", self.places[name]),
                ("length", array.nbytes),
            ):
                tensor.external_data.add(key=key, value=str(value))
            self.initializers.append(tensor)
        return name

    def ints(self, *values: int) -> str:
        name = "ints_" + "_".join(str(value) for value in values).replace("-", "m")
        if all(known.name != name for known in self.initializers):
            self.initializers.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], list(values)))
        return name

    def scalar(self, name: str, value: float, kind: int = TensorProto.FLOAT) -> str:
        if all(known.name != name for known in self.initializers):
            self.initializers.append(helper.make_tensor(name, kind, [], [value]))
        return name

    def index(self, name: str, value: int) -> str:
        return self.scalar(name, value, TensorProto.INT64)

    def linear(self, x: str, name: str) -> str:
        return self.op("Gemm", x, self.weight(f"{name}.w"), self.weight(f"{name}.b"), transB=1)

    def norm(self, x: str, name: str) -> str:
        return self.op(
            "LayerNormalization",
            x,
            self.weight(f"{name}.w"),
            self.weight(f"{name}.b"),
            axis=-1,
            epsilon=EPSILON,
        )

    def heads(self, x: str, shape: str) -> str:
        """Reshape [batch, tokens, heads, head] to [batch, heads, tokens, head]."""
        return self.op("Transpose", self.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def attend(self, query: str, key: str, value: str, bias: str) -> str:
        scaled = self.op("Mul", query, self.scalar("scale", HEAD**-0.5))
        scores = self.op("MatMul", scaled, self.op("Transpose", key, perm=[0, 1, 3, 2]))
        weights = self.op("Softmax", self.op("Add", scores, bias), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.op("Reshape", mixed, self.ints(-1, HIDDEN))

    def feed_forward(self, x: str, layer: str) -> str:
        inner = self.op("Gelu", self.linear(x, f"{layer}.f1"), approximate=self.gelu)
        outer = self.linear(inner, f"{layer}.f2")
        return self.norm(self.op("Add", x, outer), f"{layer}.fln")


QUANTIZED_BY_TOKEN = (".qkv", ".q", ".kv", ".f2")


class Int8Graph(Graph):
    """The same graph with int8 products: inputs are quantized to their measured range, sums are exact.

    With fast products the other operators matter, so this graph uses those that onnxruntime computes fastest.
    Its LayerNormalization handles one number at a time; InstanceNormalization of `[batch, tokens, hidden]` is
    the same without the weights, and handles several. The tanh form of GELU differs from the exact one by
    0.0005 at most, which is far less than one step of int8.
    """

    gelu = "tanh"

    def __init__(self, arrays: Arrays, file: str) -> None:
        super().__init__(arrays, file)
        self.calibration = read_calibration()
        self.ones = self.zeros = ""

    def linear(self, x: str, name: str) -> str:
        if f"{name}.inverse" in self.arrays:
            x = self.op("Mul", x, self.weight(f"{name}.inverse"))
        weights, scales, bias = (
            self.weight(f"{name}.w8"),
            self.weight(f"{name}.scales"),
            self.weight(f"{name}.b"),
        )
        if name.endswith(QUANTIZED_BY_TOKEN):
            return self.by_token(x, weights, scales, bias)
        measured = self.calibration[name]
        scale = self.scalar(f"{name}.scale", measured.scale)
        zero = self.scalar(f"{name}.zero", measured.zero, TensorProto.UINT8)
        small = self.op("QuantizeLinear", x, scale, zero)
        return self.op("MatMulIntegerToFloat", small, weights, scale, scales, zero, "", bias, domain=FUSED)

    def by_token(self, x: str, weights: str, scales: str, bias: str) -> str:
        """Multiply after quantizing each token to its own range instead of the measured one.

        For the inputs of attention and of the second feed-forward product this halves the error, and costs
        6 % of the time. The other inputs would bring less.
        """
        largest = self.op("ReduceMax", self.op("Abs", x), self.ints(-1), keepdims=1)
        scale = self.scalar("token.scale", 1 / 127)
        zero = self.scalar("token.zero", 128, TensorProto.UINT8)
        small = self.op("QuantizeLinear", self.op("Div", x, largest), scale, zero)
        product = self.op("MatMulIntegerToFloat", small, weights, scale, scales, zero, "", "", domain=FUSED)
        return self.op("Add", self.op("Mul", product, largest), bias)

    def same(self, value: float, size: str) -> str:
        """Return a vector of one value for each token."""
        return self.op(
            "ConstantOfShape", size, value=helper.make_tensor("value", TensorProto.FLOAT, [1], [value])
        )

    def norm(self, x: str, name: str) -> str:
        normal = self.op("InstanceNormalization", x, self.ones, self.zeros, epsilon=EPSILON)
        return self.op("Add", self.op("Mul", normal, self.weight(f"{name}.w")), self.weight(f"{name}.b"))

    def attention(self, query: str, key: str, value: str, mask: str) -> str:
        return self.op("MultiHeadAttention", query, key, value, "", mask, num_heads=HEADS, domain=FUSED)

    def split(self, x: str, layer: str, *parts: str) -> list[str]:
        names = [f"{layer}.{part}" for part in parts]
        count = len(names)
        self.nodes.append(
            helper.make_node("Split", [x], names, name=f"{layer}.split", axis=-1, num_outputs=count)
        )
        return names


def looked_up(g: Graph) -> tuple[str, str, str]:
    """Look up the tokens' int8 rows and scale only those: the table itself is never expanded.

    Return the vectors of words and of positions, and the number of tokens.
    """
    rows = g.op("Cast", g.op("Gather", g.weight("word.q"), "ids"), to=1)
    scales = g.op("Gather", g.weight("word.s"), "ids")
    grouped = g.op("Reshape", rows, g.ints(0, 0, HIDDEN // GROUP, GROUP))
    words = g.op("Mul", grouped, g.op("Unsqueeze", scales, g.ints(-1)))
    words = g.op("Reshape", words, g.ints(0, 0, HIDDEN))
    tokens = g.op("Shape", "ids", start=1, end=2)
    positions = g.op("Slice", g.weight("positions"), g.ints(0), tokens, g.ints(0))
    return words, positions, tokens


def embeddings(g: Graph) -> str:
    """Return the tokens' first vectors, all in one table."""
    words, positions, _ = looked_up(g)
    return g.norm(g.op("Reshape", g.op("Add", words, positions), g.ints(-1, HIDDEN)), "emb_ln")


def build(precision: Precision = "fp32") -> onnx.ModelProto:
    """Build the model: token ids and an additive mask in, one normalised vector per text out."""
    variant = VARIANTS[precision]
    if precision == "int8":
        return int8_model(Int8Graph(variant.make(), variant.weights.name))
    g = Graph(variant.make(), variant.weights.name)
    x, split, bias = beginning(g)
    for number in range(LAYERS - 1):
        x = layer_of_all(g, x, f"l{number}", split, bias)
    return finished(g, last_layer(g, x, split, bias))


def beginning(g: Graph) -> tuple[str, str, str]:
    """Return the tokens' first vectors, the shape that splits vectors into heads, and the padding mask."""
    split = g.op("Concat", g.op("Shape", "ids"), g.ints(HEADS, HEAD), axis=0)
    return embeddings(g), split, g.op("Unsqueeze", "mask", g.ints(1, 2))


def layer_of_all(g: Graph, x: str, layer: str, split: str, bias: str) -> str:
    """Compute a layer for all tokens."""
    mixed = g.linear(x, f"{layer}.qkv")
    parts = [f"{layer}.{part}" for part in ("query", "key", "value")]
    g.nodes.append(helper.make_node("Split", [mixed], parts, name=f"{layer}.split", axis=-1, num_outputs=3))
    query, key, value = (g.heads(part, split) for part in parts)
    attended = g.linear(g.attend(query, key, value, bias), f"{layer}.ao")
    return g.feed_forward(g.norm(g.op("Add", x, attended), f"{layer}.aln"), layer)


def first_token(g: Graph, x: str) -> str:
    """Select each text's first token."""
    shape = g.op("Concat", g.op("Shape", "ids"), g.ints(HIDDEN), axis=0)
    return g.op("Gather", g.op("Reshape", x, shape), g.index("first", 0), axis=1)


def last_layer(g: Graph, x: str, split: str, bias: str) -> str:
    """Compute the last layer for the first token only: the others are not used after it."""
    layer = f"l{LAYERS - 1}"
    first = first_token(g, x)
    query = g.heads(g.linear(first, f"{layer}.q"), g.ints(-1, 1, HEADS, HEAD))
    both = g.linear(x, f"{layer}.kv")
    parts = [f"{layer}.key", f"{layer}.value"]
    g.nodes.append(helper.make_node("Split", [both], parts, name=f"{layer}.split", axis=-1, num_outputs=2))
    key, value = (g.heads(part, split) for part in parts)
    attended = g.attend(query, key, value, bias)
    attended = g.linear(attended, f"{layer}.ao")
    return g.feed_forward(g.norm(g.op("Add", first, attended), f"{layer}.aln"), layer)


def int8_model(g: Int8Graph) -> onnx.ModelProto:
    """Build the int8 model, whose vectors are `[batch, tokens, hidden]` throughout."""
    words, positions, tokens = looked_up(g)
    # An Add would lose the names of the dimensions, and loading a graph without them takes twice as long.
    norm = (g.weight("emb_ln.w"), g.weight("emb_ln.b"))
    x = g.op("SkipLayerNormalization", words, positions, *norm, epsilon=EPSILON, domain=FUSED)
    mask = g.op("Cast", g.op("Equal", "mask", g.scalar("unmasked", 0.0)), to=TensorProto.INT32)
    g.ones, g.zeros = g.same(1.0, tokens), g.same(0.0, tokens)
    for number in range(LAYERS - 1):
        layer = f"l{number}"
        query, key, value = g.split(g.linear(x, f"{layer}.qkv"), layer, "query", "key", "value")
        attended = g.linear(g.attention(query, key, value, mask), f"{layer}.ao")
        x = g.feed_forward(g.norm(g.op("Add", x, attended), f"{layer}.aln"), layer)
    layer = f"l{LAYERS - 1}"  # for the first token only
    first = g.op("Slice", x, g.ints(0), g.ints(1), g.ints(1))
    g.ones, g.zeros = g.same(1.0, g.ints(1)), g.same(0.0, g.ints(1))
    key, value = g.split(g.linear(x, f"{layer}.kv"), layer, "key", "value")
    attended = g.linear(g.attention(g.linear(first, f"{layer}.q"), key, value, mask), f"{layer}.ao")
    x = g.feed_forward(g.norm(g.op("Add", first, attended), f"{layer}.aln"), layer)
    return finished(g, g.op("Reshape", x, g.ints(-1, HIDDEN)))


def finished(g: Graph, vector: str) -> onnx.ModelProto:
    """Normalise the vectors and complete the graph."""
    g.nodes.append(helper.make_node("LpNormalization", [vector], ["vectors"], name="normalise", axis=-1, p=2))
    graph = helper.make_graph(
        g.nodes,
        "recto-1",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "tokens"]),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", "tokens"]),
        ],
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["batch", HIDDEN])],
        g.initializers,
    )
    operators = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    model = helper.make_model(graph, opset_imports=operators, producer_name="recto")
    model.ir_version = 10
    return model


if __name__ == "__main__":
    for each in VARIANTS:
        path = VARIANTS[each].graph
        path.write_bytes(build(each).SerializeToString(deterministic=True))
        print(f"{path.name}: {path.stat().st_size} bytes")

"""Measure the ranges of the inputs of the built-in model's matrix products, for its int8 variant.

``uv run python -m scripts.calibrate_int8`` writes the figures, the graphs, and the vector of a known text; it
takes a minute or two. The hash of the weights in `recto.embedders.granite.embedder` changes with them; a test
reports it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from recto.api import sample_source
from recto.book.chunking import ChunkSize, chunk_page
from recto.book.parsing.formats import read
from recto.embedders.granite.embedder import MAX_TOKENS, PROBE, VARIANTS
from recto.embedders.granite.weights import CALIBRATION, LINEAR, Pack, find_pack, read_pack
from recto.embedders.onnx import Weights, new_session, new_tokenizer
from scripts import make_graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ranges = dict[str, tuple["NDArray[Any]", "NDArray[Any]"]]
"""The minimum and the maximum of each channel, for each product."""

_SHARE, _SHARE_AFTER_GELU = (
    0.7,
    0.9,
)  # how much of a channel's range moves into the weights; the channels of GELU differ most
_MARGIN = 1.3  # other books exceed the sample's range, and clipped values cost more than coarser steps
_LEAST = 1e-5
_THREADS = 2


def texts(pack: Pack) -> list[list[int]]:
    """Return the tokens of every chunk of the sample book."""
    tokenizer = new_tokenizer(pack.tokenizer)
    source = sample_source()
    return [
        tokenizer.encode(passage.embedded).ids
        for page in source.pages()
        for passage in chunk_page(
            page, read(page), source.book, lambda text: len(tokenizer.encode(text)), MAX_TOKENS, ChunkSize()
        )
    ]


def measure(pack: Pack, rows: Iterable[list[int]]) -> Ranges:
    """Run the fp32 graph with the inputs of all products as outputs, and record their ranges."""
    model = make_graph.build()
    inputs = {
        node.input[1].removesuffix(".w"): node.input[0] for node in model.graph.node if node.op_type == "Gemm"
    }
    for name in dict.fromkeys(inputs.values()):
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    session = new_session(model.SerializeToString(), _THREADS, Weights(arrays=pack.weights))
    names = [output.name for output in session.get_outputs()]
    ranges: Ranges = {}
    for row in rows:
        ids = np.array([row], np.int64)
        found = dict(
            zip(names, session.run(names, {"ids": ids, "mask": np.zeros(ids.shape, np.float32)}), strict=True)
        )
        for product, name in inputs.items():
            values = found[name].reshape(-1, found[name].shape[-1])
            low, high = ranges.get(product, (values[0], values[0]))
            ranges[product] = np.minimum(low, values.min(axis=0)), np.maximum(high, values.max(axis=0))
    return ranges


def figures(pack: Pack, ranges: Ranges) -> dict[str, NDArray[Any]]:
    """Choose factors, a scale and a zero point for each product."""
    found: dict[str, NDArray[Any]] = {}
    for name in LINEAR:
        low, high = ranges[name]
        if name.endswith(".f2"):  # values that are small in the sample may be large in another book
            high = np.maximum(high, np.median(np.maximum(-low, high)))
        share = _SHARE_AFTER_GELU if name.endswith(".f2") else _SHARE
        reach = np.maximum(np.maximum(-low, high), _LEAST)
        weight = np.maximum(np.abs(pack.weights[f"{name}.w"]).max(axis=0), _LEAST)
        factors = reach**share / weight ** (1 - share)
        factors = (factors / np.exp(np.log(factors).mean())).astype(np.float16)
        least, most = min(float((low / factors).min()), 0.0), max(float((high / factors).max()), 0.0)
        scale = np.float32(_MARGIN * (most - least) / 255)
        found[f"{name}.factors"] = factors
        found[f"{name}.scale"] = np.array(scale)
        found[f"{name}.zero"] = np.array(round(-_MARGIN * least / float(scale)), np.uint8)
    return found


def probe(path: Path) -> None:
    """Write the vector of the known text."""
    variant = VARIANTS["int8"]
    session = new_session(variant.graph.read_bytes(), 1, Weights(arrays=variant.make(find_pack())))
    ids = np.array([PROBE], np.int64)
    session.run(["vectors"], {"ids": ids, "mask": np.zeros(ids.shape, np.float32)})[0][0].tofile(path)


def main() -> None:
    """Write all files of the int8 variant."""
    pack = read_pack(find_pack())
    np.savez(CALIBRATION, **figures(pack, measure(pack, texts(pack))))  # type: ignore[arg-type]
    for precision in VARIANTS:
        VARIANTS[precision].graph.write_bytes(
            make_graph.build(precision).SerializeToString(deterministic=True)
        )
    path = VARIANTS["int8"].probe
    if path:
        probe(path)
    print(f"{CALIBRATION.name}: {CALIBRATION.stat().st_size} bytes")


if __name__ == "__main__":
    main()

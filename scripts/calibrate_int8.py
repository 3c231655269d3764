"""Measure the ranges of the inputs of the built-in model's matrix products, for its int8 variant.

``python -m scripts.calibrate_int8`` writes the figures, the graphs and the vectors of a known text. It
takes a minute or two. The factors of the channels stay as they are, because recto-en-1 was trained with them.
The number of the variant in `recto.embedders.granite.embedder` changes with the figures.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from recto.api import sample_source
from recto.book.chunking import ChunkSize, chunk_page
from recto.book.parsing import read
from recto.embedders.granite.bpe import MergeRules
from recto.embedders.granite.embedder import MAX_TOKENS, PROBE, VARIANTS, Variant
from recto.embedders.granite.weights import CALIBRATION, MERGES, Arrays, read_calibration
from recto.embedders.onnx import Weights, new_session, new_tokenizer
from recto.evaluation.suites import documented_suite
from scripts import make_graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ranges = dict[str, tuple["NDArray[Any]", "NDArray[Any]"]]
"""The minimum and the maximum of each channel, for each product."""

_THREADS = 2


def texts() -> list[list[int]]:
    """Return the tokens of every chunk of the sample book, and of the queries of its suite."""
    tokenizer = new_tokenizer(MergeRules(MERGES).description())
    source = sample_source()
    chunks = [
        passage.embedded
        for page in source.pages()
        for passage in chunk_page(
            page, read(page), source.book, lambda text: len(tokenizer.encode(text)), MAX_TOKENS, ChunkSize()
        )
    ]
    queries = [expectation.query for expectation in documented_suite().expectations]
    return [encoding.ids for encoding in tokenizer.encode_batch(chunks + queries)]


def measure(weights: Arrays, rows: Iterable[list[int]]) -> Ranges:
    """Run the fp32 graph with the inputs of all products as outputs, and record their ranges."""
    model = make_graph.build()
    inputs = {
        node.input[1].removesuffix(".w"): node.input[0] for node in model.graph.node if node.op_type == "Gemm"
    }
    for name in dict.fromkeys(inputs.values()):
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    session = new_session(model.SerializeToString(), _THREADS, Weights(arrays=weights))
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


def figures(measured: Ranges) -> dict[str, NDArray[Any]]:
    """Return the factors, and a scale and a zero point for each product."""
    found: dict[str, NDArray[Any]] = {}
    for name, known in read_calibration().items():
        edges = [0.0]
        # Attention's values are divided already.
        factors = np.float32(1) if name.endswith(".ao") else known.factors
        edges += [float(part) for edge in measured[name] for part in edge / factors]
        scale = np.float32((max(edges) - min(edges)) / 255)
        found[f"{name}.factors"] = known.factors.astype(np.float16)
        found[f"{name}.scale"] = np.array(scale)
        found[f"{name}.zero"] = np.array(round(-min(edges) / float(scale)), np.uint8)
    return found


def probe(variant: Variant, path: Path) -> None:
    """Write the vector of the known text."""
    session = new_session(variant.graph.read_bytes(), 1, Weights(arrays=variant.make()))
    ids = np.array([PROBE], np.int64)
    session.run(["vectors"], {"ids": ids, "mask": np.zeros(ids.shape, np.float32)})[0][0].tofile(path)


def main() -> None:
    """Write all files of the int8 variants."""
    np.savez(CALIBRATION, **figures(measure(VARIANTS["fp32"].make(), texts())))  # type: ignore[arg-type]
    for precision, variant in VARIANTS.items():
        variant.graph.write_bytes(make_graph.build(precision).SerializeToString(deterministic=True))
        if variant.probe:
            probe(variant, variant.probe)
    print(f"{CALIBRATION.name}: {CALIBRATION.stat().st_size} bytes")


if __name__ == "__main__":
    main()

"""Put the built-in model together: granite-embedding-30m-english from its pack, run by Recto's own graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from recto._util.files import sha256
from recto.embedders.granite.bpe import AsciiTokenizer, ascii_words
from recto.embedders.granite.runtime import check_vector, open_graph
from recto.embedders.granite.weights import (
    Arrays,
    cached_weights,
    check_pack,
    find_pack,
    quantize,
    read_calibration,
    read_pack,
    read_tokenizer,
)
from recto.embedders.onnx import (
    LocalEmbedder,
    RunModel,
    Sessions,
    Weights,
    has_int8_dot_product,
    new_tokenizer,
)
from recto.settings import BUILT_IN_MODEL, Precision
from recto.types import EmbedderFingerprint

if TYPE_CHECKING:
    from tokenizers import Tokenizer

REVISION = "9b5b096411652ec1189c68fcfb90d0a82c5b45af"
MAX_TOKENS = 512
PROBE = (0, 2264, 16, 10, 8304, 116, 2)
"""The tokens of a short text with a known int8 vector, to detect a processor that computes int8 wrongly."""
_PROBE_COPIES = 5  # more than 32 tokens: from there on, AMX multiplies in another way
_HERE = Path(__file__).parent
_MERGES = _HERE / "granite-merges.bin"


@dataclass(frozen=True, slots=True)
class Variant:
    """A precision of the model: its graph, its weight file, and the hash of that file."""

    fingerprint: EmbedderFingerprint
    graph: Path
    weights: str
    sha256: str
    make: Callable[[Path], Arrays]
    probe: Path | None = None


def fingerprint_of(variant: str) -> EmbedderFingerprint:
    """Return the fingerprint of a variant of the built-in model."""
    return EmbedderFingerprint(f"ibm-granite/{BUILT_IN_MODEL}", REVISION, dim=384, variant=variant)


VARIANTS: dict[Precision, Variant] = {
    "fp32": Variant(
        fingerprint_of("int8-weights-fp32"),
        _HERE / "granite.onnx",
        "granite-fp32.weights",
        "9f76b25c00bcefddc91fe75d6d5e2fdfab1241fe7edd4319fe162d4d7e242190",
        lambda pack: read_pack(pack).weights,
    ),
    "int8": Variant(
        fingerprint_of("int8-2"),  # the number changes with the graph or the calibration
        _HERE / "granite-int8.onnx",
        "granite-int8.weights",
        "69eab2c45511f55890901d447c87716daf8084a502409ff283bb67d86cb91d7c",
        lambda pack: quantize(read_pack(pack).weights, read_calibration()),
        _HERE / "granite-int8-probe.f32",
    ),
}
FINGERPRINT = VARIANTS["fp32"].fingerprint


def granite_embedder(
    home: Path, threads: int, precision: Precision = "fp32", *, single_query: bool = False
) -> LocalEmbedder:
    """Return the built-in embedder; `home` caches its weights.

    `single_query` skips the optimization of the graph, which takes as long as a dozen queries.
    """
    variant = cpu_variant(precision)
    open_for = graph_opener(home, variant, single_query=single_query)

    def open_for_documents() -> RunModel:
        """Open the graph for many texts: the first query may have to index the sample book."""
        return graph_opener(home, variant)(1)

    sessions = Sessions(open_for, threads, open_for_documents if single_query else None)
    return LocalEmbedder(
        variant.fingerprint,
        MAX_TOKENS,
        lambda: open_tokenizer(home),
        sessions,
        threads,
        fast_tokenize(),
        ascii_words,
    )


def cpu_variant(precision: Precision) -> Variant:
    """Return the variant that runs on the CPU; `auto` depends on the processor."""
    if precision in VARIANTS:
        return VARIANTS[precision]
    return VARIANTS["int8" if has_int8_dot_product() else "fp32"]


def graph_opener(home: Path, variant: Variant, *, single_query: bool = False) -> Callable[[int], RunModel]:
    """Return a function that opens the graph of a variant for a number of threads."""

    @cache
    def weights() -> Weights:
        return cached_weights(
            home / "cache", variant.weights, variant.sha256, lambda: variant.make(checked_pack(home))
        )

    def open_for(threads: int) -> RunModel:
        # Where int8 weights must be unsigned (`session_settings`), optimizing the graph makes them so.
        quick = single_query and (variant.probe is None or has_int8_dot_product())
        run = open_graph(variant.graph, weights(), threads, single_query=quick)
        if variant.probe:
            check_vector(run, PROBE, variant.probe, copies=1 if single_query else _PROBE_COPIES)
        return run

    return open_for


def checked_pack(home: Path) -> Path:
    """Return the path of the installed pack after a check of its hash."""
    pack = find_pack()
    check_pack(pack, home / "cache" / "model-pack.json")
    return pack


def open_tokenizer(home: Path) -> Tokenizer:
    """Load the tokenizer of the pack."""
    return new_tokenizer(read_tokenizer(checked_pack(home)))


def fast_tokenize() -> Callable[[str], list[int] | None]:
    """Return the tokenizer of ASCII queries."""
    return AsciiTokenizer(_MERGES).encode


def remove_damaged_weights(cache: Path) -> list[str]:
    """Remove cached weights that do not have the expected hash, and return their names.

    They are made again when the model is opened.
    """
    damaged = [
        variant.weights
        for variant in VARIANTS.values()
        if (cache / variant.weights).exists() and sha256(cache / variant.weights) != variant.sha256
    ]
    for name in damaged:
        (cache / name).unlink()
    return damaged

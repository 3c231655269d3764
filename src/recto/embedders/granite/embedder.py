"""The built-in model: granite-embedding-30m-english from its pack, run by our own small graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from recto.embedders.granite.bpe import PlainTokenizer
from recto.embedders.granite.model_pack import check_pack, find_pack, read_pack, read_tokenizer
from recto.embedders.granite.runtime import check_vector, open_graph
from recto.embedders.granite.weight_cache import Arrays, prepared
from recto.embedders.onnx import LocalEmbedder, Run, Sessions, Weights, has_int8_dot_product, new_tokenizer
from recto.settings import Precision
from recto.types import EmbedderFingerprint

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAME = "granite-embedding-30m-english"
REVISION = "9b5b096411652ec1189c68fcfb90d0a82c5b45af"
MAX_TOKENS = 512
PROBE = (0, 2264, 16, 10, 8304, 116, 2)
"""A short text's tokens, whose int8 vector is known: a processor that cannot compute it is found out before it is used."""
_PROBE_COPIES = 5  # together more than 32 tokens, from which on AMX multiplies in another way


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to compute the model: its graph, its file of weights, and the hash of that file."""

    fingerprint: EmbedderFingerprint
    graph: Path
    weights: str
    sha256: str
    make: Callable[[Path], Arrays]
    probe: Path | None = None


def _as_stored(pack: Path) -> Arrays:
    return read_pack(pack).weights


def _in_int8(pack: Path) -> Arrays:
    from recto.embedders.granite.int8 import quantised, read_calibration

    return quantised(read_pack(pack).weights, read_calibration())


def _fingerprint(variant: str) -> EmbedderFingerprint:
    return EmbedderFingerprint(f"ibm-granite/{NAME}", REVISION, dim=384, variant=variant)


_HERE = Path(__file__).parent
_MERGES = _HERE / "granite-merges.bin"
VARIANTS: dict[Precision, Variant] = {
    "fp32": Variant(
        _fingerprint("int8-weights-fp32"),
        _HERE / "granite.onnx",
        "granite-fp32.weights",
        "9f76b25c00bcefddc91fe75d6d5e2fdfab1241fe7edd4319fe162d4d7e242190",
        _as_stored,
    ),
    "int8": Variant(
        _fingerprint("int8-2"),  # another graph or calibration gives other vectors, and another number
        _HERE / "granite-int8.onnx",
        "granite-int8.weights",
        "69eab2c45511f55890901d447c87716daf8084a502409ff283bb67d86cb91d7c",
        _in_int8,
        _HERE / "granite-int8-probe.f32",
    ),
}
FINGERPRINT = VARIANTS["fp32"].fingerprint


def fastest_precision() -> Precision:
    """Return the precision that this processor computes fastest."""
    return "int8" if has_int8_dot_product() else "fp32"


def granite_embedder(
    home: Path, threads: int, precision: Precision = "fp32", *, single_query: bool = False
) -> LocalEmbedder:
    """Make the built-in embedder; `home` keeps its weights as they are used, and remembers that the pack was checked.

    A process that asks `once` does not arrange the weights for speed first, which takes as long as a dozen questions.
    """
    variant = VARIANTS[fastest_precision() if precision == "auto" else precision]

    def checked_pack() -> Path:
        pack = find_pack()
        check_pack(pack, home / "cache" / "model-pack.json")
        return pack

    @cache
    def weights() -> Weights:
        return prepared(home / "cache", variant.weights, variant.sha256, lambda: variant.make(checked_pack()))

    def open_for(threads: int, *, single_query: bool = single_query) -> Run:
        # Where int8 weights must be unsigned (see `session_settings`), optimising the graph makes them so.
        quick = single_query and (variant.probe is None or has_int8_dot_product())
        run = open_graph(variant.graph, weights(), threads, single_query=quick)
        if variant.probe:
            check_vector(run, PROBE, variant.probe, copies=1 if single_query else _PROBE_COPIES)
        return run

    def open_for_passages() -> Run:
        """Open it for many texts, whatever it was opened for before: a first question may find that the book has to be indexed."""
        return open_for(1, single_query=False)

    def open_tokenizer() -> Tokenizer:
        return new_tokenizer(read_tokenizer(checked_pack()))

    sessions = Sessions(open_for, threads, open_for_passages if single_query else None)
    return LocalEmbedder(
        variant.fingerprint, MAX_TOKENS, open_tokenizer, sessions, threads, PlainTokenizer(_MERGES).encode
    )

"""The built-in model: granite-embedding-30m-english from its pack, run by our own small graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recto.embedders.local import LocalEmbedder, Model
from recto.embedders.pack import check_pack, find_pack, read_pack, read_tokenizer
from recto.embedders.prepared import Arrays, prepared
from recto.embedders.session import Run, Sessions, Weights, new_session, new_tokenizer
from recto.errors import ConfigurationError
from recto.remote import Tell
from recto.settings import Precision
from recto.types import EmbedderFingerprint

NAME = "granite-embedding-30m-english"
REVISION = "9b5b096411652ec1189c68fcfb90d0a82c5b45af"
MAX_TOKENS = 512
PROBE = (0, 2264, 16, 10, 8304, 116, 2)
"""A short text's tokens, whose int8 vector is known: a processor that cannot compute it is found out before it is used."""

_PADDING = 1
_MASKED = -1e9  # added to the attention scores of padding, so that softmax gives it nothing
_NEAR = 0.999  # processors differ in the last digits of what is not int8; a sum that overflows gives something else altogether


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
    from recto.embedders.int8 import quantised, read_calibration

    return quantised(read_pack(pack).weights, read_calibration())


def _fingerprint(variant: str) -> EmbedderFingerprint:
    return EmbedderFingerprint(f"ibm-granite/{NAME}", REVISION, dim=384, variant=variant)


_HERE = Path(__file__).parent
VARIANTS: dict[Precision, Variant] = {
    "fp32": Variant(
        _fingerprint("int8-weights-fp32"),
        _HERE / "granite.onnx",
        "granite-fp32.weights",
        "9f76b25c00bcefddc91fe75d6d5e2fdfab1241fe7edd4319fe162d4d7e242190",
        _as_stored,
    ),
    "int8": Variant(
        _fingerprint("int8-1"),  # another calibration gives other vectors, and another number
        _HERE / "granite-int8.onnx",
        "granite-int8.weights",
        "8df78816d0c26672f5140adc2da4ba3fcfe13178a1b23e4d0808d842cc8fbc45",
        _in_int8,
        _HERE / "granite-int8-probe.npy",
    ),
}
VARIANTS["bf16"] = replace(VARIANTS["fp32"], fingerprint=_fingerprint("int8-weights-bf16"))
FINGERPRINT = VARIANTS["fp32"].fingerprint


def granite_embedder(home: Path, threads: int, precision: Precision = "fp32", tell: Tell = print) -> LocalEmbedder:
    """Make the built-in embedder; `home` keeps its weights as they are used, and remembers that the pack was checked."""
    variant = VARIANTS[precision]

    def load() -> Model:
        pack = find_pack()
        check_pack(pack, home / "cache" / "model-pack.json")
        weights = prepared(home / "cache", variant.weights, variant.sha256, lambda: variant.make(pack))

        def open_in_bf16() -> Run:
            from recto.embedders.openvino import Portable, in_bf16

            return in_bf16(_open(variant, weights, 1), Portable(variant.graph, weights, _inputs, PROBE), threads, tell)

        passages = open_in_bf16 if precision == "bf16" else None
        sessions = Sessions(lambda threads: _open(variant, weights, threads), threads, passages)
        return Model(new_tokenizer(read_tokenizer(pack)), sessions, _PADDING)

    return LocalEmbedder(variant.fingerprint, MAX_TOKENS, load, threads)


def _open(variant: Variant, weights: Weights, threads: int) -> Run:
    session = new_session(variant.graph.read_bytes(), threads, weights)

    def run(ids: Any, mask: Any) -> Any:
        return session.run(["vectors"], _inputs(ids, mask))[0]

    if variant.probe:
        _check(run, variant.probe)
    return run


def _inputs(ids: Any, mask: Any) -> dict[str, Any]:
    return {"ids": ids, "mask": (1 - mask.astype("float32")) * _MASKED}


def _check(run: Run, probe: Path) -> None:
    """Compute a text whose vector is known."""
    import numpy as np

    ids = np.array([PROBE], np.int64)
    if not float(run(ids, np.ones_like(ids))[0] @ np.load(probe)) >= _NEAR:
        raise ConfigurationError(
            "RECTO_PRECISION=int8 gives wrong numbers on this processor",
            hint="Unset RECTO_PRECISION, and index again what was indexed with it.",
        )

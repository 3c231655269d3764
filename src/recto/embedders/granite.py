"""The built-in model: granite-embedding-30m-english from its pack, run by our own small graph."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto.embedders.local import LocalEmbedder
from recto.embedders.pack import check_pack, find_pack, read_pack, read_tokenizer
from recto.embedders.plain import PlainTokenizer
from recto.embedders.prepared import Arrays, prepared
from recto.embedders.runtime import OnnxError, Session, find_library
from recto.embedders.session import SETTINGS, WEIGHTS_FOLDER, Run, Sessions, Weights, cannot_open, new_session, new_tokenizer
from recto.errors import ConfigurationError
from recto.settings import Precision
from recto.types import EmbedderFingerprint

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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
        _fingerprint("int8-1"),  # another calibration gives other vectors, and another number
        _HERE / "granite-int8.onnx",
        "granite-int8.weights",
        "8df78816d0c26672f5140adc2da4ba3fcfe13178a1b23e4d0808d842cc8fbc45",
        _in_int8,
        _HERE / "granite-int8-probe.f32",
    ),
}
FINGERPRINT = VARIANTS["fp32"].fingerprint


def granite_embedder(home: Path, threads: int, precision: Precision = "fp32", *, once: bool = False) -> LocalEmbedder:
    """Make the built-in embedder; `home` keeps its weights as they are used, and remembers that the pack was checked.

    A process that asks `once` does not arrange the weights for speed first, which takes as long as a dozen questions.
    """
    variant = VARIANTS[precision]

    def checked_pack() -> Path:
        pack = find_pack()
        check_pack(pack, home / "cache" / "model-pack.json")
        return pack

    @cache
    def weights() -> Weights:
        return prepared(home / "cache", variant.weights, variant.sha256, lambda: variant.make(checked_pack()))

    def open_tokenizer() -> Tokenizer:
        return new_tokenizer(read_tokenizer(checked_pack()))

    sessions = Sessions(lambda threads: _open(variant, weights(), threads, once), threads)
    return LocalEmbedder(variant.fingerprint, MAX_TOKENS, open_tokenizer, sessions, threads, PlainTokenizer(_MERGES).encode)


def _open(variant: Variant, weights: Weights, threads: int, once: bool) -> Run:
    library = find_library()
    if library is None or weights.folder is None:
        run = _open_by_python(variant, weights, threads)
    else:
        run = _open_by_library(library, variant, weights.folder, threads, once)
    if variant.probe:
        _check(run, variant.probe)
    return run


def _open_by_library(library: Path, variant: Variant, folder: Path, threads: int, once: bool) -> Run:
    settings = {**SETTINGS, WEIGHTS_FOLDER: str(folder), "session.disable_prepacking": "1" if once else "0"}
    try:
        session = Session(library, variant.graph.read_bytes(), threads, settings, optimise=not once)
    except OnnxError as error:
        raise cannot_open(error) from error

    def run(rows: Sequence[Sequence[int]]) -> Sequence[Sequence[float]]:
        return session.run(_padded(rows), len(rows), "vectors")

    return run


def _open_by_python(variant: Variant, weights: Weights, threads: int) -> Run:
    session = new_session(variant.graph.read_bytes(), threads, weights)

    def run(rows: Sequence[Sequence[int]]) -> Any:
        import numpy as np

        shaped = {name: np.array(numbers).reshape(len(rows), -1) for name, numbers in _padded(rows).items()}
        return session.run(["vectors"], shaped)[0].tolist()

    return run


def _padded(rows: Sequence[Sequence[int]]) -> dict[str, array[Any]]:
    """Return the graph's inputs: tokens filled up to the longest row, and what is added to the attention to each."""
    longest = max(len(row) for row in rows)
    ids, mask = array("q"), array("f")
    for row in rows:
        rest = longest - len(row)
        ids.extend((*row, *[_PADDING] * rest))
        mask.extend((*[0.0] * len(row), *[_MASKED] * rest))
    return {"ids": ids, "mask": mask}


def _check(run: Run, probe: Path) -> None:
    """Compute a text whose vector is known."""
    known = array("f", probe.read_bytes())
    if not sum(map(mul, run([PROBE])[0], known)) >= _NEAR:
        raise ConfigurationError(
            "RECTO_PRECISION=int8 gives wrong numbers on this processor",
            hint="Unset RECTO_PRECISION, and index again what was indexed with it.",
        )

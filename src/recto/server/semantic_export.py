"""Static search by meaning: the model as files, and the vectors of the chunks (decision 17)."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from recto._util.languages import detection_rules
from recto.embedders.granite.embedder import FINGERPRINT
from recto.embedders.granite.weights import LAST, LINEAR, MERGES, read_calibration, read_int8
from recto.errors import ConfigurationError, install_command
from recto.protocols import Index
from recto.search.lexical import SINGLE_WORD_WEIGHT
from recto.search.response import COVERAGE_RULES
from recto.settings import index_command
from recto.stores import candidate_limit
from recto.types.search import LEXICAL_WEIGHT, Chunk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Semantic = Literal["auto", "on", "off"]

POSITIONS = 128
"""The tokens of a query that the browser embeds: more would take seconds there."""
MODEL_SHA256 = "223cf25c104cd012b3ce63865f137098ad905dd0aa13d4c4394cf69fa9da9dda"
"""The hash of the model's files: it names their folder, so that it is the same for all books and exports."""
SHARD_TOKENS = 32
"""The rows of the token table in a file of 13 KB."""
_FREQUENT = 1024  # the body has the rows of these tokens, half of those that questions have
_CODES = {"int8": "b", "float32": "f", "uint32": "I", "uint16": "H"}
_INT12_MAX = 2047


def wants_semantic(index: Index, semantic: Semantic) -> bool:
    """Return whether an index is exported with vectors; raise an error if it must be and cannot."""
    fingerprint = index.info.fingerprint
    has_model = fingerprint is not None and fingerprint.embedder.is_compatible(FINGERPRINT)
    if semantic == "on" and not has_model:
        name = index.info.collection
        source, options = (fingerprint.source, fingerprint.options) if fingerprint else ("", ())
        raise ConfigurationError(
            f"Collection '{name}' was not indexed with {FINGERPRINT.model}, "
            "which is the only model that browsers can run",
            hint=f"Index the book with the built-in model: `{index_command(name, source, options=options)}`. "
            "Or export it with --semantic off.",
        )
    return has_model and semantic != "off"


def semantic_meta(index: Index, lexical_weight: float) -> dict[str, Any]:
    """Return the constants that the ranking of hybrid search needs."""
    calibration = index.info.calibration
    return {
        "lexical_weight": lexical_weight,
        "single_word_weight": SINGLE_WORD_WEIGHT,
        "evidence_weight": LEXICAL_WEIGHT,
        "more_candidates": candidate_limit(0),
        "coverage": COVERAGE_RULES,
        "detection": detection_rules(),
        "noise_floor": calibration and calibration.noise_floor,
        "spread": calibration and calibration.spread,
    }


def read_vectors(index: Index, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
    """Return the vectors of chunks, one in each row."""
    import numpy as np

    ids = [chunk.id for chunk in chunks]
    stored = index.vectors(ids)
    return np.array([stored[id] for id in ids], np.float32)


def pack_vectors(vectors: NDArray[np.float32]) -> bytes:
    """Return a file of vectors: their scales, then their numbers in 12 bits.

    The upper eight bits of all numbers come first, then the lower four of two numbers in each byte. With
    eight bits alone, the first five pages had another order for one of 13 questions.
    """
    import numpy as np

    scales = np.maximum(np.abs(vectors).max(axis=1), np.float32(1e-9)) / np.float32(_INT12_MAX)
    numbers = np.rint(vectors / scales[:, None]).astype(np.int16)
    low = (numbers & 15).astype(np.uint8)
    upper = (numbers >> 4).astype(np.int8)
    lower = low[:, ::2] | low[:, 1::2] << 4
    return b"".join(array.tobytes() for array in (scales, upper, lower))


def model_files() -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """Return the description of the model for the metadata, and its files: the body, the rows of tokens."""
    import numpy as np

    weights = read_int8()
    numbers, scales = weights.pop("word.q"), weights.pop("word.s")
    shards = [
        scales[start : start + SHARD_TOKENS].tobytes() + numbers[start : start + SHARD_TOKENS].tobytes()
        for start in range(0, len(numbers), SHARD_TOKENS)
    ]
    frequent = _FREQUENT // SHARD_TOKENS
    weights["frequent"] = np.frombuffer(b"".join(shards[:frequent]), np.int8)
    weights["positions"] = weights["positions"][:POSITIONS]
    for name in LINEAR:  # JavaScript multiplies row by row
        weights[f"{name}.w8"] = np.ascontiguousarray(weights[f"{name}.w8"].T)
    calibration = read_calibration()
    header = {
        "layers": LAST + 1,
        "tokens": len(numbers),
        "shard_tokens": SHARD_TOKENS,
        "shards": "".join(hashlib.sha256(shard).hexdigest()[:16] for shard in shards),
        "scales": {  # the inputs of the other layers are scaled by their largest number
            name: [float(np.float32(calibration[name].scale)), calibration[name].zero]
            for name in LINEAR
            if not name.endswith((".qkv", ".q", ".kv", ".f2"))
        },
    }
    body = _pack(header, weights | _merge_rules())
    digest = hashlib.sha256(body).hexdigest()
    if digest != MODEL_SHA256:
        raise ConfigurationError(
            "The local embedding model is damaged: its weights do not have the expected hash",
            hint=f"Install Recto again with: {install_command(again=True)}",
        )
    folder = f"model/{digest[:12]}"
    files = [(f"{folder}/body.bin", compress(body))]
    files += [
        (f"{folder}/tokens-{number}.bin", compress(shards[number])) for number in range(frequent, len(shards))
    ]
    return {"folder": folder, "sha256": digest, "bytes": len(files[0][1])}, files


def _merge_rules() -> dict[str, NDArray[Any]]:
    """Return the rules of the tokenizer in the order of their ranks, which need no bytes then."""
    import numpy as np

    data = MERGES.read_bytes()
    count = (len(data) - 512) // 8
    order = np.argsort(np.frombuffer(data, "<u2", count, 4 * count))
    return {
        "pairs": np.frombuffer(data, "<u4", count)[order],
        "results": np.frombuffer(data, "<u2", count, 6 * count)[order],
        "letters": np.frombuffer(data, "<u2", 256, 8 * count),
    }


def _pack(header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a line of JSON that describes the arrays, then their bytes, each at a multiple of four.

    The first bytes of all numbers of an array come first, then their second ones: they are more alike.
    """
    described, parts, end = {}, [], 0
    for name, array in sorted(arrays.items()):
        data = array.reshape(-1, 1).view("u1").T.tobytes()
        described[name] = [_CODES[array.dtype.name], end, array.size]
        parts.append(data + bytes(-len(data) % 4))
        end += len(parts[-1])
    line = json.dumps(header | {"arrays": described}, separators=(",", ":"), sort_keys=True).encode()
    return line + b" " * (-(len(line) + 1) % 4) + b"\n" + b"".join(parts)


def compress(data: bytes) -> bytes:
    """Compress a file in the same way each time."""
    return gzip.compress(data, 9, mtime=0)

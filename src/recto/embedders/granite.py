"""The built-in model: granite-embedding-30m-english from its pack, run by our own small graph."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from recto.embedders.local import LocalEmbedder, Model
from recto.embedders.pack import check_pack, find_pack, read_pack
from recto.embedders.session import new_session, new_tokenizer
from recto.types import EmbedderFingerprint

NAME = "granite-embedding-30m-english"
FINGERPRINT = EmbedderFingerprint(
    model=f"ibm-granite/{NAME}", revision="9b5b096411652ec1189c68fcfb90d0a82c5b45af", dim=384, variant="int8-weights-fp32"
)
MAX_TOKENS = 512
_PADDING = 1
_MASKED = -1e9  # added to the attention scores of padding, so that softmax gives it nothing


def granite_embedder(home: Path, threads: int) -> LocalEmbedder:
    """Make the built-in embedder; `home` remembers that the pack was checked."""

    def load() -> Model:
        path = find_pack()
        check_pack(path, home / "cache" / "model-pack.json")
        pack = read_pack(path)
        graph = files("recto.embedders").joinpath("granite.onnx").read_bytes()
        session = new_session(graph, threads, pack.weights)

        def run(ids: Any, mask: Any) -> Any:
            bias = (1 - mask.astype("float32")) * _MASKED
            return session.run(["vectors"], {"ids": ids, "mask": bias})[0]

        return Model(new_tokenizer(pack.tokenizer), run, _PADDING)

    return LocalEmbedder(FINGERPRINT, MAX_TOKENS, load)

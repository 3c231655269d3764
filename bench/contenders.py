"""Ways to run the built-in model: a plain one to compare with, and Recto's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recto.embedders.granite.embedder import built_in_embedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

Contender = Literal["plain", "plain, sorted", "fp32", "int8"]
CONTENDERS: dict[Contender, str] = {
    "plain": "plain graph, batches of 32 as they come",
    "plain, sorted": "plain graph, batches of 32 of similar length",
    "fp32": "Recto, `RECTO_PRECISION=fp32`",
    "int8": "Recto, `RECTO_PRECISION=int8`",
}
Embed = Callable[[Sequence[str]], Any]

_BATCH = 32


def write_plain(folder: Path) -> None:
    """Write the graph that computes every layer for every token."""
    from recto.embedders.granite.weights import find_pack, read_pack
    from scripts.make_graph import LAYERS, Graph, beginning, finished, first_token, layer_of_all

    g = Graph(_joined(read_pack(find_pack())), "not used")
    x, split, bias = beginning(g)
    for number in range(LAYERS):
        x = layer_of_all(g, x, f"l{number}", split, bias)
    (folder / "plain.onnx").write_bytes(finished(g, first_token(g, x)).SerializeToString())


def open_contender(name: Contender, folder: Path, threads: int, *, once: bool = False) -> Embed:
    """Return a function that embeds texts.

    `folder` is Recto's home, which also has the plain graph; `once` is for a single query.
    """
    if name in ("fp32", "int8"):
        embedder = built_in_embedder(folder, threads, name, single_query=once)
        return lambda texts: (
            embedder.embed_queries(texts) if len(texts) == 1 else embedder.embed_documents(texts)
        )
    return _plain(folder, threads, by_length=name == "plain, sorted")


def _plain(folder: Path, threads: int, *, by_length: bool) -> Embed:
    import numpy as np

    from recto.embedders.granite.weights import find_pack, read_pack, read_tokenizer
    from recto.embedders.onnx import Weights, new_session, new_tokenizer

    tokenizer = new_tokenizer(read_tokenizer(find_pack()))
    weights = Weights(arrays=_joined(read_pack(find_pack())))
    session = new_session((folder / "plain.onnx").read_bytes(), threads, weights)
    del weights

    def embed(texts: Sequence[str]) -> Any:
        rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
        order = (
            sorted(range(len(rows)), key=lambda index: -len(rows[index]))
            if by_length
            else list(range(len(rows)))
        )
        vectors = np.zeros((len(rows), 384), np.float32)
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            longest = max(len(rows[index]) for index in chosen)
            ids = np.array([rows[index] + [1] * (longest - len(rows[index])) for index in chosen], np.int64)
            mask = np.where(ids == 1, np.float32(-1e9), np.float32(0))
            vectors[chosen] = session.run(["vectors"], {"ids": ids, "mask": mask})[0]
        return vectors

    return embed


def _joined(weights: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Join the last layer's query, key and value again, as in the other layers."""
    import numpy as np

    found = dict(weights)
    for part in "wb":
        found[f"l5.qkv.{part}"] = np.concatenate([found.pop(f"l5.q.{part}"), found.pop(f"l5.kv.{part}")])
    return found

"""Write the model that ships: `python -m training.export PARTS PACK MERGES OUT`.

PARTS is the folder with the parts that `multilingual.py` wrote, PACK the model pack of the English model (its
tokenizer), MERGES the file of new rules. OUT gets `recto-1.npz` (all weights, with the context prompt of
recto-en-1 in its rows) and `recto-1-merges.bin` (the rules as a table that is searched in place).
"""

from __future__ import annotations

import argparse
import io
import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from recto.embedders.granite.bpe import byte_letters
from recto.embedders.granite.weights import CALIBRATION

from training.vocabulary import FIRST, merge_rules, read_tokenizer

Arrays = dict[str, NDArray[Any]]

HIDDEN, LAYERS, POSITION_OFFSET = 384, 6, 2
PROMPT = range(FIRST - 16, FIRST)


def merges(description: dict[str, Any], new: Sequence[Sequence[str]]) -> bytes:
    """Return pairs of tokens in ascending order, the rank and result of each, and the token of each byte."""
    vocabulary: dict[str, int] = dict(description["model"]["vocab"])
    token, rules = FIRST, []
    for rank, (left, right) in enumerate([*merge_rules(description), *new]):
        if left + right not in vocabulary:
            vocabulary[left + right] = token
            token += 1
        rules.append((vocabulary[left] << 16 | vocabulary[right], rank, vocabulary[left + right]))
    rules.sort()
    columns = [
        array("I", [rule[0] for rule in rules]),
        *(array("H", [rule[part] for rule in rules]) for part in (1, 2)),
        array("H", [vocabulary[character] for character in byte_letters()]),
    ]
    return b"".join(column.tobytes() for column in columns)


def shipped(trained: Arrays, prompt: Arrays, factors: Arrays) -> Arrays:
    """Return the weights as the graphs need them: int8 rows with scales, other tensors in float32."""
    found: Arrays = {"word.q": trained.pop("rows"), "word.s": trained.pop("scales")}
    for name, rows in prompt.items():
        found[name][PROMPT.start : PROMPT.stop] = rows
    body = {name: value.astype(np.float32) for name, value in trained.items()}
    found["positions"] = body.pop("pos_emb")[POSITION_OFFSET:] + body.pop("type_emb")[0]
    last = f"l{LAYERS - 1}"
    for layer in range(LAYERS):
        divisor = factors[f"l{layer}.ao"]
        body[f"l{layer}.qkv.w"][-HIDDEN:] /= divisor[:, None]
        body[f"l{layer}.qkv.b"][-HIDDEN:] /= divisor
    for part in "wb":
        mixed = body.pop(f"{last}.qkv.{part}")
        body[f"{last}.q.{part}"], body[f"{last}.kv.{part}"] = mixed[:HIDDEN], mixed[HIDDEN:]
    for name, factor in factors.items():
        smooth = body.pop(f"{name}.w") * factor
        scales = np.abs(smooth).max(axis=1) / np.float32(127)
        body[f"{name}.w8"] = np.rint(smooth / scales[:, None]).astype(np.int8)
        body[f"{name}.scales"] = scales
    return found | body


def main(arguments: Sequence[str] | None = None) -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("parts", "pack", "merges", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--prompt", type=Path, required=True, help="rows of the context prompt: an .npz file")
    options = parser.parse_args(arguments)
    data = b"".join(part.read_bytes() for part in sorted(options.parts.glob("*.part")))
    with (
        np.load(io.BytesIO(data)) as trained,
        np.load(options.prompt) as prompt,
        np.load(CALIBRATION) as ranges,
    ):
        factors = {
            name.removesuffix(".factors"): ranges[name].astype(np.float32)
            for name in ranges
            if name.endswith(".factors")
        }
        arrays = shipped(dict(trained), dict(prompt), factors)
    np.savez_compressed(options.out / "recto-1.npz", **dict(sorted(arrays.items())))  # type: ignore[arg-type]
    rules = merges(read_tokenizer(options.pack), json.loads(options.merges.read_text("utf-8")))
    (options.out / "recto-1-merges.bin").write_bytes(rules)
    for name in ("recto-1.npz", "recto-1-merges.bin"):
        print(f"{name}: {(options.out / name).stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

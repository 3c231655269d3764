"""Write the BPE merge rules of the built-in model as a table that can be searched in place.

Run ``python -m scripts.make_merges``.
"""

from __future__ import annotations

import json
from array import array
from pathlib import Path

from recto.embedders.granite import embedder as granite
from recto.embedders.granite.weights import find_pack, read_tokenizer

_SHIFT = 256  # the vocabulary represents invisible bytes by characters from here on


def merges(description: bytes) -> bytes:
    """Return pairs of tokens in ascending order, the rank and result of each, and the token of each byte."""
    model = json.loads(description)["model"]
    vocabulary: dict[str, int] = model["vocab"]
    rules = []
    for rank, rule in enumerate(model["merges"]):
        left, right = rule.split(" ") if isinstance(rule, str) else rule
        rules.append((vocabulary[left] << 16 | vocabulary[right], rank, vocabulary[left + right]))
    rules.sort()
    letters = [vocabulary[character] for character in _characters()]
    columns = [
        array("I", [rule[0] for rule in rules]),
        *(array("H", [rule[part] for rule in rules]) for part in (1, 2)),
        array("H", letters),
    ]
    return b"".join(column.tobytes() for column in columns)


def _characters() -> list[str]:
    """Return the character that represents each byte."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = (byte for byte in range(256) if byte not in visible)
    stand_ins = {byte: chr(_SHIFT + place) for place, byte in enumerate(hidden)}
    return [stand_ins.get(byte, chr(byte)) for byte in range(256)]


if __name__ == "__main__":
    Path(granite.__file__).with_name("granite-merges.bin").write_bytes(merges(read_tokenizer(find_pack())))

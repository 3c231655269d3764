"""The plain way to run the model is a fair one: it gives the same numbers, only slower."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.contenders import CONTENDERS, Contender, open_contender, write_plain
from bench.embed import Row, ratios, table

TEXTS = ["What is ROS 2?", "A node publishes messages to a topic. " * 9, "A biped balances."]


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_embeds_the_same_texts(name: Contender, shared_home: Path, tmp_path: Path) -> None:
    write_plain(tmp_path)
    if name in ("fp32", "int8"):
        tmp_path = shared_home
    vectors = np.asarray(open_contender(name, tmp_path, 2)(TEXTS))
    expected = np.asarray(open_contender("fp32", shared_home, 1)(TEXTS))
    assert vectors.shape == (3, 384)
    assert (vectors * expected).sum(axis=1).min() > (0.98 if name == "int8" else 0.99999)


def test_the_table_compares_round_by_round() -> None:
    rows = {name: Row([2.0, 4.0, 9.0], [3.0, 3.0, 3.0], [0.004], [0.5]) for name in CONTENDERS}
    rows["int8"].wall = [1.0, 1.0, 3.0]
    assert ratios(rows["plain"].wall, rows["int8"].wall) == "3.00 (2.00–4.00)"
    lines = table(rows, 12).splitlines()
    assert len(lines) == 2 + len(CONTENDERS)
    assert len({line.count("|") for line in lines}) == 1
    assert "| 12.0 | 3.00 (2.00–4.00) |" in lines[-1]

"""The plain way to run the model is a fair one: it gives the same numbers, only slower."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.contenders import CONTENDERS, Contender, open_contender, write_plain

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

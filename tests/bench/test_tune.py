"""The benchmark of `recto tune`: a planted difference is found, equal configurations are not told apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench import tune


def test_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["hybrid 0.1", "hybrid 0.2", "dense", "lexical"]
    generator = np.random.default_rng(1)
    first = generator.choice([0.0, 0.5, 1.0], (300, 1))
    scores = np.where(generator.random((300, 4)) < 0.9, first, 0.5)
    outcomes = tmp_path / "outcomes.json"
    outcomes.write_text(json.dumps({"configurations": names, "scores": {"book": scores.tolist()}}))
    tune.main(["--outcomes", str(outcomes), "--resamples", "40"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.split("\n") if line.startswith("| all | ")]
    assert len(rows) == len(tune.PAIRS)
    for row in rows:
        planted, lost, equal = (float(cell.rstrip("%")) for cell in row[4:7])
        assert min(planted, lost) > 80
        assert equal < 20

"""A short form of the load that lasts: nothing is wrong and nothing is lost while things happen to the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import soak
from tests.doubles.qdrant import QdrantDouble


def check(outcome: dict[str, object]) -> None:
    assert outcome["wrong answers"] == 0, outcome
    assert outcome["lost requests"] == 0, outcome
    assert outcome["other statuses"] == 0, outcome
    assert isinstance(outcome["answered"], int)
    assert outcome["answered"] > 20
    assert outcome["restarted"] == outcome["published"] - 1 >= 1  # type: ignore[operator]


@pytest.mark.long
def test_a_server_that_goes_away(tmp_path: Path) -> None:
    with QdrantDouble() as double:
        outcome = soak.run(soak.Server(tmp_path / "home", double), tmp_path / "home", 1, publish_every=1)
    check(outcome)
    assert outcome["retries after 503"] > 0, "it was unavailable"


def test_a_wrong_answer_is_noticed(tmp_path: Path) -> None:
    outcomes = soak.SoakOutcomes(editions={"gen-1": 1})
    right = (
        '{"generation": "gen-1", "results": ['
        + ",".join(['{"text": "All about sowing beans. This is edition 1."}'] * 3)
        + "]}"
    )
    soak.judge(200, right.encode(), "sowing beans", outcomes)
    assert outcomes.wrong == []
    soak.judge(200, right.replace("edition 1", "edition 2").encode(), "sowing beans", outcomes)
    soak.judge(200, right.encode(), "kneading dough", outcomes)
    soak.judge(404, b"{}", "sowing beans", outcomes)
    assert len(outcomes.wrong) == 3

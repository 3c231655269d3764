"""A short form of the load that lasts: nothing is wrong and nothing is lost while things happen to the service."""

from __future__ import annotations

import json
from pathlib import Path

from bench import soak
from tests.doubles.qdrant import QdrantDouble


def test_a_server_that_goes_away(tmp_path: Path) -> None:
    with QdrantDouble() as double:
        outcome = soak.run(soak.Server(tmp_path / "home", double), tmp_path / "home", 1, publish_every=1)
    assert {outcome[kind] for kind in ("wrong answers", "lost requests", "other statuses")} == {0}, outcome
    assert outcome["answered"] > 20
    assert outcome["restarted"] == outcome["published"] - 1 >= 1
    assert outcome["retries after 503"] > 0, "it was unavailable"


def test_a_wrong_answer_is_noticed(tmp_path: Path) -> None:
    outcomes = soak.SoakOutcomes(editions={"gen-1": 1})
    results = [{"text": "All about sowing beans. This is edition 1."}] * 3
    right = json.dumps({"generation": "gen-1", "results": results})
    soak.judge(200, right.encode(), "sowing beans", outcomes)
    assert outcomes.wrong == []
    soak.judge(200, right.replace("edition 1", "edition 2").encode(), "sowing beans", outcomes)
    soak.judge(200, right.encode(), "kneading dough", outcomes)
    soak.judge(404, b"{}", "sowing beans", outcomes)
    assert len(outcomes.wrong) == 3

"""Short forms of long benchmarks: kills, load that lasts, static search, and the ways to run the model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bench import soak
from bench.contenders import CONTENDERS, Contender, open_contender, write_plain
from bench.querylog import kill_service, kill_writers
from bench.question_sets import load_books
from bench.static import measure_book
from recto.book.sources.tree import open_book
from recto.embedders.granite.embedder import built_in_embedder
from recto.evaluation.calibration import calibrate
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore
from tests.doubles.qdrant import QdrantDouble

TEXTS = ["What is ROS 2?", "A node publishes messages to a topic. " * 9, "A biped balances."]


@pytest.mark.parametrize("killed", ["writers", "services"])
def test_a_killed_process_damages_no_query_log(killed: str, house: Path, tmp_path: Path) -> None:
    """Three kills; `bench.querylog --kills 50` is the long version."""
    outcome = kill_writers(tmp_path, 3) if killed == "writers" else kill_service(house / "home", tmp_path, 3)
    assert outcome["queries"]
    assert (outcome["lost from before (goal 0)"], outcome["damaged lines (goal 0)"]) == (0, 0)


def test_a_server_that_goes_away(tmp_path: Path) -> None:
    with QdrantDouble() as double:
        outcome = soak.run(soak.Server(tmp_path / "home", double), tmp_path / "home", 1, publish_every=1)
    assert {outcome[kind] for kind in ("wrong answers", "lost requests", "other statuses")} == {0}, outcome
    assert outcome["answered"] > 20
    assert outcome["restarted"] == outcome["published"] - 1 >= 1
    assert outcome["retries after 503"] > 0, "it was unavailable"


def test_a_wrong_answer_is_noticed() -> None:
    outcomes = soak.SoakOutcomes(editions={"gen-1": 1})
    results = [{"text": "All about sowing beans. This is edition 1."}] * 3
    right = json.dumps({"generation": "gen-1", "results": results})
    soak.judge(200, right.encode(), "sowing beans", outcomes)
    assert outcomes.wrong == []
    soak.judge(200, right.replace("edition 1", "edition 2").encode(), "sowing beans", outcomes)
    soak.judge(200, right.encode(), "kneading dough", outcomes)
    soak.judge(404, b"{}", "sowing beans", outcomes)
    assert len(outcomes.wrong) == 3


def test_static_search_ranks_as_the_service(tmp_path: Path, corpora: Path, shared_home: Path) -> None:
    """For a tiny book, and for those of RECTO_CORPORA."""
    embedder = built_in_embedder(shared_home, 2, "int8")
    store = EdgeStore(tmp_path / "home")
    given = os.environ.get("RECTO_CORPORA")
    folders = [corpora, *([Path(given)] if given else [])]
    for book in (one for at in folders for one in load_books(at / "questions", at / "books", [])):
        job = IndexJob(open_book(book.docs, book=book.name), embedder, calibrate=calibrate)
        index_book(job, store, book.name, journal=tmp_path / "journal")
        directory = tmp_path / book.name / "recto"
        directory.parent.mkdir()
        found = measure_book(book, Retriever(embedder, store, book.name), directory)
        # Rounding to int8 depends on the processor, so near chunks may change places.
        assert found.same_words == pytest.approx(1, abs=0.02), book.name
        assert found.same_first >= 0.99, book.name
        assert found.same_five >= 0.95, book.name
        assert found.gap <= 0.02, book.name


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_embeds_the_same_texts(name: Contender, shared_home: Path, tmp_path: Path) -> None:
    """The plain way to run the model is a fair one: it gives the same numbers, only slower."""
    write_plain(tmp_path)
    home = shared_home if name in ("fp32", "int8") else tmp_path
    vectors = np.asarray(open_contender(name, home, 2)(TEXTS))
    expected = np.asarray(open_contender("fp32", shared_home, 1)(TEXTS))
    assert vectors.shape == (3, 384)
    assert (vectors * expected).sum(axis=1).min() > (0.98 if name == "int8" else 0.99999)

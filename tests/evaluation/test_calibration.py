"""Where noise ends: measured for each index, kept with it, shown beside scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto._util import cosine, percentile
from recto.errors import CollectionEmpty, EmbeddingError
from recto.evaluation.calibration import all_probes, auroc, calibrate, off_topic_queries
from recto.indexing.indexer import IndexReport
from recto.protocols import Embedder, Index
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore
from recto.testing.parts import chunk, publish
from recto.types.index import Calibration
from recto.types.search import Vector
from tests.library import write_index, write_library
from tests.shared_embedder import Counting

MEASURED = Calibration(0.5, 0.9, 30, 20)


class Silent(Counting):
    """Embeds passages and refuses questions."""

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        raise EmbeddingError("the service is down", hint="Wait.")


ANSWERED = ("How do I sharpen a knife?", "When are beans sown?", "How is a flat tyre repaired?")
OFF_TOPIC = ("What is a quark made of?", "How do I write a for loop in Rust?", "the orbit of Halley's comet")


def test_only_answers_are_above_the_noise_floor(house_retriever: Retriever) -> None:
    for response in house_retriever.search_batch([*ANSWERED, *OFF_TOPIC], mode="dense"):
        assert response.noise_floor is not None
        assert (response.hits[0].score > response.noise_floor) is (response.query in ANSWERED)


def test_questions_that_the_book_speaks_of_are_left_out() -> None:
    about_bread = "How long should sourdough bread rest before baking?"
    asked = off_topic_queries([chunk(0, text="A sourdough loaf needs time.")])
    assert about_bread in all_probes()
    assert about_bread not in asked
    assert len(set(asked)) == 32


def test_what_cannot_be_measured(tmp_path: Path, embedder: Embedder) -> None:
    store = EdgeStore(tmp_path)
    words = " ".join(word for subject in all_probes().values() for word in subject)
    publish(store, "books", [chunk(0, text=words)])
    with pytest.raises(EmbeddingError, match="Too few off-topic queries"):
        calibrate(embedder, store.open("books"))

    empty = SimpleNamespace(scroll=lambda: iter(()), info=SimpleNamespace(collection="books"))
    with pytest.raises(CollectionEmpty, match="'books' is empty"):
        calibrate(embedder, cast(Index, empty))


def test_an_index_run_survives_a_failure(small_book: Path, home: Path, embedder: Embedder) -> None:
    report = write_index(small_book, Silent(embedder), home, "garden", calibrate=calibrate)
    assert report.published
    assert report.notes == (
        "The noise floor was not measured (the service is down). Run `recto calibrate --collection garden`.",
    )
    info = EdgeStore(home).open("garden").info
    assert (info.calibration, info.noise_floor) == (None, None)


def test_damaged_notes_are_no_notes(tmp_path: Path) -> None:
    store = EdgeStore(tmp_path)
    store.save_calibration(publish(store, "books", [chunk(0)]), MEASURED)
    notes = tmp_path / "collections" / "books" / "gen-000001.notes"
    body = json.loads(notes.read_text())
    body["calibration"]["noise_floor"] = 0.1
    notes.write_text(json.dumps(body))
    assert EdgeStore(tmp_path).open("books").info.calibration is None
    notes.write_bytes(b"\xff")
    assert EdgeStore(tmp_path).open("books").info.calibration is None


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=50), st.floats(0, 1))
def test_percentiles_agree_with_numpy(values: list[float], share: float) -> None:
    import numpy as np

    assert percentile(sorted(values), share) == pytest.approx(float(np.quantile(values, share)), abs=1e-9)


def test_auroc_is_the_share_of_pairs_in_order() -> None:
    assert auroc([0.9, 0.8], [0.1, 0.2]) == 1
    assert auroc([0.1], [0.9]) == 0
    assert auroc([0.5], [0.5]) == 0.5
    assert auroc([0.5, 0.1], [0.3, 0.3]) == 0.5


def test_cosine() -> None:
    assert cosine([0.6, 0.8], [0.8, 0.6]) == pytest.approx(0.96)
    assert cosine([3, 0], [2, 0]) == pytest.approx(1)
    assert cosine([0, 0], [1, 0]) == cosine([1], [1, 0]) == 0


def test_a_small_change_keeps_what_was_measured(tmp_path: Path, embedder: Embedder) -> None:
    book, home = write_library(tmp_path / "book"), tmp_path / "home"

    def run(embedder: Embedder, *, rebuild: bool = False) -> IndexReport:
        return write_index(book, embedder, home, "house", calibrate=calibrate, rebuild=rebuild)

    first = run(embedder)
    (book / "welcome.md").write_text("# Welcome\n\nAn edited page.\n", "utf-8")
    second = run(Silent(embedder))
    assert second.published
    assert second.info.calibration == first.info.calibration == EdgeStore(home).open("house").info.calibration
    third = run(Silent(embedder), rebuild=True)
    assert "The noise floor was not measured" in third.notes[0]

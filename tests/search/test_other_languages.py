"""Questions in another language than the book: found by meaning, with unknown coverage and without a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from recto.evaluation.calibration import calibrate
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore
from recto.types.search import LEXICAL_WEIGHT, Mode
from tests.library import write_index
from tests.shared_embedder import ForwardingEmbedder

NAME = "house"
BREAD = {
    "es": "¿Cómo hago que el pan suba?",
    "de": "Wie geht mein Brot besser auf?",
    "ur": "روٹی کو کیسے پھلایا جائے؟",
    "zh": "怎样让面包发酵？",
}


class EnglishEmbedder(ForwardingEmbedder):
    """The built-in model, as if it knew only English."""

    languages = ("en",)


@pytest.fixture
def retriever(small_book: Path, home: Path, embedder: Embedder) -> Retriever:
    write_index(small_book, embedder, home, NAME, calibrate=calibrate)
    return Retriever(embedder, EdgeStore(home), NAME)


@pytest.mark.parametrize(("language", "query"), BREAD.items())
def test_the_page_is_found(retriever: Retriever, language: str, query: str) -> None:
    found = retriever.search(query)
    assert found.hits[0].chunk.title == "Bread"
    assert (found.answerable, found.coverage, found.noise_floor) == (None, None, None)
    assert found.warnings == ()
    assert retriever.context(query).text
    english = retriever.search("How do I make bread rise?")
    assert None not in (english.answerable, english.coverage, english.noise_floor)


def test_an_english_question_to_another_book_is_not_graded(
    home: Path, tmp_path: Path, embedder: Embedder
) -> None:
    text = "Amasa la masa hasta que sea lisa y deja que suba en un lugar que no esté frío."
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "pan.md").write_text(f"# Pan\n\n{text}\n", "utf-8")
    write_index(tmp_path / "book", embedder, home, NAME, calibrate=calibrate)
    store = EdgeStore(home)
    found = Retriever(embedder, store, NAME).search("How do I make the bread rise in my kitchen?")
    assert found.hits[0].chunk.title == "Pan"
    assert (found.answerable, found.coverage, found.noise_floor) == (None, None, None)
    assert found.warnings == ()
    for model, weight in ((embedder, LEXICAL_WEIGHT), (EnglishEmbedder(embedder), 1.5)):
        (query,) = Retriever(model, store, NAME).open_index().analyze(["How do I make the bread rise?"])
        assert query.lexical is not None
        assert query.lexical.weight == weight


def test_a_stated_language_needs_no_warning(retriever: Retriever, home: Path) -> None:
    english = Retriever(EnglishEmbedder(retriever.embedder), EdgeStore(home), NAME)
    modes: tuple[Mode, ...] = ("lexical", "hybrid")
    for mode in modes:
        assert english.search("bread", mode=mode, lang="de").warnings == ()


def test_words_alone_and_other_models_have_a_warning(retriever: Retriever, home: Path) -> None:
    query = BREAD["es"]
    (warning,) = retriever.search(query, mode="lexical").warnings
    assert warning == "The query seems to be in another language ('es') than the book ('en')."
    english = Retriever(EnglishEmbedder(retriever.embedder), EdgeStore(home), NAME)
    assert warning in english.search(query).warnings
    assert english.search("How do I make bread rise?").warnings == ()

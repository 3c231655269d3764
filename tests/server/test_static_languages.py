"""Test that the static client cuts words as Python does, in Node; tests/browser does the same in Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from recto.protocols import Index
from recto.search.analyzer import is_stop_word, query_words, tokens
from recto.search.display import ELLIPSIS, make_snippet
from recto.server.static_export import _analysis, export_static
from recto.stores.edge.store import EdgeStore
from recto.testing.values import chunk, publish_lexical
from recto.types.search import Chunk
from tests.languages import MARKED, SENTENCES, random_sentences
from tests.running import ROOT
from tests.search.test_languages import is_inside_character
from tests.server.node import run_node
from tests.server.test_static_export import ask, lexical_search

WEB = ROOT / "src" / "recto" / "server" / "web"
COUNT = 100  # tests/browser has 1 000
CUT = """
import { readFile } from "node:fs/promises";
import { makeAnalyzer } from "./static_client.js";
const cut = ({ language, meta, texts }) => {
  const { spans, terms, isStopWord } = makeAnalyzer(language, meta);
  return texts.map((text) => spans(text).map(({ word }) => [word, terms(word), isStopWord(word)]));
};
console.log(JSON.stringify(JSON.parse(await readFile("values.json")).map(cut)));
"""


def python_cuts(language: str, texts: list[str]) -> list[list[object]]:
    return [
        [
            [text[one.start : one.end], list(one.terms), is_stop_word(text[one.start : one.end], language)]
            for one in tokens(text, language)
        ]
        for text in texts
    ]


def test_words_are_cut_as_in_python(tmp_path: Path) -> None:
    texts = {language: [SENTENCES[language], *random_sentences(language, COUNT)] for language in SENTENCES}
    values = [
        {"language": language, "meta": {"analysis": _analysis([language])}, "texts": own}
        for language, own in texts.items()
    ]
    shutil.copy(WEB / "static_client.js", tmp_path)
    cuts = run_node(tmp_path, CUT, values=values)
    for (language, own), theirs in zip(texts.items(), cuts, strict=True):
        for text, cut, ours in zip(own, theirs, python_cuts(language, own), strict=True):
            assert cut == ours, text


def exported(directory: Path, chunks: Sequence[Chunk]) -> Index:
    """Export a book of chunks, and return its index."""
    store = EdgeStore(directory / "books")
    publish_lexical(store, "book", chunks)
    export_static(store.open("book"), directory / "recto")
    return store.open("book")


@pytest.mark.parametrize("language", ["de", "tr", "ar", "zh", "th"])
def test_results_are_those_of_lexical_search(language: str, tmp_path: Path) -> None:
    """Queries are parts of the sentence, single words of it, and words with a typo."""
    texts = [SENTENCES[language], *random_sentences(language, 30)]
    chunks = [replace(chunk(number, text=text), language=language) for number, text in enumerate(texts)]
    index = exported(tmp_path, chunks)
    words = query_words(SENTENCES[language], language)
    queries = [SENTENCES[language], *words[:6], " ".join(words[:4]), f"{words[0]}x {words[-1]}"]
    answers = ask(tmp_path / "recto", [["search", query, {"top_k": 40}] for query in queries])
    for query, found in zip(queries, answers, strict=True):
        _, hits = lexical_search(index, query)
        assert {hit["url"]: pytest.approx(hit["score"]) for hit in found["results"]} == {
            hit.chunk.url: hit.score for hit in hits
        }, query


def test_results_can_be_limited_to_a_language(tmp_path: Path) -> None:
    texts = [("de", SENTENCES["de"])] * 3 + [("en", "The houses and config.yaml")] * 3
    chunks = [replace(chunk(n, text=text), language=language) for n, (language, text) in enumerate(texts)]
    exported(tmp_path, chunks)
    requests = [[name, "config.yaml", {"top_k": 10, "lang": "de"}] for name in ("search", "related")]
    found, related = ask(tmp_path / "recto", requests)
    assert [hit["language"] for hit in found["results"]] == ["de"] * 3
    assert {hit["language"] for hit in related["results"]} == {"de"}


@pytest.mark.parametrize("language", MARKED)
def test_snippets_are_cut_between_characters(language: str, tmp_path: Path) -> None:
    """In Python and in the static client; the number of dots moves the cut."""
    word = MARKED[language]
    dots = ["." * number for number in range(2, len(word) + 2)]
    texts = [f"{word * 60}{one}config.yaml{one}{word * 60}" for one in dots]
    texts += [one + word * 60 for one in dots]
    chunks = [chunk(number, text=text) for number, text in enumerate(texts)]
    index = exported(tmp_path, [replace(one, language=language, headings=("config.yaml",)) for one in chunks])
    (answer,) = ask(tmp_path / "recto", [["search", "config.yaml", {"top_k": len(texts)}]])
    query, _ = lexical_search(index, "config.yaml")
    shown = [(hit["text"], hit["snippet"]) for hit in answer["results"]]
    shown += [(text, make_snippet(text, query.words).text) for text in texts]
    assert len(shown) == 2 * len(texts)
    for text, snippet in shown:
        inner = snippet.removeprefix(ELLIPSIS).removesuffix(ELLIPSIS)
        start = text.index(inner)
        assert inner != text
        for cut in (start, start + len(inner)):
            assert not is_inside_character(text, cut), snippet

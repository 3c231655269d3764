"""Test that the static client cuts words as Python does, in Node; tests/browser does the same in Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from recto.search.analyzer import is_stop_word, query_words, word_spans, word_terms
from recto.search.display import ELLIPSIS, make_snippet
from recto.server.static_export import _analysis, export_static
from recto.stores.edge.store import EdgeStore
from recto.testing.values import chunk, publish_lexical
from tests.languages import MARKED, SENTENCES, random_sentences
from tests.running import ROOT
from tests.search.test_languages import is_inside_character
from tests.server.test_static_export import ask, lexical_search

_MISSING = pytest.fail if os.environ.get("RECTO_NEED_BROWSER") == "1" else pytest.skip
CLIENT = ROOT / "src" / "recto" / "server" / "web" / "static_client.js"
COUNT = 100  # tests/browser has 1 000
CUT = """
import { readFile } from "node:fs/promises";
import { makeAnalyzer } from "./client.mjs";
const { language, meta, texts } = JSON.parse(await readFile("texts.json"));
const { spans, terms, isStopWord } = makeAnalyzer(language, meta);
console.log(JSON.stringify(texts.map((text) => spans(text).map(({ word }) => [word, terms(word), isStopWord(word)]))));
"""


def python_cuts(language: str, texts: list[str]) -> list[list[object]]:
    return [
        [
            [word, list(word_terms(word, language)), is_stop_word(word, language)]
            for word in (text[start:end] for start, end in word_spans(text, language))
        ]
        for text in texts
    ]


@pytest.mark.parametrize("language", SENTENCES)
def test_words_are_cut_as_in_python(language: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        _MISSING("Node is not installed")
    texts = [SENTENCES[language], *random_sentences(language, COUNT)]
    given = {"language": language, "meta": {"analysis": _analysis([language])}, "texts": texts}
    (tmp_path / "texts.json").write_text(json.dumps(given), "utf-8")
    (tmp_path / "cut.mjs").write_text(CUT, "utf-8")
    shutil.copy(CLIENT, tmp_path / "client.mjs")
    done = subprocess.run([str(node), "cut.mjs"], check=True, cwd=tmp_path, capture_output=True, timeout=60)
    for text, theirs, ours in zip(texts, json.loads(done.stdout), python_cuts(language, texts), strict=True):
        assert theirs == ours, text


@pytest.mark.parametrize("language", SENTENCES)
def test_results_are_those_of_lexical_search(language: str, tmp_path: Path) -> None:
    """Queries are parts of the sentence, single words of it, and words with a typo."""
    texts = [SENTENCES[language], *random_sentences(language, 30)]
    chunks = [replace(chunk(number, text=text), language=language) for number, text in enumerate(texts)]
    store = EdgeStore(tmp_path / "books")
    publish_lexical(store, "book", chunks)
    index = store.open("book")
    export_static(index, tmp_path / "recto")
    words = query_words(SENTENCES[language], language)
    queries = [SENTENCES[language], *words[:6], " ".join(words[:4]), f"{words[0]}x {words[-1]}"]
    answers = ask(tmp_path / "recto", [["search", query, {"top_k": 40}] for query in queries])
    for query, found in zip(queries, answers, strict=True):
        _, hits = lexical_search(index, query)
        assert {hit["url"]: pytest.approx(hit["score"]) for hit in found["results"]} == {
            hit.chunk.url: hit.score for hit in hits
        }, query


def test_results_can_be_limited_to_a_language(tmp_path: Path) -> None:
    german = [replace(chunk(number, text=SENTENCES["de"]), language="de") for number in range(3)]
    english = [
        replace(chunk(number, text="The houses and config.yaml"), language="en") for number in range(3, 6)
    ]
    store = EdgeStore(tmp_path / "books")
    publish_lexical(store, "book", [*german, *english])
    export_static(store.open("book"), tmp_path / "recto")
    (answer,) = ask(tmp_path / "recto", [["search", "config.yaml", {"top_k": 10, "lang": "de"}]])
    assert [hit["language"] for hit in answer["results"]] == ["de"] * 3
    (answer,) = ask(tmp_path / "recto", [["related", "config.yaml", {"top_k": 10, "lang": "de"}]])
    assert {hit["language"] for hit in answer["results"]} == {"de"}


@pytest.mark.parametrize("language", MARKED)
def test_snippets_are_cut_between_characters(language: str, tmp_path: Path) -> None:
    """In Python and in the static client; the number of dots moves the cut."""
    word = MARKED[language]
    dots = ["." * number for number in range(2, len(word) + 2)]
    texts = [f"{word * 60}{one}config.yaml{one}{word * 60}" for one in dots] + [
        one + word * 60 for one in dots
    ]
    chunks = [
        replace(chunk(number, text=text), language=language, headings=("config.yaml",))
        for number, text in enumerate(texts)
    ]
    store = EdgeStore(tmp_path / "books")
    publish_lexical(store, "book", chunks)
    index = store.open("book")
    export_static(index, tmp_path / "recto")
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


@pytest.mark.parametrize("language", ["ar", "de", "es", "fr", "ja", "pt", "ur", "zh"])
def test_translations_of_the_widget_have_all_texts(language: str) -> None:
    """Each text has the same values to fill in as the English one."""
    widget = CLIENT.parent / "widget"

    def texts(name: str) -> dict[str, set[str]]:
        pairs = re.findall(r'^  (\w+): "(.*)",$', (widget / name).read_text("utf-8"), re.MULTILINE)
        return {key: set(re.findall(r"\{\w+\}", text)) for key, text in pairs}

    assert texts(f"strings_{language}.js") == texts("strings.js")

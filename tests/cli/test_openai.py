"""Index and search a book with a server of OpenAI's API, from the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.api import open_retriever
from recto.search.retriever import Retriever
from recto.settings import load_settings
from recto.types.search import SearchResponse
from tests.cli.terminals import Terminal
from tests.doubles.openai import OpenAIDouble
from tests.running import Done, in_process, recto


@pytest.fixture
def double() -> Iterator[OpenAIDouble]:
    with OpenAIDouble("ollama") as made:
        yield made


def run(double: OpenAIDouble, home: Path, *arguments: str, **more: str) -> Done:
    values = {"RECTO_EMBEDDER": "openai", "RECTO_OPENAI_URL": double.base, "RECTO_MODEL": double.model}
    return recto(home, *arguments, **{**values, **more})


async def search(retriever: Retriever, query: str) -> SearchResponse:
    try:
        return await retriever.asearch(query)
    finally:
        await retriever.aclose()


def test_a_book_from_index_to_search(double: OpenAIDouble, home: Path, small_book: Path) -> None:
    done = run(double, home, "index", str(small_book), "--collection", "book")
    assert done.returncode == 0, done.stderr
    texts = [text for texts in double.embedded() for text in texts]
    assert any("search_document: " in text and "Sow beans" in text for text in texts)

    options = ("--collection", "book", "--mode", "dense", "--json")
    done = run(double, home, "search", "When do I sow beans?", *options)
    assert done.returncode == 0, done.stderr
    assert "seeds" in json.loads(done.stdout)["results"][0]["url"]
    assert double.embedded()[-1] == ["search_query: When do I sow beans?"]

    values = {"RECTO_EMBEDDER": "openai", "RECTO_OPENAI_URL": double.url, "RECTO_HOME": str(home)}
    settings = load_settings({**values, "RECTO_MODEL": f"{double.model}:latest"}, home)
    with open_retriever(settings, print, collection="book") as retriever:
        assert "bread" in asyncio.run(search(retriever, "kneading dough")).hits[0].chunk.page_url

    calls = len(double.embedded())
    done = run(double, home, "index", str(small_book), "--collection", "book")
    assert done.returncode == 0, done.stderr
    assert "Nothing has changed" in done.stdout
    assert len(double.embedded()) == calls + 1, "only the probe: nothing is embedded again"


def test_another_model_of_that_name_is_refused(double: OpenAIDouble, home: Path, small_book: Path) -> None:
    arguments = ("search", "soil", "--collection", "book")
    index = ("index", str(small_book), "--collection", "book")
    assert run(double, home, *index).returncode == 0
    double.noise = 0.001
    assert run(double, home, *arguments).returncode == 0, "a rounding error is not another model"
    double.noise, double.weights = 0.0, 7
    done = run(double, home, *arguments)
    assert done.returncode == 2
    assert "was indexed with openai/nomic-embed-text (256-d, prefix 'search_document: '" in done.stderr
    assert f"recto index {small_book} --collection book" in done.stderr, "the command that repairs it"
    done = run(double, home, *index)
    assert done.returncode == 0, done.stderr
    assert run(double, home, *arguments).returncode == 0
    done = run(double, home, *arguments, RECTO_OPENAI_DOCUMENT_PREFIX="none")
    assert done.returncode == 2, "the documents have a prefix"
    done = run(double, home, *arguments, RECTO_OPENAI_QUERY_PREFIX="ask:")
    assert done.returncode == 0, "queries may have any prefix"


def test_doctor_shows_the_probe(double: OpenAIDouble, home: Path, small_book: Path) -> None:
    assert run(double, home, "index", str(small_book), "--collection", "book").returncode == 0
    done = run(double, home, "doctor", "--collection", "book", "--json")
    findings = json.loads(done.stdout)["findings"]
    messages = [finding["message"] for finding in findings if finding["check"] == "model"]
    assert messages[1:] == [
        f"{double.base}: 256 dimensions, prefix of queries 'search_query: ', of documents 'search_document: '"
    ]
    (fingerprint,) = (finding for finding in findings if finding["check"] == "fingerprint")
    assert fingerprint["severity"] == "ok"


def test_a_service_of_the_project_is_asked_about(double: OpenAIDouble, home: Path, small_book: Path) -> None:
    elsewhere = double.base.replace("127.0.0.1", "0.0.0.0")  # this machine, but not its loopback address
    variables = f"RECTO_EMBEDDER=openai\nRECTO_OPENAI_URL={elsewhere}\nRECTO_MODEL={double.model}\n"
    (small_book / ".env").write_text(variables)
    arguments = ("index", str(small_book), "--collection", "book", "--dry-run")

    def indexing() -> Terminal:
        return Terminal(home, *arguments[1:], command="index", directory=small_book)

    with indexing() as terminal:
        assert "texts and queries are sent to http://0.0.0.0:" in terminal.see("Send them there?")
        terminal.press("n\n")
        assert terminal.end(60) == 2
        assert "Nothing is sent to http://0.0.0.0:" in terminal.text
    assert double.embedded() == []
    piped = in_process("recto", home, arguments, small_book)
    assert piped.returncode == 0, piped.stderr
    assert f"RECTO_OPENAI_URL in {small_book / '.env'}" in piped.stderr
    with indexing() as terminal:
        terminal.see("Send them there?")
        terminal.press("y\n")
        assert terminal.end(60) == 0, terminal.text
    with indexing() as terminal:
        assert terminal.end(60) == 0, terminal.text
        assert "Send them there?" not in terminal.text
    own = in_process("recto", home, arguments, small_book, RECTO_OPENAI_URL=double.base)
    assert "are sent to" not in own.stderr

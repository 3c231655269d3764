"""The three functions: signatures, limits, errors and results."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto._util.text import is_absolute_url as valid_url
from recto.contracts.retrieval_test import (
    CohereAPIError,
    Metadata,
    QdrantAPIError,
    ResponseError,
    SearchResult,
    check_embedding,
    check_response,
    check_results,
    looks_like_injection,
    response_of,
    results_of,
)
from recto.embedders import cohere as cohere_module
from recto.errors import ErrorKind, RectoError
from recto.errors import InvalidQuery as QueryError
from recto.stores.qdrant import connection as connection_module
from recto.stores.qdrant.dialects import Dialect
from recto.testing.parts import chunk
from recto.types.search import Hit
from tests.contracts.retrieval_test.conftest import BACKEND
from tests.running import environment


def result(rank: int = 1, score: float = 0.5, **metadata: Any) -> SearchResult:
    known = {
        "url": "https://b.example.org/a",
        "page_title": "A",
        "chunk_index": 0,
        "total_chunks": 2,
        "source": "a.md",
    }
    return SearchResult(rank, score, "Text", Metadata(**{**known, **metadata}))


def test_signatures_are_those_of_the_contract(retrieval: ModuleType) -> None:
    assert str(inspect.signature(retrieval.embed_query)) == "(query_text: 'str') -> 'list[float]'"
    defaults = {
        name: given.default for name, given in inspect.signature(retrieval.search_qdrant).parameters.items()
    }
    assert defaults == {
        "query_embedding": inspect.Parameter.empty,
        "top_k": 5,
        "collection_name": "website_embeddings",
    }
    assert list(inspect.signature(retrieval.format_results).parameters) == ["query", "results", "top_k"]


@pytest.mark.parametrize("query", ["", "  \n", None, "a" * 2001, 7])
def test_an_invalid_query_is_a_value_error(retrieval: ModuleType, query: Any) -> None:
    with pytest.raises(ValueError) as caught:
        retrieval.embed_query(query)
    assert isinstance(caught.value, RectoError)
    assert caught.value.hint


def test_a_query_can_have_2000_characters(embedded: Path, workdir: Path, retrieval: ModuleType) -> None:
    assert len(retrieval.embed_query("a" * 2000)) == 384


@pytest.mark.parametrize("top_k", [0, -1, 51, True, 2.5, "5", None])
def test_top_k_out_of_range_is_a_value_error(retrieval: ModuleType, top_k: Any) -> None:
    with pytest.raises(ValueError, match="between 1 and 50"):
        retrieval.search_qdrant([0.1] * 384, top_k)


@pytest.mark.parametrize(
    "vector",
    [[], [0.1] * 383, [math.nan] * 384, [math.inf] * 384, ["x"] * 384, "text", None, [True] * 384],
    ids=lambda value: str(value)[:12],
)
def test_a_vector_that_does_not_fit_is_a_value_error(
    embedded: Path, workdir: Path, retrieval: ModuleType, vector: Any
) -> None:
    with pytest.raises(ValueError, match="query_embedding"):
        retrieval.search_qdrant(vector)


def test_the_same_query_always_has_the_same_embedding(
    embedded: Path, workdir: Path, retrieval: ModuleType
) -> None:
    assert retrieval.embed_query("What is ROS 2?") == retrieval.embed_query("  What is ROS 2? ")


def test_many_threads(embedded: Path, workdir: Path, retrieval: ModuleType) -> None:
    def ask(number: int) -> Any:
        query = ("What is ROS 2?", "What is a digital twin?")[number % 2]
        return retrieval.format_results(query, retrieval.search_qdrant(retrieval.embed_query(query)), 5)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(24)))
    assert all(answer == answers[number % 2] for number, answer in enumerate(answers))


def test_a_missing_collection(embedded: Path, workdir: Path, retrieval: ModuleType) -> None:
    vector = retrieval.embed_query("robot")
    with pytest.raises(QdrantAPIError, match="'elsewhere' does not exist") as caught:
        retrieval.search_qdrant(vector, 5, "elsewhere")
    assert caught.value.reason is ErrorKind.MISSING
    with pytest.raises(ValueError, match="collection name"):
        retrieval.search_qdrant(vector, 5, "../etc")


def test_collection_name_replaces_only_the_default(
    embedded: Path, workdir: Path, retrieval: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLECTION_NAME", "not-there")
    vector = retrieval.embed_query("robot")
    with pytest.raises(QdrantAPIError, match="'not-there'"):
        retrieval.search_qdrant(vector)
    assert len(retrieval.search_qdrant(vector, 5, "rag_embedding")) == 5


def test_a_missing_key_is_an_error_of_the_contract(
    workdir: Path, retrieval: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECTO_PROFILE", "cloud")
    with pytest.raises(CohereAPIError, match="COHERE_API_KEY is required but not set") as caught:
        retrieval.embed_query("robot")
    assert caught.value.reason is ErrorKind.CONFIGURATION
    with pytest.raises(QdrantAPIError, match="COHERE_API_KEY is required but not set"):
        retrieval.search_qdrant([0.0] * 1024)


def test_the_deadlines_of_the_contract() -> None:
    assert cohere_module._QUERY_SECONDS <= 10
    assert connection_module._READ_SECONDS <= 5


def test_importing_opens_nothing(home: Path) -> None:
    code = (
        "import sys, retrieval, test_retrieval, check_qdrant; "
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=BACKEND,
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert not {"numpy", "onnxruntime", "cohere", "qdrant_client", "qdrant_edge"} & set(done.stdout.split())
    assert not home.exists()


def test_the_example_in_the_modules_docstring_runs(sample_home: Path, retrieval: ModuleType) -> None:
    code = inspect.cleandoc(
        "    " + (retrieval.__doc__ or "").split("\n\n", 1)[1].rpartition("\n\n")[0].lstrip()
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=BACKEND,
        env=environment(sample_home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "'result_count': 5" in done.stdout, done.stderr


def test_formatting_is_deterministic_and_checked(retrieval: ModuleType) -> None:
    results = [result(1, 0.9), result(2, 0.4)]
    assert retrieval.format_results("q", results, 5) == retrieval.format_results("q", results, 5)
    assert retrieval.format_results(" q ", [], 5)["results"] == []
    with pytest.raises(ValueError):
        retrieval.format_results("", results, 5)
    with pytest.raises(QdrantAPIError, match="2 results where at most 1"):
        retrieval.format_results("q", results, 1)


@pytest.mark.parametrize(
    ("results", "what"),
    [
        ([result(2)], "rank 2"),
        ([result(1, 0.1), result(2, 0.2)], "higher score than the one before"),
        ([result(1, 1.5)], "a score of 1.5"),
        ([result(1, math.nan)], "a score of nan"),
        ([result(url="not an address")], "no usable address"),
        ([result(page_title=" ")], "no page title"),
        ([result(chunk_index=2)], "chunk 2 of 2"),
        ([result(chunk_index=-1)], "chunk -1 of 2"),
    ],
)
def test_invalid_results_are_errors(results: list[SearchResult], what: str) -> None:
    with pytest.raises(QdrantAPIError, match=what):
        check_results(results, 5)


def test_invalid_embeddings_are_errors() -> None:
    check_embedding([0.5, -0.5], 2)
    for vector in ([0.5], [0.5, math.nan], [0.5, -math.inf]):
        with pytest.raises(CohereAPIError, match="cannot be used"):
            check_embedding(vector, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"query": 1},
        {"top_k": True},
        {"result_count": 2},
        {"results": [{}]},
        {"results": None},
        {"query": object()},
        {"query": math.nan},
    ],
)
def test_invalid_responses_are_errors(change: dict[str, Any]) -> None:
    good = response_of("q", [result()], 5)
    check_response(good)
    with pytest.raises(ResponseError):
        check_response({**good, **change})


def test_scores_are_clamped() -> None:
    hits = [Hit(1.0000002, chunk(0)), Hit(-0.25, chunk(1))]
    assert [found.score for found in results_of(hits)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("https://b.example.org/docs/a", "https://b.example.org/docs/a"),
        ("https://b.example.org/a page", "https://b.example.org/a%20page"),
        ("docs/a.md", "local://docs/a.md"),
        ("/docs/a", "local://docs/a"),
        ("C:\\books\\a.md", "local://C%3A/books/a.md"),
        ("", "local://chunk/7"),
        ("http://[broken", "local://http%3A//%5Bbroken"),
    ],
)
def test_every_result_has_a_url(stored: str, shown: str) -> None:
    (found,) = results_of([Hit(0.5, replace(chunk(0), id="7", page_url=stored))])
    assert found.metadata.url == shown
    assert valid_url(shown)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "text",
        "content",
        "url",
        "page_url",
        "source",
        "title",
        "page_title",
        "chunk_index",
        "total_chunks",
        "module",
        "headings",
        "metadata",
    ]
)


@given(st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=3), max_size=8))
def test_any_payload_of_another_pipeline_gives_valid_results(payload: dict[str, Any]) -> None:
    results = results_of([Hit(0.5, Dialect("foreign").read(1, payload))])
    check_results(results, 5)
    check_response(response_of("q", results, 5))


@pytest.mark.parametrize(
    "text", ["'; DROP TABLE chunks; --", "x UNION SELECT key", "<script>alert(1)</script>", "1 or 1=1"]
)
def test_injections_are_detected(text: str) -> None:
    assert looks_like_injection(text)
    assert not looks_like_injection("Should I select a union joint or drop the table?")


def test_errors_are_recto_errors() -> None:
    assert issubclass(QueryError, ValueError)
    assert issubclass(QueryError, RectoError)

"""OpenTelemetry spans of searches; `uv run --group test --group otel pytest tests/search/test_tracing.py` runs it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recto.api import connect
from recto.book.sources.tree import open_book
from recto.contracts import QUERY_COLLECTION
from recto.embedders.cohere import open_cohere
from recto.errors import ConfigurationError
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder
from recto.search.retriever import Retriever, make_retriever
from recto.settings import Settings, load_settings
from recto.stores.edge import EdgeStore
from tests.conftest import COHERE_KEY
from tests.doubles.cohere import CohereDouble
from tests.running import run

QUESTION = "What is ROS 2?"


@pytest.fixture(scope="module")
def exporter() -> Any:
    pytest.importorskip("opentelemetry.sdk", reason="needs the group otel")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: Any) -> Iterator[Any]:
    exporter.clear()
    yield exporter.get_finished_spans
    exporter.clear()


def traced(home: Path, embedder: Embedder, **more: Any) -> Retriever:
    settings = Settings("local", "edge", home, otel=True, **more)
    return make_retriever(settings, embedder, EdgeStore(home), QUERY_COLLECTION)


def test_a_search_has_three_spans(spans: Any, sample_home: Path, embedder: Embedder) -> None:
    retriever = traced(sample_home, embedder)
    response = retriever.search(QUESTION, top_k=3)
    embed, store, search = spans()
    assert search.name == f"retrieval {QUERY_COLLECTION}"
    attributes = dict(search.attributes)
    for name, value in response.timings._asdict().items():
        assert attributes.pop(f"recto.{name}") == pytest.approx(value)
    assert attributes == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.provider.name": "recto",
        "gen_ai.data_source.id": QUERY_COLLECTION,
        "gen_ai.retrieval.top_k": 3,
        "gen_ai.request.model": embedder.fingerprint.model,
        "recto.queries": 1,
        "recto.mode": "hybrid",
        "recto.generation": response.generation,
        "recto.results": 3,
    }
    assert embed.name == f"embeddings {embedder.fingerprint.model}"
    assert dict(embed.attributes) == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "local",
        "gen_ai.request.model": embedder.fingerprint.model,
        "gen_ai.embeddings.dimension.count": embedder.dim,
    }
    assert store.name == f"search {QUERY_COLLECTION}"
    assert dict(store.attributes) == {
        "db.system.name": "qdrant",
        "db.operation.name": "search",
        "db.collection.name": QUERY_COLLECTION,
    }
    assert {span.parent.span_id for span in (embed, store)} == {search.context.span_id}
    assert search.start_time <= embed.start_time <= embed.end_time <= store.end_time <= search.end_time
    assert {span.kind.name for span in spans()} == {"INTERNAL"}
    assert QUESTION not in str([span.to_json() for span in spans()])


def test_the_query_is_captured_only_on_request(spans: Any, sample_home: Path, embedder: Embedder) -> None:
    retriever = traced(sample_home, embedder, otel_capture_query=True)
    retriever.with_collection("recto-sample").search_batch([QUESTION, "digital twin"], mode="lexical")
    store, search = spans()
    assert (store.name, search.name) == ("search recto-sample", "retrieval recto-sample")
    assert search.attributes["gen_ai.retrieval.query.text"] == f"{QUESTION}\ndigital twin"
    assert search.attributes["recto.queries"] == 2
    assert "gen_ai.request.model" not in search.attributes, "lexical search uses no model"


def test_an_error_has_its_class_and_no_message(spans: Any, sample_home: Path, embedder: Embedder) -> None:
    with pytest.raises(ConfigurationError):
        traced(sample_home, embedder).with_collection("missing").search(QUESTION)
    (search,) = spans()
    assert search.attributes["error.type"] == "CollectionMissing"
    assert (search.status.status_code.name, search.status.description, search.events) == ("ERROR", None, ())


def test_a_service_is_a_client_span(spans: Any, home: Path, small_book: Path, cohere: CohereDouble) -> None:
    values = {"COHERE_API_KEY": COHERE_KEY, "COHERE_API_URL": cohere.url, "RECTO_OTEL": "1"}
    settings = load_settings({**values, "RECTO_STORE": "edge"}, small_book)
    service, store = open_cohere(settings, print), EdgeStore(home)
    index_book(IndexJob(open_book(small_book), service), store, "garden", journal=home / "journal")
    retriever = make_retriever(settings, service, store, "garden")

    async def search() -> None:
        await retriever.asearch("When are beans sown?")
        await retriever.aclose()

    asyncio.run(search())
    service.close()
    embed, stored, found = spans()
    assert (embed.kind.name, stored.kind.name, found.kind.name) == ("CLIENT", "INTERNAL", "INTERNAL")
    assert embed.attributes["gen_ai.provider.name"] == "cohere"
    assert embed.parent.span_id == stored.parent.span_id == found.context.span_id


def test_connect_uses_the_setting(spans: Any, sample_home: Path) -> None:
    for otel in (True, False):
        with connect(settings=Settings("local", "edge", sample_home, otel=otel)) as retriever:
            retriever.search(QUESTION)
            assert len(spans()) == 3


def test_without_the_package(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = sys.modules['opentelemetry.trace'] = None\n"
        "from recto.cli.main import main; main()"
    )
    words = ("search", "soil", "--collection", "garden")
    done = run([sys.executable, "-c", code, *words], tmp_path, RECTO_OTEL="1")
    assert done.returncode == 2
    assert "RECTO_OTEL needs the extra `otel`" in done.stderr

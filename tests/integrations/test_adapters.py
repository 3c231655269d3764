"""The adapters of the frameworks: what all of them do, what each does in its own way, and the guides' examples."""

from __future__ import annotations

import asyncio
import pickle
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from recto.errors import CollectionMissing, InvalidArgument, InvalidQuery
from recto.search.retriever import Retriever
from tests.running import ROOT, run

QUESTION = "What is a ROS 2 node?"


class Found(NamedTuple):
    """A document or node of a framework."""

    id: str
    text: str
    metadata: dict[str, Any]
    score: float | None


class Adapter(NamedTuple):
    """An adapter of a framework, by what all of them can do."""

    search: Callable[[str], list[Found]]
    asearch: Callable[[str], Awaitable[list[Found]]]


def load(name: str) -> Any:
    """Import an adapter; skip the test without its framework."""
    reason = f"uv run --group {name} has it"
    return pytest.importorskip(f"recto.integrations.{name}", reason=reason, exc_type=ImportError)


def langchain(top_k: int = 5, **options: Any) -> Adapter:
    retriever = load("langchain").RectoLangChainRetriever(k=top_k, **options)

    def read(documents: Any) -> list[Found]:
        return [Found(one.id, one.page_content, one.metadata, one.metadata["score"]) for one in documents]

    async def asearch(query: str) -> list[Found]:
        return read(await retriever.ainvoke(query))

    return Adapter(lambda query: read(retriever.invoke(query)), asearch)


def llamaindex(top_k: int = 5, **options: Any) -> Adapter:
    retriever = load("llamaindex").RectoLlamaIndexRetriever(similarity_top_k=top_k, **options)

    def read(nodes: Any) -> list[Found]:
        return [Found(one.node_id, one.text, one.metadata, one.score) for one in nodes]

    async def asearch(query: str) -> list[Found]:
        return read(await retriever.aretrieve(query))

    return Adapter(lambda query: read(retriever.retrieve(query)), asearch)


def haystack(top_k: int = 5, **options: Any) -> Adapter:
    pipeline = haystack_pipeline(load("haystack").RectoHaystackRetriever(top_k=top_k, **options))

    def read(result: Any) -> list[Found]:
        return [Found(one.id, one.content, one.meta, one.score) for one in result["book"]["documents"]]

    async def asearch(query: str) -> list[Found]:
        return read(await pipeline.run_async({"book": {"query": query}}))

    return Adapter(lambda query: read(pipeline.run({"book": {"query": query}})), asearch)


def haystack_pipeline(component: Any) -> Any:
    from haystack import Pipeline

    pipeline = Pipeline()
    pipeline.add_component("book", component)
    return pipeline


Framework = Callable[..., Adapter]
each = pytest.mark.parametrize("framework", [langchain, llamaindex, haystack])


@each
def test_documents_have_citations(framework: Framework, retriever: Retriever) -> None:
    expected = retriever.search(QUESTION, top_k=3).hits
    found = framework(3, retriever=retriever).search(QUESTION)
    for one, hit in zip(found, expected, strict=True):
        assert one[:2] == (hit.chunk.id, hit.chunk.text)
        assert one.score == hit.score
        about = (hit.chunk.url, hit.chunk.title, hit.chunk.module)
        assert tuple(one.metadata[name] for name in ("url", "title", "module")) == about


@each
def test_options(framework: Framework, retriever: Retriever) -> None:
    def metadata(field: str, **options: Any) -> set[Any]:
        found = framework(20, retriever=retriever, **options).search("sensors")
        return {one.metadata[field] for one in found}

    page = retriever.search(QUESTION).hits[0].chunk.page_url
    assert metadata("module", module=("simulation", "isaac")) == {"simulation", "isaac"}
    assert metadata("page_url", url=page) == {page}
    assert metadata("module", module=("simulaton",)) == metadata("url", lang="de") == set()
    assert metadata("url", version="2.0") == set()
    assert metadata("language", lang="en") == {"en"}
    assert metadata("mode", mode="lexical") == {"lexical"}
    scores = {hit.score for hit in retriever.search("sensors", top_k=20, mode="lexical").hits}
    assert metadata("score", mode="lexical") == scores
    section = framework(1, retriever=retriever, section_tokens=400).search("sensors")[0].text
    assert section == retriever.search("sensors", top_k=1, section_tokens=400).hits[0].section_text


@each
def test_async(framework: Framework, retriever: Retriever, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [hit.chunk.id for hit in retriever.search(QUESTION).hits]

    def refuse(*_: Any) -> None:
        raise AssertionError("the sync search was used")

    monkeypatch.setattr(retriever, "search", refuse)
    adapter = framework(retriever=retriever)

    async def many() -> list[list[Found]]:
        return await asyncio.gather(*(adapter.asearch(QUESTION) for _ in range(20)))

    assert all([one.id for one in found] == expected for found in asyncio.run(many()))


@each
def test_errors(framework: Framework, retriever: Retriever) -> None:
    with pytest.raises(Exception, match="Query cannot be empty") as caught:
        framework(retriever=retriever).search(" ")
    assert isinstance(caught.value.__cause__ or caught.value, InvalidQuery)  # a pipeline wraps it


def test_langchain(retriever: Retriever, sample_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of a call, chains, batches, misspelt options, and pickling."""
    made = load("langchain").RectoLangChainRetriever
    adapter = made(retriever=retriever, module=("simulation",), k=2)
    page = retriever.search(QUESTION).hits[0].chunk.page_url
    for options, field, expected in (
        ({"module": ["isaac"]}, "module", ["isaac"] * 2),
        ({"module": (), "url": page, "k": 3}, "page_url", [page] * 3),
        ({"mode": "lexical"}, "mode", ["lexical"] * 2),
    ):
        documents = adapter.invoke("sensors", **options)
        assert [document.metadata[field] for document in documents] == expected
    assert adapter.invoke("sensors", version="2.0") == []
    with pytest.raises(InvalidArgument):
        adapter.invoke(QUESTION, k=101)
    with pytest.raises(TypeError, match="modul"):
        adapter.invoke(QUESTION, modul="ros2")
    with pytest.raises(ValueError, match="colection"):
        made(colection="physical-ai-book")
    chain = adapter | (lambda documents: [document.id for document in documents])
    assert asyncio.run(chain.ainvoke("sensors")) == chain.invoke("sensors")
    assert [one.id for one in adapter.batch(["sensors", QUESTION])[0]] == chain.invoke("sensors")
    monkeypatch.setenv("RECTO_HOME", str(sample_home))
    monkeypatch.setenv("RECTO_PRECISION", "fp32")  # the precision of `retriever`
    copy = pickle.loads(pickle.dumps(adapter))
    assert (copy.collection, copy.k, copy.retriever) == (retriever.collection, 2, None)
    assert copy.invoke("sensors") == adapter.invoke("sensors")
    copy._client.retriever().close()


def test_llamaindex(retriever: Retriever) -> None:
    """The language model gets the citation and no scores; nodes work in a query engine."""
    adapter = load("llamaindex").RectoLlamaIndexRetriever(retriever=retriever, similarity_top_k=2)
    from llama_index.core.llms import MockLLM
    from llama_index.core.postprocessor import SimilarityPostprocessor
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.response_synthesizers import get_response_synthesizer
    from llama_index.core.schema import MetadataMode

    synthesizer = get_response_synthesizer(response_mode="simple_summarize", llm=MockLLM())
    engine = RetrieverQueryEngine(adapter, synthesizer, [SimilarityPostprocessor(similarity_cutoff=0.1)])
    hits = retriever.search(QUESTION, top_k=2).hits
    for node, hit in zip(engine.query(QUESTION).source_nodes, hits, strict=True):
        shown = node.node.get_content(MetadataMode.LLM)
        assert node.node_id == hit.chunk.id
        assert hit.chunk.url in shown
        assert "content_hash" not in shown
        assert "start_line" not in shown


def test_haystack(retriever: Retriever, sample_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of a run, serialization, and warming up."""
    made = load("haystack").RectoHaystackRetriever
    from haystack import Pipeline
    from haystack.core.errors import DeserializationError

    component = made(retriever=retriever, top_k=2, module=("simulation",))
    page = retriever.search(QUESTION).hits[0].chunk.page_url
    for options, field, expected in (
        ({"top_k": 1, "module": ["isaac"]}, "module", ["isaac"]),
        ({"module": [], "url": page}, "page_url", [page] * 2),
        ({"mode": "lexical"}, "mode", ["lexical"] * 2),
    ):
        documents = component.run("sensors", **options)["documents"]
        assert [document.meta[field] for document in documents] == expected
    assert component.run("sensors", lang="de") == component.run("sensors", version="2.0") == {"documents": []}
    data = component.to_dict()
    given = {"collection": retriever.collection, "top_k": 2, "module": ["simulation"]}
    assert data["init_parameters"] == given
    assert made.from_dict(data).to_dict() == data
    text = haystack_pipeline(component).dumps()
    with pytest.raises(DeserializationError):
        Pipeline.loads(text)
    monkeypatch.setenv("RECTO_HOME", str(sample_home))
    copy = Pipeline.loads(text, allowed_modules=["recto.integrations.haystack"])
    found = copy.run({"book": {"query": "sensors"}})["book"]["documents"]
    assert [one.id for one in found] == [one.id for one in component.run("sensors")["documents"]]
    copy.get_component("book")._client.retriever().close()
    component.warm_up()
    with pytest.raises(CollectionMissing):
        made(retriever=retriever.with_collection("nowhere")).warm_up()


PACKAGES = {"langchain": "langchain_core", "llamaindex": "llama_index.core", "haystack": "haystack"}
GUIDE = (ROOT / "docs" / "how-to" / "frameworks.md").read_text("utf-8")
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    (name, code) for code in FENCE.findall(GUIDE) for name in PACKAGES if f"integrations.{name} " in code
]
assert {name for name, _ in EXAMPLES} == set(PACKAGES)


@pytest.mark.parametrize(
    ("name", "code"), EXAMPLES, ids=[f"{name}-{number}" for number, (name, _) in enumerate(EXAMPLES)]
)
def test_examples(sample_home: Path, tmp_path: Path, name: str, code: str) -> None:
    pytest.importorskip(PACKAGES[name], reason=f"uv run --group {name} has it")
    done = run([sys.executable, "-c", code], sample_home, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "local://docs/docs/" in done.stdout

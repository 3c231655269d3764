"""Section questions help to find a section, and no view of a book shows them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from recto.evaluation.calibration import calibrate
from recto.evaluation.coverage import cover
from recto.evaluation.gaps import LoggedQueries, LoggedQuery, find_gaps
from recto.evaluation.report import coverage_page, gaps_page
from recto.integrations import content, metadata
from recto.protocols import Embedder
from recto.search.context import context_to_dict
from recto.search.display import response_to_dict, response_words
from recto.search.pages import export_llms
from recto.search.retriever import Retriever
from recto.server.http.answers import _messages, _numbered
from recto.server.static_export import export_static
from recto.stores.edge import EdgeStore
from tests.library import write_index
from tests.server.http.service import Service, served
from tests.server.mcp.client import call

WORD, OTHER = "xylophone", "trombone"
"""Words of the questions alone: in the file, and in the front matter of a page."""
SOIL = "module-1-garden/01-soil.md"
QUERY = f"{WORD} {OTHER}"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
View = Callable[[Retriever, Path, Path], Any]


def shown(retriever: Retriever, *, sections: bool = False) -> Any:
    response = retriever.search("gardens and worms", section_tokens=400 if sections else None)
    cited = [(content(hit), metadata(hit, response)) for hit in response.hits]
    return response_to_dict(response, response_words(retriever, response)), cited


def of_page(retriever: Retriever) -> Any:
    pages = [retriever.page(url) for url in retriever.pages()]
    return [(page.markdown(), [chunk.to_dict() for chunk in page.chunks]) for page in pages]


def of_context(retriever: Retriever) -> Any:
    context = retriever.context("gardens and worms", max_tokens=1000)
    return context.text, context_to_dict(context), list(_numbered(context)), _messages(context)


def of_service(retriever: Retriever, home: Path) -> Any:
    page = quote(next(iter(retriever.pages())), safe="")
    with Service(served(home, "garden")) as service:
        paths = [f"/v1/pages/{page}?html=true", f"/v1/pages/{page}.md", "/v1/search?q=worms&html=true"]
        paths += ["/llms.txt", "/llms-full.txt", "/skill.md", "/v1/health"]
        replies = [service.get(path) for path in paths]
        replies.append(service.post("/v1/context", {"query": "worms"}))
        replies.append(service.post("/v1/related", {"selection": "Soil holds water."}))
    assert all(reply.status == 200 for reply in replies)
    return [reply.body.decode() for reply in replies]


def of_tools(retriever: Retriever) -> Any:
    tools: dict[str, dict[str, str]] = {
        "search_book": {"query": "worms"},
        "get_context": {"query": "worms"},
        "read_page": {"url": next(iter(retriever.pages()))},
        "related_chunks": {"selection": "Soil holds water."},
        "list_modules": {},
    }
    return [call(retriever, tool, **arguments).model_dump() for tool, arguments in tools.items()]


def of_files(retriever: Retriever, directory: Path) -> Any:
    export_llms(retriever.open(), "garden", directory)
    return {str(path): path.read_text("utf-8") for path in directory.rglob("*") if path.is_file()}


def of_static_text(retriever: Retriever, directory: Path) -> Any:
    """The chunks of a static export; the terms of its search include those of the questions."""
    export_static(retriever.open(), directory, semantic="off")
    return [gzip.decompress(path.read_bytes()).decode() for path in directory.glob("data/chunks-*.bin")]


def of_reports(retriever: Retriever) -> Any:
    info, coverage = retriever.open().info, cover(retriever)
    gaps = find_gaps(retriever, LoggedQueries({"worms": LoggedQuery(Counter({"worms and zebras": 3}))}))
    return (
        coverage.pages(),
        coverage_page(coverage, info, least=None, when=NOW),
        gaps_page(gaps, info, count=9, when=NOW),
    )


VIEWS: dict[str, View] = {
    "hits": lambda retriever, home, out: shown(retriever),
    "sections": lambda retriever, home, out: shown(retriever, sections=True),
    "pages": lambda retriever, home, out: of_page(retriever),
    "contexts, citations and prompts": lambda retriever, home, out: of_context(retriever),
    "service": lambda retriever, home, out: of_service(retriever, home),
    "MCP tools": lambda retriever, home, out: of_tools(retriever),
    "files for language models": lambda retriever, home, out: of_files(retriever, out),
    "static export": lambda retriever, home, out: of_static_text(retriever, out),
    "reports": lambda retriever, home, out: of_reports(retriever),
}


@pytest.fixture
def garden(small_book: Path, home: Path, embedder: Embedder) -> Retriever:
    line = {"page": SOIL, "heading": "Soil", "questions": [f"where is the {WORD}"]}
    (small_book / "recto-questions.jsonl").write_text(json.dumps(line), "utf-8")
    welcome = small_book / "welcome.md"
    welcome.write_text(f"---\nquestions: [who plays the {OTHER}]\n---\n{welcome.read_text('utf-8')}", "utf-8")
    write_index(small_book, embedder, home, "garden", calibrate=calibrate)
    return Retriever(embedder, EdgeStore(home), "garden")


def test_no_view_shows_section_questions(garden: Retriever, home: Path, tmp_path: Path) -> None:
    found = {hit.chunk.source for hit in garden.search(QUERY, mode="lexical").hits}
    assert found == {SOIL, "welcome.md"}, "they are searched"
    for name, view in VIEWS.items():
        text = json.dumps(view(garden, home, tmp_path / name), default=str)
        assert "worms" in text.lower(), name
        assert WORD[:5] not in text, name
        assert OTHER[:5] not in text, name

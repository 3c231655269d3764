"""A small project that uses the public API; only type checkers read it, against the installed wheel.

The example of a plugin, which they check too, has the parts that a plugin can provide.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import recto
from recto import (
    BookPage,
    Chunk,
    ConfigurationError,
    Filters,
    Hit,
    IndexProgress,
    IndexReport,
    InvalidArgument,
    Outcome,
    RectoError,
    Retriever,
    Run,
    SearchResponse,
)
from recto.errors import ErrorKind
from recto.protocols import Store
from recto.types.request import SearchOptions
from recto.types.search import Mode


def index_book(location: str | Path) -> IndexReport:
    def show(progress: IndexProgress) -> None:
        print(progress.done, progress.chunks)

    plan = recto.index(location, "my-book", dry_run=True).plan
    print(plan.chunks, plan.tokens, [page.path for page in plan.pages])
    return recto.index(location, "my-book", progress=show, options=recto.SourceOptions(locale="de"))


def search(query: str, mode: Mode = "hybrid") -> list[tuple[float, str]]:
    options: SearchOptions = {"module": ["ros2", "isaac"], "url": "local://docs/docs/intro"}
    with recto.connect("my-book") as retriever:
        response = retriever.search(query, top_k=3, filters={"module": "ros2"}, mode=mode)
        assert_type(response, SearchResponse)
        narrowed = retriever.search(
            query, top_k=3, filters=Filters(modules=("ros2",)), min_score=0.2, group_by="page"
        )
        several = retriever.search_batch([query, query], **options)
        assert_type(several, list[SearchResponse])
        page = retriever.page(response.hits[0].chunk.page_url)
        assert_type(page, BookPage)
        print(page.markdown(), [module.title for module in retriever.modules()], narrowed.groups)
        related = retriever.related("a selected text", "why?", filters={"url": page.url})
        print(related.selection.cut if related.selection else False)
        assert_type(retriever.store, Store)
    if response.outcome is Outcome.NO_MATCH:
        print(response.message)
    return [(hit.score, link(hit)) for hit in response.hits]


def link(hit: Hit) -> str:
    assert_type(hit.chunk, Chunk)
    return hit.chunk.url


def evaluate(retriever: Retriever) -> Run:
    suite = recto.load_suite("questions.json")
    run = recto.evaluate(suite, retriever=retriever, measures=["nDCG@10"], mode="dense", top_k=10)
    print({name: score.mean for name, score in run.scores().items()}, run.share)
    return run


def careful(query: str) -> SearchResponse | None:
    try:
        return recto.connect().search(query)
    except InvalidArgument as error:
        print(error.message, error.hint)
    except ConfigurationError as error:
        print(error)
    except RectoError as error:
        if error.kind is ErrorKind.CONNECTION:
            return None
        raise
    return None


async def serve(query: str) -> SearchResponse:
    await recto.aindex("docs", "my-book")
    retriever = await recto.aconnect("my-book")
    run = await recto.aevaluate("questions.json", retriever=retriever)
    assert_type(run, Run)
    try:
        return await retriever.asearch(query, filters={"module": "ros2"})
    finally:
        await retriever.aclose()

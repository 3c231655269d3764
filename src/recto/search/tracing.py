"""OpenTelemetry spans for searches, by the conventions for generative AI; RECTO_OTEL turns them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter, time_ns
from typing import TYPE_CHECKING

from recto import __version__
from recto.errors import missing_extra
from recto.protocols import AsyncIndex, embedder_abilities
from recto.search.pipeline import SearchedBatch
from recto.types.request import SearchRequest

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from recto.settings import Settings

_STORES = {"edge": "qdrant", "server": "qdrant"}
"""The engines of the built-in stores; plugins have the name of their setting."""


class SearchTracer:
    """Records a span for each search of a retriever, with one for the embedder and one for the store."""

    def __init__(self, settings: Settings) -> None:
        try:
            from opentelemetry.trace import get_tracer
        except ModuleNotFoundError as error:
            raise missing_extra("RECTO_OTEL", "otel") from error
        self._settings = settings
        self._tracer = get_tracer("recto", __version__)

    @contextmanager
    def trace(
        self, collection: str, texts: Sequence[str], request: SearchRequest
    ) -> Iterator[Callable[[SearchedBatch], None]]:
        """Record the span of a search; of an error, only the class, because messages may quote a query."""
        from opentelemetry.trace import StatusCode

        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.provider.name": "recto",
            "gen_ai.data_source.id": collection,
            "gen_ai.retrieval.top_k": request.top_k,
            "recto.queries": len(texts),
        }
        if self._settings.otel_capture_query:
            attributes["gen_ai.retrieval.query.text"] = "\n".join(texts)
        with self._tracer.start_as_current_span(
            f"retrieval {collection}",
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield partial(self._describe, span)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise

    def _describe(self, span: Span, searched: SearchedBatch) -> None:
        """Add the results of a search to its span, and record what the embedder and the store did."""
        run, timings, queries = searched.run, searched.timings, len(searched.results)
        index, embedder = run.opened.index, run.opened.embedder
        span.set_attributes(
            {
                "recto.mode": run.request.mode,
                "recto.generation": index.info.generation,
                "recto.results": sum(len(result.hits) for result in searched.results),
                "recto.embed_ms": timings.embed_ms * queries,
                "recto.search_ms": timings.search_ms * queries,
                "recto.total_ms": timings.total_ms * queries,
            }
        )
        embedded_at = run.opened_at + timings.embed_ms * queries / 1e3
        model = embedder.fingerprint
        if run.request.mode != "lexical":
            span.set_attribute("gen_ai.request.model", model.model)
            attributes: dict[str, str | int] = {
                "gen_ai.operation.name": "embeddings",
                "gen_ai.provider.name": self._settings.embedder,
                "gen_ai.request.model": model.model,
                "gen_ai.embeddings.dimension.count": model.dim,
            }
            remote = embedder_abilities(embedder).aembed_queries is not None
            self._step(f"embeddings {model.model}", run.opened_at, embedded_at, attributes, remote=remote)
        store = self._settings.store
        attributes = {
            "db.system.name": _STORES.get(store, store),
            "db.operation.name": "search",
            "db.collection.name": run.collection,
        }
        ended_at = embedded_at + timings.search_ms * queries / 1e3
        remote = isinstance(index, AsyncIndex)
        self._step(f"search {run.collection}", embedded_at, ended_at, attributes, remote=remote)

    def _step(
        self,
        name: str,
        started_at: float,
        ended_at: float,
        attributes: Mapping[str, str | int],
        *,
        remote: bool,
    ) -> None:
        """Record a span of the current search that has ended, by the clock of `perf_counter`."""
        from opentelemetry.trace import SpanKind

        now, clock = time_ns(), perf_counter()
        kind = SpanKind.CLIENT if remote else SpanKind.INTERNAL
        start = now - int((clock - started_at) * 1e9)
        span = self._tracer.start_span(name, kind=kind, attributes=attributes, start_time=start)
        span.end(now - int((clock - ended_at) * 1e9))

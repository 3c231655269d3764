"""OpenTelemetry spans for searches, by the conventions for generative AI; RECTO_OTEL turns them on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter, time_ns
from typing import TYPE_CHECKING

from recto import __version__
from recto.errors import missing_extra
from recto.protocols import AsyncEmbedder, AsyncIndex, Embedder, Store
from recto.search.retriever import Retriever

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from recto.search.retriever import _Found, _Parameters
    from recto.settings import Settings

_STORES = {"edge": "qdrant", "server": "qdrant"}
"""The engines of the built-in stores; plugins have the name of their setting."""


class TracedRetriever(Retriever):
    """A retriever that records a span for each search, with one for the embedder and one for the store."""

    def __init__(self, settings: Settings, embedder: Embedder, store: Store, collection: str) -> None:
        super().__init__(embedder, store, collection, settings.lexical_weight)
        try:
            from opentelemetry.trace import get_tracer
        except ModuleNotFoundError as error:
            raise missing_extra("RECTO_OTEL", "otel") from error
        self._settings = settings
        self._tracer = get_tracer("recto", __version__)

    def with_collection(self, collection: str) -> Retriever:
        """Return a retriever of another collection that shares the embedder and the store."""
        return TracedRetriever(self._settings, self._embedder, self._store, collection)

    def _find(self, texts: Sequence[str], parameters: _Parameters) -> _Found:
        with self._retrieval(texts, parameters) as span:
            found = super()._find(texts, parameters)
            self._describe(span, found)
        return found

    async def _afind(self, texts: Sequence[str], parameters: _Parameters) -> _Found:
        if not isinstance(self._embedder, AsyncEmbedder):
            return await super()._afind(texts, parameters)  # it calls `_find` in a thread
        with self._retrieval(texts, parameters) as span:
            found = await super()._afind(texts, parameters)
            self._describe(span, found)
        return found

    @contextmanager
    def _retrieval(self, texts: Sequence[str], parameters: _Parameters) -> Iterator[Span]:
        """Record the span of a search; of an error, only the class, because messages may quote a query."""
        from opentelemetry.trace import StatusCode

        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.provider.name": "recto",
            "gen_ai.data_source.id": self.collection,
            "gen_ai.retrieval.top_k": parameters.limit,
            "recto.queries": len(texts),
        }
        if self._settings.otel_capture_query:
            attributes["gen_ai.retrieval.query.text"] = "\n".join(texts)
        with self._tracer.start_as_current_span(
            f"retrieval {self.collection}",
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise

    def _describe(self, span: Span, found: _Found) -> None:
        """Add the results of a search to its span, and record what the embedder and the store did."""
        batch, results, timings = found
        queries = len(batch.texts)
        span.set_attributes(
            {
                "recto.mode": batch.mode,
                "recto.generation": batch.index.info.generation,
                "recto.results": sum(len(result.hits) for result in results),
                "recto.embed_ms": timings.embed_ms * queries,
                "recto.search_ms": timings.search_ms * queries,
                "recto.total_ms": timings.total_ms * queries,
            }
        )
        embedded = batch.opened + timings.embed_ms * queries / 1e3
        model = batch.embedder.fingerprint
        if batch.mode != "lexical":
            span.set_attribute("gen_ai.request.model", model.model)
            attributes: dict[str, str | int] = {
                "gen_ai.operation.name": "embeddings",
                "gen_ai.provider.name": self._settings.embedder,
                "gen_ai.request.model": model.model,
                "gen_ai.embeddings.dimension.count": model.dim,
            }
            remote = isinstance(self._embedder, AsyncEmbedder)
            self._step(f"embeddings {model.model}", batch.opened, embedded, attributes, remote=remote)
        store = self._settings.store
        attributes = {
            "db.system.name": _STORES.get(store, store),
            "db.operation.name": "search",
            "db.collection.name": self.collection,
        }
        ended = embedded + timings.search_ms * queries / 1e3
        remote = isinstance(batch.index, AsyncIndex)
        self._step(f"search {self.collection}", embedded, ended, attributes, remote=remote)

    def _step(
        self, name: str, started: float, ended: float, attributes: Mapping[str, str | int], *, remote: bool
    ) -> None:
        """Record a span of the current search that has ended; the times are those of `perf_counter`."""
        from opentelemetry.trace import SpanKind

        now, clock = time_ns(), perf_counter()
        kind = SpanKind.CLIENT if remote else SpanKind.INTERNAL
        start = now - int((clock - started) * 1e9)
        span = self._tracer.start_span(name, kind=kind, attributes=attributes, start_time=start)
        span.end(now - int((clock - ended) * 1e9))

"""Copy an index to another store, and check that both return the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from recto._util.text import plural
from recto.errors import ConfigurationError, IndexDamaged
from recto.protocols import Index, Store
from recto.search.analyzer import ANALYZER
from recto.search.lexical import LexiconBuilder, analyze_query, read_lexicon
from recto.search.pipeline import PreparedQuery, search_index
from recto.types.index import IndexInfo
from recto.types.request import SearchRequest
from recto.types.search import MODES, Chunk, Hit, Mode, Vector

_BATCH = 256
_SAMPLES = 20
_TOP_K = 5
SCORE_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Promotion:
    """The copy, and how many searches were compared."""

    info: IndexInfo
    compared: int


def promote(
    source: Index, target: Store, collection: str, progress: Callable[[int, int], None] | None = None
) -> Promotion:
    """Copy all chunks with their vectors, then compare a sample of searches."""
    fingerprint = source.info.fingerprint
    if fingerprint is None:
        raise ConfigurationError(
            "The index has no fingerprint, so it cannot be copied",
            hint="Index the book again with `recto index`.",
        )
    samples: list[tuple[Chunk, Vector]] = []
    builder = LexiconBuilder()
    fingerprint = replace(fingerprint, analyzer=ANALYZER)  # lexical vectors are made from the text
    with target.build(collection, fingerprint.embedder, analyzer=ANALYZER, rebuild=True) as build:
        done = 0
        chunks = source.scroll()
        while batch := list(islice(chunks, _BATCH)):
            vectors = source.vectors([chunk.id for chunk in batch])
            build.add(batch, [vectors[chunk.id] for chunk in batch], builder.vectors(batch))
            done += len(batch)
            samples.append((batch[0], vectors[batch[0].id]))
            if progress:
                progress(done, source.info.chunks)
        info = build.publish(fingerprint, builder.to_bytes())
    if source.info.calibration is not None:  # the same vectors have the same noise
        target.save_calibration(info, source.info.calibration)
    compared = samples[:: max(1, len(samples) // _SAMPLES)]
    _compare(source, target.open(collection), compared)
    return Promotion(info, len(compared))


def _compare(source: Index, copy: Index, samples: Sequence[tuple[Chunk, Vector]]) -> None:
    """Search both indexes by the vectors and headings of some chunks; raise an error if they differ."""
    vectors, headings = [vector for _, vector in samples], [chunk.heading_path for chunk, _ in samples]
    for mode in shared_modes(source, copy):
        results = search_both((source, copy), mode, vectors, headings, _TOP_K)
        for hits, copied_hits in zip(*results, strict=True):
            if difference := differs(hits, copied_hits):
                raise IndexDamaged(
                    f"The copy returns other results in {mode} mode: {difference}",
                    hint="Run `recto promote` again.",
                )


def shared_modes(left: Index, right: Index) -> tuple[Mode, ...]:
    """Return the modes in which both indexes can be searched."""
    return MODES if read_lexicon(left) is not None and read_lexicon(right) is not None else ("dense",)


def search_both(
    indexes: Sequence[Index], mode: Mode, vectors: Sequence[Vector], queries: Sequence[str], top_k: int
) -> list[list[list[Hit]]]:
    """Search indexes for queries with known vectors, each analysed with the vocabulary of the index."""
    hits = []
    for index in indexes:
        lexicon = read_lexicon(index)
        prepared = [
            PreparedQuery(text, analyze_query(text, lexicon) if lexicon else None, vector)
            for text, vector in zip(queries, vectors, strict=True)
        ]
        results = search_index(index, prepared, SearchRequest(top_k=top_k, mode=mode))
        hits.append([result.hits for result in results])
    return hits


def differs(left: list[Hit], right: list[Hit]) -> str:
    """Describe how two results differ; order within a tie and the fifth digit of scores do not count."""
    if len(left) != len(right):
        return f"{plural(len(left), 'result')} against {len(right)}"
    for number, (left_hit, right_hit) in enumerate(zip(left, right, strict=True), 1):
        if abs(left_hit.score - right_hit.score) > SCORE_TOLERANCE:
            return f"rank {number}: score {left_hit.score:.5f} against {right_hit.score:.5f}"
        tied = {hit.chunk.id for hit in right if abs(hit.score - left_hit.score) <= SCORE_TOLERANCE}
        # A tie may extend beyond the top k.
        at_the_end = abs(left_hit.score - left[-1].score) <= SCORE_TOLERANCE
        if left_hit.chunk.id not in tied and not at_the_end:
            pages = [f"{hit.chunk.page_url} ({hit.chunk.chunk_index})" for hit in (left_hit, right_hit)]
            return f"rank {number}: {' against '.join(pages)}"
    return ""

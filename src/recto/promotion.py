"""Copy an embedded index to a server, and show that both answer alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from recto.errors import ConfigurationError, IndexDamaged
from recto.protocols import Index, Store
from recto.search.analyzer import ANALYZER
from recto.search.lexicon import LexiconBuilder
from recto.types import Chunk, Hit, IndexInfo

_BATCH = 256
_SAMPLES = 20
_TOP_K = 5
SCORE_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Promotion:
    """What was copied, and how many searches were compared on both sides."""

    info: IndexInfo
    compared: int


def promote(source: Index, target: Store, collection: str, progress: Callable[[int, int], None] | None = None) -> Promotion:
    """Copy all chunks with their vectors, verify the count, and compare a sample of searches before anyone relies on it."""
    made = source.info.fingerprint
    if made is None:
        raise ConfigurationError("The index has no fingerprint, so it cannot be copied", hint="Index the book again with `recto index`.")
    samples = []
    lexicon = LexiconBuilder()
    made = replace(made, analyzer=ANALYZER)  # lexical vectors are made from the text, whatever the source has
    with target.build(collection, made.embedder, analyzer=ANALYZER, rebuild=True) as build:
        done = 0
        for batch in _batches(source.scroll()):
            vectors = source.vectors([chunk.id for chunk in batch])
            build.add(batch, [vectors[chunk.id] for chunk in batch], lexicon.vectors(batch))
            done += len(batch)
            samples.append(vectors[batch[0].id])
            if progress:
                progress(done, source.info.chunks)
        info = build.publish(made, lexicon.to_bytes())
    if source.info.calibration is not None:  # the same vectors have the same noise
        target.annotate(info, source.info.calibration)
    copy = target.open(collection)
    step = max(1, len(samples) // _SAMPLES)
    for vector in samples[::step]:
        if difference := differs(source.query(vector, _TOP_K), copy.query(vector, _TOP_K)):
            raise IndexDamaged(f"The copy answers differently: {difference}", hint="Run `recto promote` again.")
    return Promotion(info, len(samples[::step]))


def differs(left: list[Hit], right: list[Hit]) -> str:
    """Describe how two answers differ; places within a tie may be exchanged, scores may differ in the fifth digit."""
    if len(left) != len(right):
        return f"{len(left)} results against {len(right)}"
    for rank, (one, other) in enumerate(zip(left, right, strict=True), 1):
        if abs(one.score - other.score) > SCORE_TOLERANCE:
            return f"rank {rank}: score {one.score:.5f} against {other.score:.5f}"
        tied = {hit.chunk.id for hit in right if abs(hit.score - one.score) <= SCORE_TOLERANCE}
        at_the_end = abs(one.score - left[-1].score) <= SCORE_TOLERANCE  # a tie may go on beyond the last place
        if one.chunk.id not in tied and not at_the_end:
            return f"rank {rank}: {one.chunk.page_url} ({one.chunk.chunk_index}) against {other.chunk.page_url} ({other.chunk.chunk_index})"
    return ""


def _batches(chunks: Iterator[Chunk]) -> Iterator[list[Chunk]]:
    while batch := list(islice(chunks, _BATCH)):
        yield batch

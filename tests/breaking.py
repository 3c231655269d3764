"""Break an index in ways that stores and manifests do not notice: through the store's own building, with the fingerprint kept."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from recto.protocols import Index
from recto.stores.edge import EdgeStore
from recto.testing.parts import vector
from recto.types.search import Chunk, Vector

Passages = list[tuple[Chunk, Vector]]
Breaker = Callable[[Passages], Passages]


def publish_broken(home: Path, breaker: Breaker, target: str = "broken") -> Index:
    """Publish the collection `house` again under another name, broken; return the index."""
    store = EdgeStore(home)
    index = store.open("house")
    made = index.info.fingerprint
    assert made is not None
    chunks = sorted(index.scroll(), key=lambda chunk: (chunk.source, chunk.chunk_index))
    vectors = index.vectors([chunk.id for chunk in chunks])
    broken = breaker([(chunk, vectors[chunk.id]) for chunk in chunks])
    with store.build(target, made.embedder, rebuild=True) as build:
        build.add([chunk for chunk, _ in broken], [numbers for _, numbers in broken])
        build.publish(made)
    return store.open(target)


def of_another_model(passages: Passages) -> Passages:
    """Turn all vectors in the same way: distances stay, but a question's vector is of another space."""
    return [(chunk, [*numbers[1:], numbers[0]]) for chunk, numbers in passages]


def without_page(source: str) -> Breaker:
    """Drop a chapter."""
    return lambda passages: [passage for passage in passages if passage[0].source != source]


def with_pages_swapped(one: str, other: str, *, hashes: bool = False) -> Breaker:
    """Exchange texts and vectors of two pages; with `hashes` also what would show it from within."""

    def swap(passages: Passages) -> Passages:
        left = [passage for passage in passages if passage[0].source == one]
        right = [passage for passage in passages if passage[0].source == other]
        assert len(left) == len(right)
        moved: dict[str, tuple[Chunk, Vector]] = {}
        for (mine, my_vector), (theirs, their_vector) in zip(left, right, strict=True):
            moved[mine.id] = (_with_text(mine, theirs, hashes), their_vector)
            moved[theirs.id] = (_with_text(theirs, mine, hashes), my_vector)
        return [moved.get(chunk.id, (chunk, numbers)) for chunk, numbers in passages]

    return swap


def _with_text(place: Chunk, text: Chunk, hashes: bool) -> Chunk:
    if not hashes:
        return replace(place, text=text.text)
    return replace(place, text=text.text, headings=text.headings, content_hash=text.content_hash)


def with_passages_shuffled(source: str) -> Breaker:
    """Number the passages of a page backwards."""

    def shuffle(passages: Passages) -> Passages:
        backwards = [replace(one, chunk_index=one.total_chunks - 1 - one.chunk_index) for one, _ in passages]
        pairs = zip(passages, backwards, strict=True)
        return [(other if one.source == source else one, numbers) for (one, numbers), other in pairs]

    return shuffle


def without_module(passages: Passages) -> Passages:
    """Empty the module of one passage in three."""
    return [
        (replace(chunk, module="", module_keys=()) if number % 3 == 0 else chunk, numbers)
        for number, (chunk, numbers) in enumerate(passages)
    ]


def with_noise(share: float, seed: int = 1) -> Breaker:
    """Replace a share of the vectors by noise."""

    def spoil(passages: Passages) -> Passages:
        spoilt = set(random.Random(seed).sample(range(len(passages)), max(1, round(share * len(passages)))))
        return [
            (chunk, vector(1000 + number, len(numbers)) if number in spoilt else numbers)
            for number, (chunk, numbers) in enumerate(passages)
        ]

    return spoil


def with_opposite_vectors(*anchors: str) -> Breaker:
    """Turn the vectors of some sections round, so that their own words do not find them."""
    return lambda passages: [
        (chunk, [-number for number in numbers] if chunk.anchor in anchors else numbers)
        for chunk, numbers in passages
    ]


def without_a_passage(passages: Passages) -> Passages:
    """Drop one passage in the middle of a page."""
    lost = next(chunk.id for chunk, _ in passages if chunk.chunk_index == 1)
    return [passage for passage in passages if passage[0].id != lost]

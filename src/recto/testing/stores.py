"""What every store must do."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from recto._util import cosine
from recto.errors import (
    CollectionMissing,
    ConfigurationError,
    EmbeddingError,
    IndexDamaged,
    InvalidArgument,
    StoreBusy,
)
from recto.protocols import AsyncIndex, Index, Store, store_abilities
from recto.search.analyzer import ANALYZER
from recto.search.lexical import Lexicon, LexiconBuilder, analyze_query
from recto.search.pipeline import nearest_chunks
from recto.testing.parts import DIM, EMBEDDER, chunk, fingerprint, publish, publish_lexical, vector
from recto.types.index import Calibration, Candidates, IndexQuery, SparseVector
from recto.types.search import NO_FILTERS, Chunk, Filters, Hit, Vector

MODULES = [
    ("ros2", "module-1-ros2"),
    ("simulation", "module-2-simulation"),
    ("intro", "intro"),
    ("ros2", "week-9-ros2"),
]
MODULE_NAMES = [
    *("ros2", "ROS2", "module-1-ros2", "week-9-ros2", "simulation", "intro"),
    *("module-9-ros2", "vla", "", "*", "ros"),
]
PAGE_URLS = [
    None,
    "local://docs/docs/module-1-ros2/1",
    "LOCAL://docs/docs/module-1-ros2/1/",
    "local://docs/docs/intro/2.md",
    "nowhere",
]
WORDS = [
    chunk(number, text="soil and water" + " compost" * (number % 3 == 0), page="ab"[number % 2])
    for number in range(60)
]
"""Sixty chunks on two pages; every third has the word "compost", and is nearest to its own dense vector."""
VERSIONS, LOCALES = ("2.0", "1.0", ""), ("en", "pt-BR", "zh-TW")
PAGE_A = Filters(page_url="local://docs/docs/a")


class _SearchConformance:
    """What every index must do."""

    filters_to_check = 150
    """The number of random filters; a store whose calls are slow can check fewer."""

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store."""
        raise NotImplementedError("Override the fixture `store`.")

    @pytest.fixture
    def index(self, store: Store) -> Index:
        """Return an index of `WORDS`, with lexical vectors."""
        publish_lexical(store, "books", WORDS)
        return store.open("books")

    def test_the_nearest_chunks_come_first(self, store: Store) -> None:
        """Check the order and the number of hits; ties are ordered by page and position."""
        chunks = [chunk(number, page=page) for page in "ba" for number in (2, 0, 1)]
        others = [chunk(number, page="c") for number in range(10)]
        with store.build("books", EMBEDDER, rebuild=True) as build:
            build.add(chunks + others, [vector(1)] * 6 + [vector(100 + number) for number in range(10)])
            build.publish(fingerprint())
        for _ in range(2):  # the second time, a store may use cached chunks
            hits = nearest(store.open("books"), vector(1), 9)
            assert [(hit.chunk.page_url[-1], hit.chunk.chunk_index) for hit in hits[:6]] == [
                (page, number) for page in "ab" for number in (0, 1, 2)
            ]
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            assert len(hits) == 9
        assert len(nearest(store.open("books"), vector(1), 100)) == 16

    def test_filters_exclude_all_that_does_not_match(self, store: Store) -> None:
        """Check random filters in `candidates`, `count` and `scroll`, and the counts of modules and pages."""
        chunks = [
            replace(
                chunk(number, module=module, directory=directory, page=f"{directory}/{number % 3}"),
                version=VERSIONS[number % 3],
                locales=LOCALES[: number % 4],
            )
            for module, directory in MODULES
            for number in range(12)
        ]
        publish(store, "books", chunks)
        index = store.open("books")
        everything = list(index.scroll())
        choose = random.Random(15)
        for _ in range(self.filters_to_check):
            names = choose.choices(MODULE_NAMES, k=choose.randint(0, 3))
            url, limit = choose.choice(PAGE_URLS), choose.randint(1, 60)
            versions, locales = (
                tuple(choose.choices(one, k=choose.choice((0, 0, 1, 2)))) for one in (VERSIONS, LOCALES)
            )
            filters = Filters(tuple(names), url, versions=versions, locales=locales)
            expected = {
                one.id
                for one in everything
                if (not names or {name.lower() for name in names} & set(one.module_keys))
                and (url is None or one.page_url == url.lower().rstrip("/").removesuffix(".md"))
                and (not versions or one.version in versions)
                and (not locales or set(locales) & set(one.locales))
            }
            hits = nearest(index, vector(choose.randint(0, 10_000)), limit, filters)
            assert index.count(filters) == len(expected), filters
            assert len(hits) == min(limit, len(expected)), filters
            assert {hit.chunk.id for hit in hits} <= expected, filters
            assert {one.id for one in index.scroll(filters)} == expected, filters
        assert index.modules() == {"intro": 12, "ros2": 24, "simulation": 12}
        assert sum(index.pages().values()) == 48
        assert index.pages()["local://docs/docs/intro/2"] == 4

    def test_text_and_vectors_come_back_as_written(self, store: Store) -> None:
        """Check that texts and vectors are not changed, and that unknown ids are left out."""
        texts = [
            *("naïve café", "机器人", "🤖 emoji", "مرحبا", "a\tb\n\n  c"),
            *("x" * 50_000, '{"json": ["[x]"]}', "\x1b[31mred"),
        ]
        chunks = [chunk(number, text=text) for number, text in enumerate(texts)]
        publish(store, "books", chunks)
        index = store.open("books")
        assert sorted(one.text for one in index.scroll()) == sorted(texts)
        vectors = index.vectors([chunks[1].id, chunk(99).id])
        assert list(vectors) == [chunks[1].id]
        assert vectors[chunks[1].id] == pytest.approx(vector(1), abs=1e-6)

    def test_the_lexicon_and_the_calibration_come_back(self, store: Store) -> None:
        """Check that both are kept until the next index is published."""
        info = publish_lexical(store, "books", WORDS)
        index = store.open("books")
        assert index.info == info
        expected = LexiconBuilder()
        expected.vectors(WORDS)
        assert index.lexicon() == expected.to_bytes()
        store.save_calibration(index.info, Calibration(0.5, 0.9, 10, 10))
        assert store.open("books").lexicon() == expected.to_bytes(), "a calibration leaves it alone"
        assert store.open("books").info.calibration == Calibration(0.5, 0.9, 10, 10)
        publish_lexical(store, "books", WORDS[:3], book="other")
        assert Lexicon(store.open("books").lexicon()).chunks == 3

    def test_candidates_have_both_scores(self, index: Index) -> None:
        """Check that the candidates of a hybrid query include the best of both parts, with right scores."""
        asked, limit = vector(1000), 5
        (candidates,) = index.candidates([IndexQuery(asked, terms(index, "compost"))], limit)
        lexical, dense = by_number(index, candidates.lexical), by_number(index, candidates.dense)
        scores = {one.chunk_index: bm25(index, one, "compost") for one in WORDS[::3]}
        assert lexical == pytest.approx({number: scores[number] for number in lexical}, rel=1e-5)
        assert len(lexical) >= limit
        assert len(lexical.keys() & dense.keys()) >= limit, "the best have a cosine similarity, too"
        cosines = {number: cosine(vector(number), asked) for number in range(60)}
        assert dense == pytest.approx({number: cosines[number] for number in dense}, abs=1e-5)
        assert set(sorted(cosines, key=lambda number: -cosines[number])[:limit]) <= dense.keys()

    def test_candidates_of_one_part(self, index: Index) -> None:
        """Check queries with a dense or a lexical part only, and with an empty lexical part."""
        (lexical,) = index.candidates([IndexQuery(lexical=terms(index, "compost"))], 100)
        assert (lexical.dense, set(by_number(index, lexical.lexical))) == ({}, set(range(0, 60, 3)))
        (limited,) = index.candidates([IndexQuery(lexical=terms(index, "compost"))], 7)
        assert len(limited.lexical) >= 7
        (dense,) = index.candidates([IndexQuery(vector(1000))], 7)
        scores = by_number(index, dense.dense)
        cosines = {number: cosine(vector(number), vector(1000)) for number in range(60)}
        best = sorted(cosines, key=lambda number: -cosines[number])[:7]
        assert {number: scores[number] for number in best} == pytest.approx(
            {number: cosines[number] for number in best}, abs=1e-5
        )
        assert dense.lexical == {}
        nothing = SparseVector((), ())
        assert index.candidates([IndexQuery(lexical=nothing)], 7) == [Candidates()]
        (only_dense,) = index.candidates([IndexQuery(vector(1000), nothing)], 7)
        assert only_dense.lexical == {}
        assert len(only_dense.dense) >= 7

    def test_many_queries_at_once(self, index: Index) -> None:
        """Check that several queries of different kinds have the candidates that they have alone."""
        queries = [
            IndexQuery(vector(1), terms(index, "compost")),
            IndexQuery(vector(2)),
            IndexQuery(lexical=terms(index, "water")),
            IndexQuery(vector(3), SparseVector((), ())),
        ]
        together = index.candidates(queries, 5, PAGE_A)
        for query, candidates in zip(queries, together, strict=True):
            (alone,) = index.candidates([query], 5, PAGE_A)
            assert by_number(index, candidates.dense) == pytest.approx(by_number(index, alone.dense))
            assert sorted(candidates.lexical.values()) == pytest.approx(sorted(alone.lexical.values()))
            assert {number % 2 for number in by_number(index, candidates.dense)} <= {0}, "all are on the page"
            assert set(by_number(index, candidates.lexical)) <= set(range(0, 60, 2))
        nowhere = Filters(page_url="nowhere")
        assert index.candidates(queries[:1], 5, nowhere) == [Candidates()]
        assert index.candidates([], 5) == []
        chunks = index.chunks(id for candidates in together for id in candidates.dense)
        assert all(one == WORDS[one.chunk_index] for one in chunks.values())

    def test_awaited_candidates_are_the_same(self, store: Store, index: Index) -> None:
        """Check `AsyncIndex`, if the index implements it."""
        if not isinstance(index, AsyncIndex):
            pytest.skip("the index is not an AsyncIndex")
        queries = [
            IndexQuery(vector(1), terms(index, "compost")),
            IndexQuery(vector(2)),
            IndexQuery(lexical=terms(index, "compost")),
        ]

        async def ask() -> tuple[list[Candidates], dict[Hashable, Chunk]]:
            awaited = await index.acandidates(queries, 100, PAGE_A)
            chunks = await index.achunks(id for one in awaited for id in (*one.dense, *one.lexical))
            if aclose := store_abilities(store).aclose:
                await aclose()
            return awaited, chunks

        awaited, chunks = asyncio.run(ask())
        for one, other in zip(awaited, index.candidates(queries, 100, PAGE_A), strict=True):
            assert by_number(index, one.dense) == pytest.approx(by_number(index, other.dense), abs=1e-5)
            assert by_number(index, one.lexical) == pytest.approx(by_number(index, other.lexical), rel=1e-5)
        assert chunks == index.chunks(id for one in awaited for id in (*one.dense, *one.lexical))
        assert {one.chunk_index for one in chunks.values()} == set(range(0, 60, 2))

    def test_an_index_without_lexical_vectors(self, store: Store) -> None:
        """Check that a lexical query of such an index is an error, and a dense one is not."""
        publish(store, "books", [chunk(number) for number in range(5)])
        index = store.open("books")
        assert index.lexicon() == b""
        with pytest.raises(ConfigurationError) as caught:
            index.candidates([IndexQuery(vector(1), SparseVector((1,), (1.0,)))], 5)
        assert caught.value.hint
        (candidates,) = index.candidates([IndexQuery(vector(1))], 5)
        assert max(by_number(index, candidates.dense).items(), key=lambda item: item[1])[0] == 1

    @pytest.mark.parametrize("rebuild", [True, False])
    def test_kept_and_deleted_chunks_score_as_in_a_new_index(self, store: Store, rebuild: bool) -> None:
        """Check that the other chunks score as if the deleted ones had never existed."""
        publish_lexical(store, "books", WORDS)
        current = store.open("books")
        lexicon = LexiconBuilder()
        kept, changed = WORDS[:20], [replace(WORDS[20], text="only sand")]
        with store.build("books", EMBEDDER, analyzer=ANALYZER, rebuild=rebuild) as build:
            build.keep(kept, current, lexicon.vectors(kept))
            build.add(changed, [vector(20)], lexicon.vectors(changed))
            build.publish(replace(fingerprint("second"), analyzer=ANALYZER), lexicon.to_bytes())
        index = store.open("books")
        (candidates,) = index.candidates([IndexQuery(vector(3), terms(index, "compost"))], 100)
        expected = {one.chunk_index: bm25(index, one, "compost") for one in kept[::3]}
        assert by_number(index, candidates.lexical) == pytest.approx(expected, rel=1e-5)
        assert by_number(index, candidates.dense) == pytest.approx(
            {number: cosine(vector(number), vector(3)) for number in range(21)}, abs=1e-5
        )
        (sand,) = index.candidates([IndexQuery(lexical=terms(index, "sand"))], 5)
        assert set(by_number(index, sand.lexical)) == {20}


class StoreConformance(_SearchConformance):
    """Override the fixture `store`, and `other_store` if the store keeps its data outside the object.

    The suite uses collections called `books`, `library`, `others` and `shelf`.
    """

    @pytest.fixture
    def other_store(self, store: Store) -> Store:
        """Return a second store with the same data, as another process opens it."""
        pytest.skip(f"the fixture `other_store` is not overridden for {type(store).__name__}")

    def test_nothing_is_there_at_first(self, store: Store) -> None:
        """Check that an empty store has no collections, and that opening one is an error with a hint."""
        assert isinstance(store.is_local, bool)
        assert store.collections() == ()
        assert dict(store.aliases()) == {}
        with pytest.raises(CollectionMissing) as caught:
            store.open("books")
        assert caught.value.hint

    def test_what_is_published_is_found(self, store: Store) -> None:
        """Check that all chunks come back as they were written, each nearest to its own vector."""
        chunks = [chunk(number) for number in range(10)]
        info = publish(store, "books", chunks)
        index = store.open("books")
        assert index.info == info
        assert (info.collection, info.chunks, info.fingerprint) == ("books", 10, fingerprint())
        assert store.collections() == ("books",)
        assert index.count() == 10
        assert sorted(index.scroll(batch=3), key=lambda one: one.chunk_index) == chunks
        for number in range(10):
            (best,) = nearest(index, vector(number), 1)
            assert best.chunk == chunks[number]
            assert best.score == best.dense == pytest.approx(1, abs=1e-5)

    def test_a_new_index_replaces_the_old_one_whole(self, store: Store) -> None:
        """Check that `open` returns the same object until the next index, and that it stays usable."""
        publish(store, "books", [chunk(number) for number in range(5)])
        before = store.open("books")
        assert store.open("books") is before
        publish(store, "books", [chunk(number, page="new") for number in range(3)])
        after = store.open("books")
        assert after is not before
        assert {one.title for one in after.scroll()} == {"NEW"}
        assert before.count() == 5, "a reader that holds the old index keeps it"
        store.close()
        store.close()
        assert store.open("books").count() == 3, "a closed store opens again"

    def test_what_is_not_published_is_never_seen(self, store: Store) -> None:
        """Check that an exception leaves the old index, and that one bad vector refuses the whole call."""
        publish(store, "books", [chunk(1)])
        with pytest.raises(KeyError), store.build("books", EMBEDDER, rebuild=True) as build:
            build.add([chunk(2)], [vector(2)])
            raise KeyError("something else went wrong")
        for bad in ([1.0] * (DIM - 1), [math.nan] * DIM, [math.inf] + [0.0] * (DIM - 1)):
            with pytest.raises(EmbeddingError), store.build("books", EMBEDDER, rebuild=True) as build:
                build.add([chunk(2), chunk(3)], [vector(2), bad])
        assert store.open("books").count() == 1
        publish(store, "books", [chunk(3), chunk(4)])
        assert store.open("books").count() == 2

    def test_one_writer_at_a_time(self, store: Store) -> None:
        """Check that a second writer of a collection is refused, and one of another collection is not."""
        publish(store, "books", [chunk(1)])
        with store.build("books", EMBEDDER, rebuild=True) as build:
            build.add([chunk(2)], [vector(2)])
            with pytest.raises(StoreBusy) as caught, store.build("books", EMBEDDER, rebuild=True):
                pass
            assert caught.value.hint
            with store.build("others", EMBEDDER, rebuild=True) as other:
                other.add([chunk(5)], [vector(5)])
                other.publish(fingerprint())
            build.publish(fingerprint())
        assert store.open("books").count() == 1
        assert store.collections() == ("books", "others")

    def test_another_store_sees_what_is_published(self, store: Store, other_store: Store) -> None:
        """Check that a second store reads the data of the first, and cannot write at the same time."""
        publish(store, "books", [chunk(1)])
        store.set_aliases(["library"], "books")
        assert other_store.open("library").count() == 1
        with store.build("books", EMBEDDER, rebuild=True) as build:
            with pytest.raises(StoreBusy), other_store.build("books", EMBEDDER, rebuild=True):
                pass
            build.add([chunk(3)], [vector(3)])
            build.publish(fingerprint())
        other_store.close()  # a store may look for a new index only every few seconds
        assert [one.chunk_index for one in other_store.open("books").scroll()] == [3]

    def test_an_alias_names_a_collection(self, store: Store) -> None:
        """Check that aliases open the current index, and that neither replaces a collection's own name."""
        publish(store, "books", [chunk(1)])
        publish(store, "library", [chunk(1), chunk(2)])
        store.set_aliases(["library", "shelf"], "books")
        assert dict(store.aliases()) == {"shelf": "books"}
        assert store.open("shelf").info.collection == "books"
        assert store.collections() == ("books", "library")
        assert store.open("library").count() == 2
        publish(store, "books", [chunk(number) for number in range(4)])
        assert store.open("shelf").count() == 4
        publish(store, "shelf", [chunk(number) for number in range(3)])
        assert store.open("shelf").count() == 3, "a new collection replaces an alias"
        assert dict(store.aliases()) == {}

    def test_earlier_generations_are_listed_and_restored(self, store: Store) -> None:
        """Check `generations` and `rollback`, if the store has them: the newest generation is first."""
        abilities = store_abilities(store)
        generations, rollback = abilities.generations, abilities.rollback
        if generations is None or rollback is None:
            pytest.skip("the store has no rollback")
        first = publish(store, "books", [chunk(number) for number in range(5)])
        second = publish(store, "books", [chunk(9)])
        assert [(one.name, one.chunks, one.current) for one in generations("books")] == [
            (second.generation, 1, True),
            (first.generation, 5, False),
        ]
        assert rollback("books", None).generation == first.generation
        assert store.open("books").count() == 5
        assert [one.current for one in generations("books")] == [False, True]
        assert rollback("books", second.generation).chunks == 1
        with pytest.raises(CollectionMissing):
            rollback("books", "no-such-generation")

    def test_a_backup_can_be_restored(self, store: Store, tmp_path: Path) -> None:
        """Check `backup` and `restore`, if the store has them: a restored collection has the same results."""
        abilities = store_abilities(store)
        backup, restore = abilities.backup, abilities.restore
        if backup is None or restore is None:
            pytest.skip("the store has no backup")
        publish_lexical(store, "books", WORDS)
        store.set_aliases(["library"], "books")
        store.save_calibration(store.open("books").info, Calibration(0.5, 0.9, 10, 10))
        before, file = store.open("books"), tmp_path / "books.recto"
        queries = [IndexQuery(vector(3), terms(before, "compost")), IndexQuery(vector(4))]
        expected = [hit.chunk for hit in nearest(before, vector(1), 9)], before.lexicon()
        scores = [by_number(before, one.dense) for one in before.candidates(queries, 20)]
        written = backup("books", file, None)
        assert (written.name, written.chunks) == (before.info.generation, 60)
        assert written.bytes == file.stat().st_size
        with pytest.raises(InvalidArgument):
            restore(file)
        publish(store, "books", [chunk(1)])
        info = restore(file, replace=True)
        after = store.open("library")
        assert (info.collection, info.chunks, info.fingerprint) == ("books", 60, before.info.fingerprint)
        assert ([hit.chunk for hit in nearest(after, vector(1), 9)], after.lexicon()) == expected
        for candidates, before_scores in zip(after.candidates(queries, 20), scores, strict=True):
            assert by_number(after, candidates.dense) == pytest.approx(before_scores, abs=1e-6)
        assert after.info.calibration == Calibration(0.5, 0.9, 10, 10)
        assert restore(file, "others").collection == "others"
        assert dict(store.aliases()) == {"library": "books"}
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(IndexDamaged):
            restore(file, "shelf")
        assert tuple(store.collections()) == ("books", "others")

    def test_a_collection_can_be_deleted(self, store: Store) -> None:
        """Check `delete`, if the store has it: nothing of the collection is left, others stay."""
        delete = store_abilities(store).delete
        if delete is None:
            pytest.skip("the store has no delete")
        for _ in range(2):
            publish(store, "books", [chunk(number) for number in range(5)])
        publish(store, "other", [chunk(9)])
        store.set_aliases(["library"], "books")
        with pytest.raises(InvalidArgument):
            delete("library")
        delete("books")
        for name in ("books", "library"):
            with pytest.raises(CollectionMissing):
                store.open(name)
        with pytest.raises(CollectionMissing):
            delete("books")
        assert tuple(store.collections()) == ("other",)
        assert store.open("other").count() == 1
        publish(store, "books", [chunk(3)])
        assert store.open("books").count() == 1

    def test_optional_abilities(self, store: Store) -> None:
        """Check `prepare`, `verify` and `version`, if the store has them."""
        publish(store, "books", [chunk(1)])
        abilities = store_abilities(store)
        if abilities.missing_fields and abilities.prepare and abilities.payload_schema:
            assert abilities.missing_fields("books") == abilities.prepare("books") == ()
            assert abilities.payload_schema("books").own
        if abilities.verify:
            abilities.verify("books")
        if abilities.version:
            assert any(letter.isdigit() for letter in abilities.version())


def nearest(index: Index, vector: Vector, limit: int, filters: Filters = NO_FILTERS) -> list[Hit]:
    """Return the hits of a dense search, best first."""
    return nearest_chunks(index, [vector], limit, filters)[0]


def terms(index: Index, text: str) -> SparseVector:
    """Analyse a query with the vocabulary of an index."""
    return analyze_query(text, Lexicon(index.lexicon())).vector


def by_number(index: Index, scores: Mapping[Hashable, float]) -> dict[int, float]:
    """Return scores by the numbers of the chunks."""
    chunks = index.chunks(scores)
    assert chunks.keys() == scores.keys()
    return {chunks[id].chunk_index: score for id, score in scores.items()}


def bm25(index: Index, chunk: Chunk, text: str) -> float:
    """Compute the lexical score of a chunk for one word, without the store."""
    (stored,) = LexiconBuilder().vectors([chunk])
    weights = dict(zip(stored.indices, stored.values, strict=True))
    query = terms(index, text)
    return sum(
        weight * weights.get(term, 0.0) * idf
        for term, weight, idf in zip(query.indices, query.values, query.idf, strict=True)
    )

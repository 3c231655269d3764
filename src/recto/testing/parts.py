"""An embedder, chunks and vectors for tests; what every embedder, reader and source must do."""

from __future__ import annotations

import asyncio
import hashlib
import math
import pickle
import random
import uuid
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from recto.book.chunking import DEFAULT_SIZE, chunk_page
from recto.book.parsing import read
from recto.errors import EmbeddingError, RectoError
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder, Progress, Reader, Source, Store, embedder_abilities
from recto.search.analyzer import ANALYZER
from recto.search.lexical import LexiconBuilder
from recto.stores.edge import EdgeStore
from recto.types.book import BookInfo, Document, Failure, Page
from recto.types.index import EmbedderFingerprint, Fingerprint, IndexInfo
from recto.types.search import Chunk, Vector

DIM = 8
EMBEDDER = EmbedderFingerprint("test-model", "r1", DIM)

TEXTS = ["What is a robot?", "A node publishes messages to a topic.", "soil", "Compost feeds the soil. " * 10]
UNUSUAL = ["?", "naïve café", "机器人", "🤖", "مرحبا", "\x1b[31mred", "\0", "<b>", "x" * 3000, "a\n\n\nb"]


class HashEmbedder:
    """Hashes the words of a text into a vector: fast, deterministic, and near for texts that share words."""

    dim = 64
    max_tokens = 256
    fingerprint = EmbedderFingerprint("recto-testing-hash", "1", dim)

    def warm_up(self) -> None:
        """Do nothing."""

    def count_tokens(self, text: str) -> int:
        """Count the words."""
        return len(text.split())

    def embed_query(self, text: str) -> Vector:
        """Embed one query."""
        vector = [0.0] * self.dim
        for word in text.lower().split()[: self.max_tokens] or [""]:
            vector[zlib.crc32(word.encode("utf-8", "replace")) % self.dim] += 1.0
        length = math.hypot(*vector)
        return [number / length for number in vector]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries."""
        return [self.embed_query(text) for text in texts]

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks."""
        if any(self.count_tokens(text) > self.max_tokens for text in texts):
            raise EmbeddingError(f"A text has more than {self.max_tokens} words", hint="Split it.")
        if progress and texts:
            progress(len(texts), len(texts))
        return self.embed_queries(texts)

    def close(self) -> None:
        """Do nothing."""


def chunk(
    number: int, *, module: str = "ros2", directory: str = "module-1-ros2", page: str = "a", text: str = ""
) -> Chunk:
    """Return a chunk; its number is its place in the page."""
    text = text or f"Passage {number}"
    return Chunk(
        id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{page}/{number}")),
        text=text,
        page_url=f"local://docs/docs/{page}",
        title=page.upper(),
        module=module,
        module_keys=(module, directory),
        headings=(page.upper(), f"Section {number}"),
        anchor=f"section-{number}",
        chunk_index=number,
        total_chunks=number + 1,
        start_line=number + 1,
        end_line=number + 2,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        source=f"{page}.md",
    )


def vector(seed: int, dim: int = DIM) -> Vector:
    """Return a random vector of length one; the same one for the same seed."""
    numbers = random.Random(seed)
    raw = [numbers.gauss(0, 1) for _ in range(dim)]
    length = math.sqrt(sum(number * number for number in raw))
    return [number / length for number in raw]


def fingerprint(book: str = "test-book", embedder: EmbedderFingerprint = EMBEDDER) -> Fingerprint:
    """Return the fingerprint of an index without lexical vectors."""
    created = ("0" * 64, 1, "0", "2026-01-01T00:00:00+00:00")
    return Fingerprint(
        embedder, "recto-1", book, "somewhere", *created, title="The book", logo="data:image/png;base64,AA=="
    )


def publish(store: Store, name: str, chunks: list[Chunk], *, book: str = "test-book") -> IndexInfo:
    """Publish chunks without lexical vectors; the seeds of the dense vectors count from zero."""
    with store.build(name, EMBEDDER, rebuild=True) as build:
        build.add(chunks, [vector(number) for number in range(len(chunks))])
        return build.publish(fingerprint(book))


def publish_lexical(
    store: Store, name: str, chunks: list[Chunk], *, rebuild: bool = True, book: str = "test-book"
) -> IndexInfo:
    """Publish chunks with lexical vectors; a chunk's number is the seed of its dense vector."""
    lexicon = LexiconBuilder()
    with store.build(name, EMBEDDER, analyzer=ANALYZER, rebuild=rebuild) as build:
        build.add(chunks, [vector(one.chunk_index) for one in chunks], lexicon.vectors(chunks))
        return build.publish(replace(fingerprint(book), analyzer=ANALYZER), lexicon.to_bytes())


class EmbedderConformance:
    """Override the fixture `embedder`. The suite calls a paid service a few dozen times."""

    @pytest.fixture
    def embedder(self) -> Embedder:
        """Return the embedder to check."""
        raise NotImplementedError("Override the fixture `embedder`.")

    def test_the_fingerprint_describes_the_vectors(self, embedder: Embedder) -> None:
        """Check that the fingerprint has the dimension of the vectors, and stays the same."""
        fingerprint = embedder.fingerprint
        assert fingerprint.model
        assert fingerprint.revision
        assert fingerprint.dim == embedder.dim
        assert fingerprint.distance == "cosine"
        embedder.warm_up()
        assert embedder.fingerprint == fingerprint

    def test_vectors_are_normalised(self, embedder: Embedder) -> None:
        """Check the dimension, the length and the numbers of all vectors."""
        vectors = [
            embedder.embed_query(TEXTS[0]),
            *embedder.embed_queries(TEXTS),
            *embedder.embed_documents(TEXTS),
        ]
        for vector in vectors:
            assert_normalised(vector, embedder.dim)
        assert embedder.embed_queries([]) == embedder.embed_documents([]) == []

    def test_vectors_are_in_the_order_of_the_texts(self, embedder: Embedder) -> None:
        """Check that several texts have the vectors that they have alone, and that nothing is random."""
        assert embedder.embed_query(TEXTS[1]) == embedder.embed_query(TEXTS[1])
        assert embedder.embed_documents(TEXTS) == embedder.embed_documents(TEXTS)
        for text, vector in zip(TEXTS, embedder.embed_queries(TEXTS), strict=True):
            assert vector == pytest.approx(embedder.embed_query(text), abs=1e-4)
        for text, vector in zip(TEXTS, embedder.embed_documents(TEXTS), strict=True):
            assert vector == pytest.approx(embedder.embed_documents([text])[0], abs=1e-4)

    def test_any_text_has_a_vector(self, embedder: Embedder) -> None:
        """Check texts that a user may type or paste."""
        for vector in (*embedder.embed_queries(UNUSUAL), *embedder.embed_documents(UNUSUAL[:-2])):
            assert_normalised(vector, embedder.dim)

    def test_a_long_query_is_cut_and_a_long_document_is_an_error(self, embedder: Embedder) -> None:
        """Check that no document is cut in silence."""
        counts = [embedder.count_tokens("soil and water " * count) for count in (0, 1, 10, 100)]
        assert 0 <= counts[0] < counts[1] < counts[2] < counts[3]
        assert embedder.max_tokens >= 32
        long = "A node publishes messages to a topic. " * embedder.max_tokens
        assert embedder.count_tokens(long) > embedder.max_tokens
        assert_normalised(embedder.embed_query(long), embedder.dim)
        with pytest.raises(RectoError) as caught:
            embedder.embed_documents(["short", long])
        assert caught.value.message

    def test_chunks_fit(self, embedder: Embedder) -> None:
        """Check that the chunker splits a long page into texts that the embedder reads whole."""
        text = "# Long\n\n" + "A node publishes messages to a topic. " * 80 + "x" * 2000
        page = Page("long.md", "local://long", "Long", "intro", ("intro",), text, "1")
        chunks = chunk_page(
            page, read(page), "book", embedder.count_tokens, embedder.max_tokens, DEFAULT_SIZE
        )
        texts = [chunk.embedded for chunk in chunks]
        assert all(embedder.count_tokens(text) <= embedder.max_tokens for text in texts)
        assert len(embedder.embed_documents(texts)) == len(texts) > 1

    def test_progress_is_reported(self, embedder: Embedder) -> None:
        """Check that `progress` ends with all texts, if it is called."""
        seen: list[tuple[int, int]] = []
        embedder.embed_documents(TEXTS * 10, lambda done, total: seen.append((done, total)))
        assert seen == sorted(seen)
        assert not seen or seen[-1] == (40, 40)

    def test_threads_share_it(self, embedder: Embedder) -> None:
        """Check that calls from several threads do not disturb each other."""
        expected = embedder.embed_queries(TEXTS)
        with ThreadPoolExecutor(4) as pool:
            for vectors in pool.map(lambda _: embedder.embed_queries(TEXTS), range(4)):
                for vector, other in zip(vectors, expected, strict=True):
                    assert vector == pytest.approx(other, abs=1e-4)

    def test_it_can_be_used_after_close(self, embedder: Embedder) -> None:
        """Check that `close` may be called twice, and that the next call opens connections again."""
        before = embedder.embed_query(TEXTS[0])
        embedder.close()
        embedder.close()
        assert embedder.embed_query(TEXTS[0]) == pytest.approx(before, abs=1e-4)

    def test_awaited_vectors_are_the_same(self, embedder: Embedder) -> None:
        """Check `aembed_queries`, if the embedder has it."""
        abilities = embedder_abilities(embedder)
        aembed_queries, aclose = abilities.aembed_queries, abilities.aclose
        if aembed_queries is None or aclose is None:
            pytest.skip("the embedder has no aembed_queries")

        async def embed() -> list[Vector]:
            try:
                return await aembed_queries(TEXTS)
            finally:
                await aclose()

        for vector, other in zip(asyncio.run(embed()), embedder.embed_queries(TEXTS), strict=True):
            assert vector == pytest.approx(other, abs=1e-4)

    def test_tokens_are_counted_in_other_processes(self, embedder: Embedder) -> None:
        """Check `token_counter`, if the embedder has it."""
        token_counter = embedder_abilities(embedder).token_counter
        if token_counter is None:
            pytest.skip("the embedder has no token_counter")
        counter = pickle.loads(pickle.dumps(token_counter()))  # noqa: S301 - our own bytes
        for text in ("", *TEXTS, "Grüße — 机器人", "soil and water " * 400):
            assert counter(text) == embedder.count_tokens(text)

    def test_the_cost_is_estimated(self, embedder: Embedder) -> None:
        """Check `estimate`, if the embedder has it."""
        estimate = embedder_abilities(embedder).estimate
        if estimate is None:
            pytest.skip("the embedder has no estimate")
        nothing, much = estimate(0, 0), estimate(1000, 200_000)
        assert (nothing.calls, nothing.minutes) == (0, 0)
        assert much.calls >= 1
        assert much.minutes >= 0
        assert much.dollars is None or much.dollars >= 0


def assert_normalised(vector: Vector, dim: int) -> None:
    """Check that a vector has `dim` finite numbers and length one."""
    assert len(vector) == dim
    assert all(isinstance(number, float) and math.isfinite(number) for number in vector)
    assert math.hypot(*vector) == pytest.approx(1, abs=1e-4)


def page_of(text: str, format: str = "markdown") -> Page:
    """Return a page with a text; its title is only used if the text states none."""
    return Page(
        "guide/page", "local://docs/docs/guide/page", "Fallback", "guide", ("guide",), text, "1", format
    )


class ReaderConformance:
    """Override the fixtures `reader` and `text`."""

    @pytest.fixture
    def reader(self) -> Reader:
        """Return the reader to check."""
        raise NotImplementedError("Override the fixture `reader`.")

    @pytest.fixture
    def text(self) -> str:
        """Return a page in the reader's format, with a title and at least two sections below it."""
        raise NotImplementedError("Override the fixture `text`.")

    def test_sections_have_the_title_and_text(self, reader: Reader, text: str) -> None:
        """Check that headings begin with the title, that sections have text, and that anchors are unique."""
        document = reader(page_of(text))
        assert isinstance(document, Document)
        assert document.title
        assert document.title != "Fallback"
        assert len(document.sections) >= 2
        for section in document.sections:
            assert section.headings[0] == document.title
            assert all(block.text.strip() for block in section.blocks)
        assert len({section.headings for section in document.sections}) >= 2
        anchors = [section.anchor for section in document.sections if section.anchor]
        assert len(set(anchors)) == len(anchors)
        assert not any(anchor.startswith("#") or " " in anchor for anchor in anchors)

    def test_lines_are_those_of_the_text(self, reader: Reader, text: str) -> None:
        """Check that blocks are in order, and that their first lines are the lines of the page."""
        lines = text.splitlines()
        before = 0
        for section in reader(page_of(text)).sections:
            assert 1 <= section.line <= len(lines)
            for block in section.blocks:
                assert before < block.first <= block.last <= len(lines)
                before = block.last
                assert block.text.splitlines()[0].strip() in lines[block.first - 1]

    def test_the_page_can_be_chunked(self, reader: Reader, text: str) -> None:
        """Check that all text of the blocks is in a chunk, and that the reader keeps no state."""
        document = reader(page_of(text))
        assert reader(page_of(text)) == document
        chunks = chunk_page(
            page_of(text), document, "book", lambda text: len(text.split()), 512, DEFAULT_SIZE
        )
        written = " ".join(" ".join(chunk.chunk.text for chunk in chunks).split())
        for section in document.sections:
            for block in section.blocks:
                assert " ".join(block.text.split())[:200] in written

    def test_a_page_without_headings(self, reader: Reader) -> None:
        """Check that a page without headings has its fallback title, and its text if it has any."""
        for text in ("", "\n\n", " ", "Only a sentence.\n"):
            document = reader(page_of(text))
            assert document.title in ("", "Fallback")
            texts = [block.text.strip() for section in document.sections for block in section.blocks]
            assert [one for one in texts if one] == ([text.strip()] if text.strip() else [])


class SourceConformance:
    """Override the fixture `source`: a book with at least two pages that does not change during the test."""

    @pytest.fixture
    def source(self) -> Source:
        """Return the source to check."""
        raise NotImplementedError("Override the fixture `source`.")

    def test_the_book_has_a_name_and_a_location(self, source: Source) -> None:
        """Check that both are known before and after the pages are read, and stay the same."""
        before = (source.book, source.location)
        assert all(before)
        list(source.pages())
        assert (source.book, source.location) == before
        assert isinstance(source.info, BookInfo)

    def test_pages_are_complete(self, source: Source) -> None:
        """Check the fields of every page, and that a reader can parse it."""
        pages = list(source.pages())
        assert len(pages) >= 2
        for page in pages:
            assert isinstance(page, Page)
            assert page.path
            assert "://" in page.url
            assert page.title
            assert page.text.strip()
            assert page.revision
            assert page.module == page.module_keys[0]
            assert all(key == key.strip().lower() for key in page.module_keys)
            assert page.lines == () or len(page.lines) == page.text.count("\n") + 1
            document = read(page)
            assert isinstance(document, Document)
            assert document.title

    def test_the_order_is_stable(self, source: Source) -> None:
        """Check that a second run yields the same pages; paths are part of the ids of chunks."""
        pages = list(source.pages())
        assert list(source.pages()) == pages
        assert len({page.path for page in pages}) == len(pages)
        positions = [page.position for page in pages]
        assert positions in ([0] * len(pages), sorted(set(positions)))
        assert len({page.text for page in pages}) <= len({page.revision for page in pages})

    def test_failures_and_notes(self, source: Source) -> None:
        """Check that pages that failed are not yielded, and that a second run does not add to the reports."""
        paths = {page.path for page in source.pages()}
        failed, notes = list(source.failed), list(source.notes)
        assert all(isinstance(failure, Failure) and failure.reason for failure in failed)
        assert paths.isdisjoint(failure.path for failure in failed)
        assert all(isinstance(note, str) and note for note in notes)
        list(source.pages())
        assert (list(source.failed), list(source.notes)) == (failed, notes)

    def test_a_second_run_changes_nothing(self, source: Source, tmp_path: Path) -> None:
        """Check that indexing the same book again finds every page unchanged."""
        store, journal = EdgeStore(tmp_path / "home"), tmp_path / "journal"
        first = index_book(IndexJob(source, HashEmbedder()), store, "book", journal=journal)
        assert first.published
        assert first.info.chunks >= 2
        second = index_book(IndexJob(source, HashEmbedder()), store, "book", journal=journal)
        assert not second.published
        assert second.plan.texts == 0
        store.close()

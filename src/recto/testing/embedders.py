"""What every embedder must do."""

from __future__ import annotations

import asyncio
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from recto.book.chunking import DEFAULT_SIZE, chunk_page
from recto.book.parsing import read
from recto.errors import RectoError
from recto.protocols import AsyncEmbedder, Embedder, Metered, PortableCounter
from recto.types.book import Page
from recto.types.search import Vector

TEXTS = ["What is a robot?", "A node publishes messages to a topic.", "soil", "Compost feeds the soil. " * 10]
UNUSUAL = ["?", "naïve café", "机器人", "🤖", "مرحبا", "\x1b[31mred", "\0", "<b>", "x" * 3000, "a\n\n\nb"]


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
        """Check `AsyncEmbedder`, if the embedder implements it."""
        if not isinstance(embedder, AsyncEmbedder):
            pytest.skip("the embedder is not an AsyncEmbedder")

        async def embed() -> list[Vector]:
            try:
                return await embedder.aembed_queries(TEXTS)
            finally:
                await embedder.aclose()

        for vector, other in zip(asyncio.run(embed()), embedder.embed_queries(TEXTS), strict=True):
            assert vector == pytest.approx(other, abs=1e-4)

    def test_tokens_are_counted_in_other_processes(self, embedder: Embedder) -> None:
        """Check `PortableCounter`, if the embedder implements it."""
        if not isinstance(embedder, PortableCounter):
            pytest.skip("the embedder is not a PortableCounter")
        counter = pickle.loads(pickle.dumps(embedder.token_counter()))  # noqa: S301 - our own bytes
        for text in ("", *TEXTS, "Grüße — 机器人", "soil and water " * 400):
            assert counter(text) == embedder.count_tokens(text)

    def test_the_cost_is_estimated(self, embedder: Embedder) -> None:
        """Check `Metered`, if the embedder implements it."""
        if not isinstance(embedder, Metered):
            pytest.skip("the embedder is not Metered")
        nothing, much = embedder.estimate(0, 0), embedder.estimate(1000, 200_000)
        assert (nothing.calls, nothing.minutes) == (0, 0)
        assert much.calls >= 1
        assert much.minutes >= 0
        assert much.dollars is None or much.dollars >= 0


def assert_normalised(vector: Vector, dim: int) -> None:
    """Check that a vector has `dim` finite numbers and length one."""
    assert len(vector) == dim
    assert all(isinstance(number, float) and math.isfinite(number) for number in vector)
    assert math.hypot(*vector) == pytest.approx(1, abs=1e-4)

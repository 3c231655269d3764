"""The built-in embedder, opened once per test process and remembering what it embedded, and one that counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from recto.embedders.granite import embedder as granite
from recto.protocols import Embedder, EmbedderAbilities, Progress, embedder_abilities
from recto.settings import Precision
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector

_open = granite.built_in_embedder


class ForwardingEmbedder:
    """Passes everything on to the real embedder."""

    def __init__(self, embedder: Embedder) -> None:
        self.real = embedder

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        return self.real.fingerprint

    @property
    def dim(self) -> int:
        return self.real.dim

    @property
    def max_tokens(self) -> int:
        return self.real.max_tokens

    def warm_up(self) -> None:
        self.real.warm_up()

    def close(self) -> None:
        self.real.close()

    def count_tokens(self, text: str) -> int:
        return self.real.count_tokens(text)

    def embed_query(self, text: str) -> Vector:
        return self.real.embed_query(text)

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        return self.real.embed_queries(texts)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        return self.real.embed_documents(texts, progress)


class RememberingEmbedder(ForwardingEmbedder):
    """Embeds each text once with the real model; commands that tests run in this process share it."""

    batch_size = 96

    def __init__(self, embedder: granite.BuiltInEmbedder) -> None:
        super().__init__(embedder)
        self._queries: dict[str, Vector] = {}
        self._documents: dict[str, Vector] = {}
        self._tokens: dict[str, int] = {}

    @property
    def abilities(self) -> EmbedderAbilities:
        inner = embedder_abilities(self.real)
        return replace(inner, token_counter=None, languages=(), batch_size=self.batch_size)

    def count_tokens(self, text: str) -> int:
        if text not in self._tokens:
            self._tokens[text] = self.real.count_tokens(text)
        return self._tokens[text]

    def embed_query(self, text: str) -> Vector:
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        if missing := [text for text in dict.fromkeys(texts) if text not in self._queries]:
            self._queries |= zip(missing, self.real.embed_queries(missing), strict=True)
        return [self._queries[text] for text in texts]

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        if missing := [text for text in dict.fromkeys(texts) if text not in self._documents]:
            self._documents |= zip(missing, self.real.embed_documents(missing), strict=True)
        if progress and texts:
            progress(len(texts), len(texts))
        return [self._documents[text] for text in texts]


class Counting(ForwardingEmbedder):
    """Notes what it was asked to embed; the work itself is done by the real embedder."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder)
        self.embedded: list[str] = []
        self.queries: list[str] = []

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        self.queries += texts
        return super().embed_queries(texts)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        vectors = super().embed_documents(texts, progress)
        self.embedded += texts
        return vectors


@cache
def shared_embedder(home: Path, threads: int, precision: Precision) -> RememberingEmbedder:
    """Return the embedder of this process for a precision; nobody closes it."""
    embedder = _open(home, threads, precision)
    vars(embedder)["close"] = lambda: None  # a test that closes a retriever would close it for all others
    return RememberingEmbedder(embedder)

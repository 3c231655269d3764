"""Put the built-in model together: recto-1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from recto._util.files import sha256
from recto._util.languages import ENGLISH
from recto.embedders.granite.bpe import MergeRules, QueryTokenizer, ascii_words
from recto.embedders.granite.runtime import check_vector, open_graph
from recto.embedders.granite.weights import (
    MERGES,
    MODEL_SHA256,
    PROMPT_TOKENS,
    Arrays,
    cached_weights,
    read_fp32,
    read_int8,
)
from recto.embedders.onnx import (
    LocalEmbedder,
    RunModel,
    Sessions,
    Weights,
    has_int8_dot_product,
    new_tokenizer,
)
from recto.protocols import EmbedderAbilities
from recto.settings import BUILT_IN_MODEL, Precision
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector

MAX_TOKENS = 512
PROBE = (0, 2264, 16, 10, 8304, 116, 2)
"""The tokens of a short text with a known int8 vector, to detect a processor that computes int8 wrongly."""
_PROBE_COPIES = 5  # more than 32 tokens: from there on, AMX multiplies in another way
_HERE = Path(__file__).parent


class Variant(NamedTuple):
    """A precision of a model: its graph, its weight file in the cache, and the hash of that file."""

    fingerprint: EmbedderFingerprint
    graph: Path
    weights: Path
    sha256: str
    make: Callable[[], Arrays]
    probe: Path | None = None


FINGERPRINT = EmbedderFingerprint(BUILT_IN_MODEL, MODEL_SHA256[:40], dim=384, variant="int8-weights-fp32")
OLDER = EmbedderFingerprint(
    "recto-en-1", "7dd1426a95b235950896165bdf164185694208e3", dim=384, variant="int8-weights-fp32"
)
"""The model of version 0.3. recto-1 embeds English texts nearly the same way, so it searches its indexes."""
VARIANTS: dict[Precision, Variant] = {
    "fp32": Variant(
        FINGERPRINT,
        _HERE / "recto-1.onnx",
        Path(BUILT_IN_MODEL, "fp32.weights"),
        "f10c85c3bb7bf2e94770e6cfbfa11ca070f9566f52630017d5823183b5e34ac3",
        read_fp32,
    ),
    "int8": Variant(
        replace(FINGERPRINT, variant="int8-4"),  # the number changes with the vectors
        _HERE / "recto-1-int8.onnx",
        Path(BUILT_IN_MODEL, "int8.weights"),
        "832c41fbfc26f04910c42c9d624d490be0e4ea9e7f467e84c11891ff6a5b0349",
        read_int8,
        _HERE / "recto-1-int8-probe.f32",
    ),
}
"""The precisions; the graphs contain the names of the weight files."""


def cpu_variant(precision: Precision) -> Variant:
    """Return the variant that runs on the CPU; `auto` depends on the processor."""
    if precision in VARIANTS:
        return VARIANTS[precision]
    return VARIANTS["int8" if has_int8_dot_product() else "fp32"]


class BuiltInEmbedder(LocalEmbedder):
    """An embedder that also embeds queries for indexes of the model of version 0.3."""

    def __init__(self, fingerprint: EmbedderFingerprint, sessions: Sessions, threads: int) -> None:
        super().__init__(
            fingerprint,
            MAX_TOKENS,
            lambda: new_tokenizer(MergeRules(MERGES).description()),
            sessions,
            threads,
            QueryTokenizer(MERGES).encode,
            ascii_words,
        )
        self._older: LocalEmbedder | None = None
        self._parts = sessions, threads
        self.abilities = EmbedderAbilities(
            languages=(ENGLISH,) if fingerprint == OLDER else (),
            embed_context_queries=self._embed_context_queries,
            for_index=self.for_index,
            token_counter=self.token_counter,
        )

    def _embed_context_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries of contexts, after the context prompt."""
        rows = ([row[0], *PROMPT_TOKENS, *row[1:]] for row in self._query_tokens(texts))
        return self._embed_query_rows([self._truncated(row) for row in rows])

    def for_index(self, index: EmbedderFingerprint) -> LocalEmbedder | None:
        """Return an embedder whose vectors can be compared with those of an index, or None."""
        if index.is_compatible(self.fingerprint):
            return self
        if not index.is_compatible(OLDER):
            return None
        if self._older is None:
            self._older = BuiltInEmbedder(OLDER, *self._parts)
        return self._older


def built_in_embedder(
    home: Path, threads: int, precision: Precision = "fp32", *, single_query: bool = False
) -> BuiltInEmbedder:
    """Return the embedder of the built-in model; `home` caches its weights.

    `single_query` skips the optimization of the graph, which takes as long as a dozen queries, and loads the
    model while the caller opens the index.
    """
    variant = cpu_variant(precision)
    open_single = graph_opener(home, variant, single_query=True) if single_query else None
    sessions = Sessions(graph_opener(home, variant), threads, open_single)
    embedder = BuiltInEmbedder(variant.fingerprint, sessions, threads)
    # Not before the weights were written once: that takes long, and would delay an error about the index.
    if single_query and (home / "cache" / variant.weights).is_file():
        Thread(target=_load, args=(embedder,), name="recto-load").start()
    return embedder


def _load(embedder: LocalEmbedder) -> None:
    with suppress(Exception):  # the query raises it again
        embedder.warm_up()


def graph_opener(home: Path, variant: Variant, *, single_query: bool = False) -> Callable[[int], RunModel]:
    """Return a function that opens the graph of a variant for a number of threads."""

    @cache
    def weights() -> Weights:
        with suppress(OSError):  # a home that does not exist is not created
            (home / "cache").mkdir(mode=0o700, exist_ok=True)
        return cached_weights(
            home / "cache" / variant.weights.parent,
            variant.weights.name,
            variant.sha256,
            variant.make,
        )

    def open_for(threads: int) -> RunModel:
        # Where int8 weights must be unsigned (`session_settings`), optimizing the graph makes them so.
        quick = single_query and (variant.probe is None or has_int8_dot_product())
        run = open_graph(variant.graph, weights(), threads, single_query=quick)
        if variant.probe:
            check_vector(run, PROBE, variant.probe, copies=1 if single_query else _PROBE_COPIES)
        return run

    return open_for


def remove_damaged_weights(cache: Path) -> list[str]:
    """Remove cached weights that do not have the expected hash, and return their names.

    They are made again when the model is opened.
    """
    damaged = [
        str(variant.weights)
        for variant in VARIANTS.values()
        if (cache / variant.weights).exists() and sha256(cache / variant.weights) != variant.sha256
    ]
    for name in damaged:
        (cache / name).unlink()
    return damaged

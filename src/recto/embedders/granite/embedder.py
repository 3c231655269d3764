"""Put the built-in models together: recto-en-1, and granite-embedding-30m-english, its base."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from recto._util.files import sha256
from recto.embedders.granite.bpe import AsciiTokenizer, ascii_words
from recto.embedders.granite.runtime import check_vector, open_graph
from recto.embedders.granite.weights import (
    BODY_SHA256,
    PROMPT_TOKENS,
    Arrays,
    cached_weights,
    check_pack,
    find_pack,
    quantize,
    read_body,
    read_calibration,
    read_int8_body,
    read_pack,
    read_tokenizer,
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
from recto.settings import BUILT_IN_MODEL, GRANITE_MODEL, Precision
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector

MAX_TOKENS = 512
PROBE = (0, 2264, 16, 10, 8304, 116, 2)
"""The tokens of a short text with a known int8 vector, to detect a processor that computes int8 wrongly."""
_PROBE_COPIES = 5  # more than 32 tokens: from there on, AMX multiplies in another way
_HERE = Path(__file__).parent
MERGES = _HERE / "granite-merges.bin"


class Variant(NamedTuple):
    """A precision of a model: its graph, its weight file in the cache, and the hash of that file."""

    fingerprint: EmbedderFingerprint
    graph: Path
    weights: Path
    sha256: str
    make: Callable[[Path], Arrays]
    probe: Path | None = None


class BuiltInModel(NamedTuple):
    """A built-in model; all have the same graphs and the same tokenizer."""

    name: str
    fingerprint: EmbedderFingerprint
    variants: dict[Precision, Variant]

    def cpu_variant(self, precision: Precision) -> Variant:
        """Return the variant that runs on the CPU; `auto` depends on the processor."""
        if precision in self.variants:
            return self.variants[precision]
        return self.variants["int8" if has_int8_dot_product() else "fp32"]


def _built_in(
    name: str,
    fingerprint: EmbedderFingerprint,
    hashes: tuple[str, str],
    make: tuple[Callable[[Path], Arrays], Callable[[Path], Arrays]],
) -> BuiltInModel:
    """Return a model in fp32 and int8; the graphs contain the names of the weight files."""
    fp32 = Variant(
        fingerprint, _HERE / "granite.onnx", Path(name, "granite-fp32.weights"), hashes[0], make[0]
    )
    int8 = Variant(
        replace(fingerprint, variant="int8-4"),  # the number changes with the vectors
        _HERE / "granite-int8.onnx",
        Path(name, "granite-int8.weights"),
        hashes[1],
        make[1],
        _HERE / f"{name}-int8-probe.f32",
    )
    return BuiltInModel(name, fingerprint, {"fp32": fp32, "int8": int8})


GRANITE = _built_in(
    GRANITE_MODEL,
    EmbedderFingerprint(
        "ibm-granite/granite-embedding-30m-english",
        "9b5b096411652ec1189c68fcfb90d0a82c5b45af",
        dim=384,
        variant="int8-weights-fp32",
    ),
    (
        "6259321c8043a0b2a4b36341c1a4622d8e692175f115553819f8fc7a3c42095d",
        "6bb03ad9e49eb6c30782c037a27b078ca5e7921f7408b660de7e3fa295cbee2a",
    ),
    (read_pack, lambda pack: quantize(read_pack(pack), read_calibration())),
)
RECTO_EN_1 = _built_in(
    BUILT_IN_MODEL,
    EmbedderFingerprint(BUILT_IN_MODEL, BODY_SHA256[:40], dim=384, variant="int8-weights-fp32"),
    (
        "2d1265aa113777e531defc5f4ee081627c26d019425903afdf96c4b708535cb8",
        "969aad510000c22e6fa839cfc55393e1b360eac5d91b4337fd3ff13fa9333d50",
    ),
    (read_body, read_int8_body),
)
VARIANTS, FINGERPRINT = RECTO_EN_1.variants, RECTO_EN_1.fingerprint
MODELS = {model.name: model for model in (RECTO_EN_1, GRANITE)}


class BuiltInEmbedder(LocalEmbedder):
    """An embedder that also opens the other built-in model, for queries to an index that it made."""

    def __init__(
        self,
        fingerprint: EmbedderFingerprint,
        home: Path,
        sessions: Sessions,
        threads: int,
        open_other: Callable[[str], LocalEmbedder],
    ) -> None:
        super().__init__(
            fingerprint,
            MAX_TOKENS,
            lambda: new_tokenizer(read_tokenizer(checked_pack(home))),
            sessions,
            threads,
            AsciiTokenizer(MERGES).encode,
            ascii_words,
        )
        self._open_other = open_other
        self._others: dict[str, LocalEmbedder] = {}
        self.abilities = EmbedderAbilities(
            embed_context_queries=self._embed_context_queries
            if fingerprint.model == BUILT_IN_MODEL
            else None,
            for_index=self.for_index,
            token_counter=self.token_counter,
            languages=("en",),
        )

    def _embed_context_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries of contexts: recto-en-1 has a prompt for them."""
        rows = ([row[0], *PROMPT_TOKENS, *row[1:]] for row in self._query_tokens(texts))
        return self._embed_query_rows([self._truncated(row) for row in rows])

    def for_index(self, index: EmbedderFingerprint) -> LocalEmbedder | None:
        """Return the embedder of the built-in model that made an index, or None if another model did."""
        for model in MODELS.values():
            if index.is_compatible(model.fingerprint):
                if model.name not in self._others:
                    self._others[model.name] = self._open_other(model.name)
                return self._others[model.name]
        return None

    def close(self) -> None:
        """Release the memory of both models; the next call loads them again."""
        super().close()
        for other in self._others.values():
            other.close()


def built_in_embedder(
    home: Path,
    threads: int,
    precision: Precision = "fp32",
    *,
    model: str = BUILT_IN_MODEL,
    single_query: bool = False,
) -> BuiltInEmbedder:
    """Return the embedder of a built-in model; `home` caches its weights.

    `single_query` skips the optimization of the graph, which takes as long as a dozen queries, and loads the
    model while the caller opens the index.
    """
    variant = MODELS[model].cpu_variant(precision)
    open_single = graph_opener(home, variant, single_query=True) if single_query else None
    sessions = Sessions(graph_opener(home, variant), threads, open_single)

    def open_other(name: str) -> BuiltInEmbedder:
        return built_in_embedder(home, threads, precision, model=name, single_query=single_query)

    embedder = BuiltInEmbedder(variant.fingerprint, home, sessions, threads, open_other)
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
            lambda: variant.make(checked_pack(home)),
        )

    def open_for(threads: int) -> RunModel:
        # Where int8 weights must be unsigned (`session_settings`), optimizing the graph makes them so.
        quick = single_query and (variant.probe is None or has_int8_dot_product())
        run = open_graph(variant.graph, weights(), threads, single_query=quick)
        if variant.probe:
            check_vector(run, PROBE, variant.probe, copies=1 if single_query else _PROBE_COPIES)
        return run

    return open_for


def checked_pack(home: Path) -> Path:
    """Return the path of the installed pack after a check of its hash."""
    pack = find_pack()
    check_pack(pack, home / "cache" / "model-pack.json")
    return pack


def remove_damaged_weights(cache: Path) -> list[str]:
    """Remove cached weights that do not have the expected hash, and return their names.

    They are made again when the model is opened.
    """
    damaged = [
        str(variant.weights)
        for model in MODELS.values()
        for variant in model.variants.values()
        if (cache / variant.weights).exists() and sha256(cache / variant.weights) != variant.sha256
    ]
    for name in damaged:
        (cache / name).unlink()
    return damaged

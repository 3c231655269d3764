"""Run an embedding model in this process with onnxruntime."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from recto.embedders import check_lengths, normalize_vectors
from recto.errors import ConfigurationError, EmbeddingError, RectoError
from recto.protocols import Progress
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

RunModel = Callable[[Sequence[Sequence[int]]], Sequence[Sequence[float]]]
"""Computes one vector for each row of token ids."""

SplitWords = Callable[[str], list[str] | None]
"""Returns the words of a text that a tokenizer reads one by one, or None if it cannot."""

WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""The session option that names the directory of a graph's weights."""

_CPU_INFO = Path("/proc/cpuinfo")
_DOT_PRODUCT = frozenset({"asimddp", "avx512_vnni", "avx_vnni"})  # processors with AMX have avx512_vnni, too
_BATCH_TOKENS = 512  # padded tokens per call: larger batches need more memory and are not faster
_COUNTED_WORDS = 1 << 15


class Weights(NamedTuple):
    """The weights of a graph that does not contain them: a directory with a weight file, or arrays."""

    folder: Path | None = None
    arrays: Mapping[str, Any] = MappingProxyType({})


class Sessions:
    """One model, opened once for each way of running it, on first use.

    A single query uses all threads. For many texts, each thread runs its own batch: no layer is split between
    threads, so the throughput is higher. `open_single` opens the model for single queries, if that is faster.
    """

    def __init__(
        self,
        open: Callable[[int], RunModel],
        threads: int,
        open_single: Callable[[int], RunModel] | None = None,
    ) -> None:
        self._open = open
        self._threads = threads
        self._open_single = open_single or open
        self._opened: dict[object, RunModel] = {}
        self._opening = threading.Lock()

    def single(self) -> RunModel:
        """Return the model for one text at a time."""
        return self._cached(self._open_single, self._threads)

    def parallel(self) -> RunModel:
        """Return the model for several batches in parallel."""
        return self._cached(self._open, 1)

    def _cached(self, open: Callable[[int], RunModel], threads: int) -> RunModel:
        with self._opening:
            if (open, threads) not in self._opened:
                self._opened[open, threads] = open(threads)
            return self._opened[open, threads]

    def close(self) -> None:
        """Release the memory of the model; texts that are being embedded are still finished."""
        with self._opening:
            self._opened.clear()


@cache
def has_int8_dot_product() -> bool:
    """Return whether the processor has int8 dot products: `asimddp` on ARM, VNNI on x86-64.

    Every Apple processor has them, Linux lists them, and on Windows they cannot be detected.
    """
    if sys.platform == "darwin":
        return os.uname().machine == "arm64"
    return not _DOT_PRODUCT.isdisjoint(_linux_features(_CPU_INFO))


def _linux_features(cpu_info: Path) -> list[str]:
    """Return the features of the first processor only: reading all of them is slow on large machines."""
    with suppress(OSError), cpu_info.open(encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].split()
    return []


def session_settings() -> dict[str, str]:
    """Return the options that every session needs.

    Threads must not spin while they wait for work: each would occupy a core for 20 ms after each query. On
    x86-64 without VNNI, sums of int8 products overflow unless onnxruntime makes the weights unsigned. On
    other processors this option would make int8 as slow as fp32 (decision 8).
    """
    settings = {"session.intra_op.allow_spinning": "0"}
    return settings if has_int8_dot_product() else {**settings, "session.x64quantprecision": "1"}


def new_session(model: bytes | Path, threads: int, weights: Weights | None = None) -> InferenceSession:
    """Open a graph; weights in a file are memory-mapped."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised; onnxruntime would also print them to the terminal
    for name, value in session_settings().items():
        options.add_session_config_entry(name, value)
    values = []
    if weights and weights.folder:
        options.add_session_config_entry(WEIGHTS_FOLDER, str(weights.folder))
    elif weights:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in weights.arrays.values()]
        options.add_external_initializers(list(weights.arrays), values)
    graph = model if isinstance(model, bytes) else str(model)
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's error types are undocumented
        raise cannot_open(error) from error
    finally:
        values.clear()  # the session copies them, so they had to exist until now


def cannot_open(error: Exception) -> ConfigurationError:
    """Return the error for a graph that onnxruntime rejects."""
    return ConfigurationError(
        f"The embedding model cannot be opened: {error}",
        hint="Check RECTO_MODEL, or unset it for the built-in model.",
    )


def new_tokenizer(description: bytes) -> Tokenizer:
    """Load a tokenizer.json, without padding and truncation."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(description)
    except Exception as error:  # the library raises plain `Exception`s
        raise ConfigurationError(
            f"The model's tokenizer cannot be read: {error}",
            hint="It must be a tokenizer.json of the `tokenizers` library.",
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


class TokenCounter:
    """Counts the tokens of a text, special ones included; it can be pickled to another process.

    `split` returns the words of a text that the tokenizer reads one by one, or None if it cannot. Most words
    of a book are repeated, so adding up their tokens takes a third of the time.
    """

    def __init__(self, open_tokenizer: Callable[[], Tokenizer], split: SplitWords | None = None) -> None:
        self._open = open_tokenizer
        self._split = split
        self._word_tokens = lru_cache(_COUNTED_WORDS)(self._count_word)

    def __call__(self, text: str) -> int:
        """Count the tokens of a text."""
        words = self._split(text) if self._split else None
        if words is None:
            return len(self._open().encode_batch_fast([text])[0])
        return self._special_tokens + sum(map(self._word_tokens, words))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the description of the tokenizer instead of what opens it."""
        return _described_counter, (self._open().to_str().encode(), self._split)

    @cached_property
    def _special_tokens(self) -> int:
        return len(self._open().encode(""))

    def _count_word(self, word: str) -> int:
        return len(self._open().encode_batch_fast([word], add_special_tokens=False)[0])


def _described_counter(description: bytes, split: SplitWords | None) -> TokenCounter:
    return TokenCounter(cache(lambda: new_tokenizer(description)), split)


class LocalEmbedder:
    """Runs a model in this process; tokenizer and model are loaded on first use."""

    def __init__(
        self,
        fingerprint: EmbedderFingerprint,
        max_tokens: int,
        open_tokenizer: Callable[[], Tokenizer],
        sessions: Sessions,
        threads: int = 1,
        fast_tokenize: Callable[[str], list[int] | None] | None = None,
        split_words: SplitWords | None = None,
    ) -> None:
        """Store how to open the tokenizer, which neither pads nor truncates, and the model.

        `fast_tokenize` tokenizes queries while the tokenizer is not loaded, and `split_words` makes counting
        faster; both return None for text that they do not support.
        """
        self.fingerprint, self.dim, self.max_tokens = fingerprint, fingerprint.dim, max_tokens
        self._open_tokenizer = open_tokenizer
        self._sessions = sessions
        self._threads = threads
        self._fast_tokenize = fast_tokenize
        self._counter = TokenCounter(self._loaded, split_words)
        self._tokenizer: Tokenizer | None = None
        self._loading = threading.Lock()

    def warm_up(self) -> None:
        """Load what a query needs."""
        self._query_tokens([""])
        self._sessions.single()

    def close(self) -> None:
        """Release the model's memory; the next call loads the model again."""
        self._sessions.close()

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, including special tokens."""
        return self._counter(text)

    def token_counter(self) -> TokenCounter:
        """Return what counts the tokens of texts in other processes."""
        return self._counter

    def embed_query(self, text: str) -> Vector:
        """Embed one query."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries; tokens beyond the model's limit are ignored."""
        return self._embed_query_rows([self._truncated(row) for row in self._query_tokens(texts)])

    def _embed_query_rows(self, rows: list[list[int]]) -> list[Vector]:
        if len(rows) == 1:
            return self._run(self._sessions.single(), rows)
        return self._embed(rows)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks, in batches of similar length."""
        rows = self._tokens(texts)
        check_lengths(texts, map(len, rows), self.max_tokens)
        return self._embed(rows, progress)

    def _loaded(self) -> Tokenizer:
        if self._tokenizer is None:
            with self._loading:
                if self._tokenizer is None:
                    self._tokenizer = self._open_tokenizer()
        return self._tokenizer

    def _query_tokens(self, texts: Sequence[str]) -> list[list[int]]:
        if self._tokenizer is None and self._fast_tokenize is not None:
            rows = [row for row in map(self._fast_tokenize, texts) if row is not None]
            if len(rows) == len(texts):
                return rows
        return self._tokens(texts)

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        tokenizer = self._loaded()
        try:
            return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
        except Exception as error:  # the library raises plain `Exception`s
            raise EmbeddingError(f"The model's tokenizer cannot read the text: {error}") from error

    def _truncated(self, row: list[int]) -> list[int]:
        """Cut a row to the model's limit, but keep the end token."""
        return row if len(row) <= self.max_tokens else [*row[: self.max_tokens - 1], row[-1]]

    def _embed(self, rows: list[list[int]], progress: Progress | None = None) -> list[Vector]:
        """Run batches in parallel; on a failure or interruption, drop those that have not started."""
        if not rows:
            return []
        from concurrent.futures import ThreadPoolExecutor, as_completed

        vectors: list[Vector] = [[]] * len(rows)
        run, done = self._sessions.parallel(), 0
        batches = length_batches([len(row) for row in rows], _BATCH_TOKENS)
        pool = ThreadPoolExecutor(min(self._threads, len(batches)), "recto-embedder")
        try:
            futures = {
                pool.submit(self._run, run, [rows[index] for index in batch]): batch for batch in batches
            }
            for future in as_completed(futures):
                for index, vector in zip(futures[future], future.result(), strict=True):
                    vectors[index] = vector
                done += len(futures[future])
                if progress:
                    progress(done, len(rows))
        finally:
            pool.shutdown(cancel_futures=True)
        return vectors

    def _run(self, run: RunModel, rows: list[list[int]]) -> list[Vector]:
        try:
            vectors = run(rows)
        except RectoError:
            raise
        except Exception as error:  # onnxruntime's error types are undocumented
            raise EmbeddingError(
                f"The embedding model failed: {error}", hint="Run `recto index --sample` to test it."
            ) from error
        return normalize_vectors(vectors, len(rows), self.dim)


def length_batches(lengths: list[int], max_tokens: int) -> list[list[int]]:
    """Group the indexes of texts of similar length, to save padding; `max_tokens` includes the padding.

    The longest come first: the memory peak comes at once, and at the end no worker waits long for another.
    """
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if not batches or (len(batches[-1]) + 1) * longest > max_tokens:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return batches

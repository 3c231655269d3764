"""Embed on this machine: one class for every ONNX model, whatever way its weights arrive."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recto.embedders.vectors import checked
from recto.errors import ConfigurationError, EmbeddingError, RectoError
from recto.protocols import Progress
from recto.types import EmbedderFingerprint, Vector

_CPU_INFO = Path("/proc/cpuinfo")
_DOT_PRODUCT = frozenset({"asimddp", "avx512_vnni", "avx_vnni"})  # processors with AMX have avx512_vnni too


@cache
def has_int8_dot_product() -> bool:
    """Return whether the processor has dot products of int8: `asimddp` on ARM, VNNI on x86-64.

    Linux lists them, and every Mac with an Apple processor has them. Windows does not tell: there the answer is no.
    """
    if sys.platform == "darwin":
        return os.uname().machine == "arm64"
    return not _DOT_PRODUCT.isdisjoint(_linux_features(_CPU_INFO))


def _linux_features(cpu_info: Path) -> list[str]:
    """Read the features of the first processor only: listing all of them takes long on large machines."""
    with suppress(OSError), cpu_info.open(encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].split()
    return []


Job = TypeVar("Job")
Result = TypeVar("Result")


def side_by_side(
    jobs: Sequence[Job], work: Callable[[Job], Result], workers: int, done: Callable[[Job, Result], None]
) -> None:
    """Work on jobs in their order, several at a time, and hand over each result in the caller's thread.

    The first failure is raised, and so is an interruption: jobs that were not begun are dropped, those under way are waited for.
    """
    if min(workers, len(jobs)) <= 1:
        for job in jobs:
            done(job, work(job))
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed

    pool = ThreadPoolExecutor(min(workers, len(jobs)), "recto-embedder")
    try:
        waiting = {pool.submit(work, job): job for job in jobs}
        for finished in as_completed(waiting):
            done(waiting[finished], finished.result())
    finally:
        pool.shutdown(cancel_futures=True)


if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

Run = Callable[[Sequence[Sequence[int]]], Sequence[Sequence[float]]]
"""From the tokens of texts to one vector per text."""


WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"

_PASSAGES = 0  # no number of threads, under which the other ways are kept


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights that are not in a graph: in a file that the graph names, or in memory."""

    folder: Path | None = None
    arrays: Mapping[str, Any] = field(default_factory=dict)


class Sessions:
    """One model, opened when it is first used and again if it is used the other way.

    A single text is computed by all threads together. Of many texts each thread computes its own: nothing has to be divided and
    waited for in every layer, so more is done in the same time. Passages may have a way of their own.
    """

    def __init__(
        self, open: Callable[[int], Run], threads: int, open_for_passages: Callable[[], Run] | None = None
    ) -> None:
        self._open = open
        self._threads = threads
        self._open_for_passages = open_for_passages
        self._opened: dict[int, Run] = {}
        self._opening = threading.Lock()

    def alone(self) -> Run:
        """Return how a single text is computed."""
        return self._for(self._threads)

    def with_collection(self) -> Run:
        """Return how texts are computed in several threads at once."""
        return self._for(1)

    def passages(self) -> Run:
        """Return how passages are computed in several threads at once."""
        return (
            self._kept(_PASSAGES, self._open_for_passages)
            if self._open_for_passages
            else self.with_collection()
        )

    def _for(self, threads: int) -> Run:
        return self._kept(threads, lambda: self._open(threads))

    def _kept(self, key: int, open: Callable[[], Run]) -> Run:
        with self._opening:
            if key not in self._opened:
                self._opened[key] = open()
            return self._opened[key]


def session_settings() -> dict[str, str]:
    """Return the settings of every session.

    On x86-64 without VNNI, sums of int8 products overflow unless onnxruntime makes the weights unsigned. The
    option that asks for it works on processors with VNNI and AMX too, and makes int8 as slow as fp32 there
    (decision 8).
    """
    return {} if has_int8_dot_product() else {"session.x64quantprecision": "1"}


def new_session(model: bytes | Path, threads: int, weights: Weights | None = None) -> InferenceSession:
    """Open a graph; weights in a file are mapped, not read, and shared by all who map it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised; its own log would reach the user's terminal
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
    except Exception as error:  # onnxruntime raises many types, none of them documented
        raise cannot_open(error) from error
    finally:
        values.clear()  # the session has copied them; until then they must live


def cannot_open(error: Exception) -> ConfigurationError:
    """Say that a graph was refused."""
    return ConfigurationError(
        f"The embedding model cannot be opened: {error}",
        hint="Check RECTO_MODEL, or unset it for the built-in model.",
    )


def new_tokenizer(description: bytes) -> Tokenizer:
    """Read a tokenizer.json and switch off what would pad or cut in silence."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(description)
    except Exception as error:  # the library's errors are bare
        raise ConfigurationError(
            f"The model's tokenizer cannot be read: {error}",
            hint="It must be a tokenizer.json of the `tokenizers` library.",
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BATCH_TOKENS = (
    512  # padded tokens in one call of the model: larger batches use more memory and are not faster
)


class LocalEmbedder:
    """Runs a model in this process; each part of it is loaded once, when it is first needed."""

    def __init__(
        self,
        fingerprint: EmbedderFingerprint,
        max_tokens: int,
        open_tokenizer: Callable[[], Tokenizer],
        sessions: Sessions,
        threads: int = 1,
        plain: Callable[[str], list[int] | None] | None = None,
    ) -> None:
        """Take a tokenizer (no padding, no truncation), the model, and a way to tokenise plain questions before the tokenizer is there."""
        self._fingerprint = fingerprint
        self._max_tokens = max_tokens
        self._open_tokenizer = open_tokenizer
        self._sessions = sessions
        self._threads = threads
        self._plain = plain
        self._tokenizer: Tokenizer | None = None
        self._loading = threading.Lock()

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """What identifies the vectors."""
        return self._fingerprint

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return self._fingerprint.dim

    @property
    def max_tokens(self) -> int:
        """The longest text that the model reads whole."""
        return self._max_tokens

    def warm_up(self) -> None:
        """Load what a question needs."""
        self._question_tokens([""])
        self._sessions.alone()

    def close(self) -> None:
        """Nothing is held that others could want."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, special ones included."""
        return len(self._loaded().encode(text))

    def embed_query(self, text: str) -> Vector:
        """Embed one question."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several questions; what is beyond the model's limit is not read."""
        rows = [self._cut(row) for row in self._question_tokens(texts)]
        return (
            self._run(self._sessions.alone(), rows)
            if len(rows) == 1
            else self._embed(rows, self._sessions.with_collection, None)
        )

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed passages in batches of similar length."""
        rows = self._tokens(texts)
        for text, row in zip(texts, rows, strict=True):
            if len(row) > self._max_tokens:
                raise EmbeddingError(
                    f"A passage has {len(row)} tokens, the model reads {self._max_tokens}: {text[:60]!r} …",
                    hint="Split the passage; the chunker does so by itself.",
                )
        return self._embed(rows, self._sessions.passages, progress)

    def _loaded(self) -> Tokenizer:
        if self._tokenizer is None:
            with self._loading:
                if self._tokenizer is None:
                    self._tokenizer = self._open_tokenizer()
        return self._tokenizer

    def _question_tokens(self, texts: Sequence[str]) -> list[list[int]]:
        if self._tokenizer is None and self._plain is not None:
            rows = [row for row in map(self._plain, texts) if row is not None]
            if len(rows) == len(texts):
                return rows
        return self._tokens(texts)

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        tokenizer = self._loaded()
        try:
            return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
        except Exception as error:  # the tokenizer's own errors are bare
            raise EmbeddingError(f"The text cannot be read by the model's tokenizer: {error}") from error

    def _cut(self, row: list[int]) -> list[int]:
        """Keep the beginning and the closing mark, which models expect at the end."""
        return row if len(row) <= self._max_tokens else [*row[: self._max_tokens - 1], row[-1]]

    def _embed(
        self, rows: list[list[int]], way: Callable[[], Run], progress: Progress | None
    ) -> list[Vector]:
        if not rows:
            return []
        vectors: list[Vector] = [[]] * len(rows)
        run = way()
        done = 0

        def keep(batch: list[int], found: list[Vector]) -> None:
            nonlocal done
            for index, vector in zip(batch, found, strict=True):
                vectors[index] = vector
            done += len(batch)
            if progress:
                progress(done, len(rows))

        batches = _batches([len(row) for row in rows])
        side_by_side(
            batches, lambda batch: self._run(run, [rows[index] for index in batch]), self._threads, keep
        )
        return vectors

    def _run(self, run: Run, rows: list[list[int]]) -> list[Vector]:
        try:
            vectors = run(rows)
        except RectoError:
            raise
        except Exception as error:  # onnxruntime raises many types, none of them documented
            raise EmbeddingError(
                f"The embedding model failed: {error}", hint="Run `recto index --sample` to test it."
            ) from error
        return checked(vectors, len(rows), self.dim)


def _batches(lengths: list[int]) -> list[list[int]]:
    """Group positions by similar length, so that little padding is computed.

    The longest come first: memory peaks at once, and at the end no worker waits long for another.
    """
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if not batches or (len(batches[-1]) + 1) * longest > _BATCH_TOKENS:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return batches

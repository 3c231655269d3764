"""Run the built-in model on a GPU with torch, from the same weights as the graph.

Importing torch takes seconds, so only the first documents import it: queries stay on the CPU, unless
RECTO_QUERY_DEVICE asks for the GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto.embedders.granite.embedder import (
    MAX_TOKENS,
    MODELS,
    PROBE,
    BuiltInEmbedder,
    BuiltInModel,
    built_in_embedder,
    checked_pack,
    graph_opener,
)
from recto.embedders.granite.weights import LAST, LINEAR, Arrays
from recto.embedders.onnx import Sessions, length_batches
from recto.errors import ConfigurationError, EmbeddingError, RectoError
from recto.protocols import Progress
from recto.settings import Settings
from recto.types.search import Vector

if TYPE_CHECKING:
    from torch import Tensor

_HEADS, _HEAD = 12, 32
_HIDDEN = _HEADS * _HEAD
_SCALE_GROUP = 64  # numbers of a word's vector that share a scale
_EPSILON = 1e-12
_PADDING = 1

_BATCH_SIZE = 4096  # texts per call that keep a large GPU busy
_GROUP_SIZE = 1024  # texts that are tokenized while the GPU computes those before
_FEW = 256  # a CPU embeds fewer texts before torch is imported
_BATCH_TOKENS = 65_536  # padded tokens: larger batches are slower on an H200 (`bench.gpu`)
_TOKEN_BYTES = 24 << 10  # memory for a token: the largest activations of a layer, with a margin
_WIDTH = 8  # batches are padded to a multiple: the fast kernels of attention need aligned masks
_MIN_COSINE = 0.999  # to the CPU; a broken kernel changes the whole vector
_UNIT_TOLERANCE = 1e-3
_HIGHEST = "highest"  # torch's name for fp32 without TF32
_IEEE, _TF32 = "ieee", "tf32"  # values of the newer setting

_TRY_CPU = "Set RECTO_DEVICE=cpu to embed on the CPU."


class GpuEmbedder(BuiltInEmbedder):
    """Embeds documents on a GPU, and queries as `BuiltInEmbedder` does.

    The fingerprint says how documents are embedded. If the choice of the GPU was automatic, the CPU embeds
    few documents, or all of them if the GPU cannot be used, in the same precision.
    """

    batch_size = _BATCH_SIZE
    """The number of texts per call of `embed_documents` for the best throughput."""

    def __init__(self, settings: Settings, device: str, notify: Callable[[str], None]) -> None:
        home, model = settings.home, MODELS[settings.model]
        self._half = settings.precision == "bf16"
        sessions = Sessions(
            graph_opener(home, model.cpu_variant(settings.precision), single_query=settings.single_query),
            settings.threads,
            lambda: graph_opener(home, model.variants["fp32"])(1),
        )

        def open_other(name: str) -> BuiltInEmbedder:
            return built_in_embedder(home, settings.threads, settings.precision, model=name)

        fingerprint = model.fingerprint
        if self._half:
            fingerprint = replace(fingerprint, variant="int8-weights-bf16")
        super().__init__(fingerprint, home, sessions, settings.threads, open_other)
        self._model = model
        self._home = home
        self._device = device
        self._is_required = self._half or settings.device != "auto"
        self._embeds_queries = settings.query_device == "same"
        self._notify = notify
        self._runner: TorchRunner | None = None
        self._unusable = False
        self._starting = threading.Lock()

    def warm_up(self) -> None:
        """Load what a query needs."""
        if self._embeds_queries and self._started():
            self._query_tokens([""])
        else:
            super().warm_up()

    def _embed_query_rows(self, rows: list[list[int]]) -> list[Vector]:
        runner = self._started() if self._embeds_queries and rows else None
        if runner is None:
            return super()._embed_query_rows(rows)
        with _as_embedding_error():
            return runner.finish(runner.launch(rows))

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks, in batches of similar length."""
        worth_it = self._is_required or self._runner or len(texts) >= _FEW
        runner = self._started() if worth_it and texts else None
        if runner is None:
            return super().embed_documents(texts, progress)
        with _as_embedding_error():
            return self._stream(runner, texts, progress)

    def _stream(self, runner: TorchRunner, texts: Sequence[str], progress: Progress | None) -> list[Vector]:
        """Tokenize the next texts while the GPU computes, and copy results while it computes the next ones.

        Sorting by the number of characters brings texts of similar length together before any is tokenized.
        """
        order = sorted(range(len(texts)), key=lambda index: (-len(texts[index]), index))
        groups = [order[start : start + _GROUP_SIZE] for start in range(0, len(order), _GROUP_SIZE)]
        vectors: list[Vector] = [[]] * len(texts)
        done = 0

        def collect(group: list[int], launched: Launched) -> None:
            nonlocal done
            for index, vector in zip(group, runner.finish(launched), strict=True):
                vectors[index] = vector
            done += len(group)
            if progress:
                progress(done, len(texts))

        with ThreadPoolExecutor(1, "recto-tokenizer") as pool:
            texts_of = ([texts[index] for index in group] for group in groups)
            tokens = (pool.submit(self._document_tokens, group) for group in texts_of)
            following = next(tokens)
            previous: tuple[list[int], Launched] | None = None
            for group in groups:
                rows = following.result()
                following = next(tokens, following)
                launched = runner.launch(rows)
                if previous:
                    collect(*previous)
                previous = group, launched
            if previous:
                collect(*previous)
        return vectors

    def _started(self) -> TorchRunner | None:
        """Return the model on the GPU, or None if the GPU cannot be used and is not required."""
        with self._starting:
            if self._runner is None and not self._unusable:
                try:
                    self._runner = open_runner(self._model, self._device, self._home, half=self._half)
                except (ConfigurationError, EmbeddingError) as error:
                    if self._is_required:
                        raise
                    self._unusable = True
                    self._notify(f"{error.message}: the CPU embeds the documents")
            return self._runner


def open_runner(model: BuiltInModel, device: str, home: Path, *, half: bool) -> TorchRunner:
    """Load the model on a device, in bf16 or fp32, and compare its vectors with the CPU's."""
    try:
        import torch
    except (ImportError, OSError) as error:
        raise ConfigurationError(f"torch cannot be imported: {error}", hint=_TRY_CPU) from error
    available = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if device in available and not available[device]():
        raise ConfigurationError(
            f"torch {torch.__version__} finds no {device} device",
            hint=f"Install a build of torch that fits the GPU and its driver. {_TRY_CPU}",
        )
    weights = model.variants["fp32"].make(checked_pack(home))
    rows = [list(PROBE), list(PROBE[:3])]
    try:
        expected = TorchRunner(TorchModel(weights, "cpu", torch.float32), 512)
        precision = torch.bfloat16 if half else torch.float32
        runner = TorchRunner(TorchModel(weights, device, precision), _room(device))
        pairs = zip(runner.finish(runner.launch(rows)), expected.finish(expected.launch(rows)), strict=True)
        if all(sum(a * b for a, b in zip(*pair, strict=True)) >= _MIN_COSINE for pair in pairs):
            return runner
    except RuntimeError as error:
        raise ConfigurationError(f"The model cannot run on {device}: {error}", hint=_TRY_CPU) from error
    raise ConfigurationError(f"The model gives wrong numbers on {device}", hint=_TRY_CPU)


def _room(device: str) -> int:
    """Return the number of padded tokens that half of the free memory holds."""
    import torch

    if device == "cuda":
        free = torch.cuda.mem_get_info()[0]
    elif device == "mps":
        free = torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    else:
        return MAX_TOKENS * 8
    return int(max(MAX_TOKENS, min(_BATCH_TOKENS, free // 2 // _TOKEN_BYTES)))


@dataclass(frozen=True, slots=True)
class Launched:
    """Vectors that the device may still compute, and the index of the text of each."""

    indexes: list[int]
    vectors: Tensor
    wait: Callable[[], None]


class TorchRunner:
    """Runs the model in batches that fit into the memory of its device."""

    def __init__(self, model: TorchModel, batch_tokens: int) -> None:
        self._model = model
        self._device = model.device
        self.batch_tokens = batch_tokens

    def launch(self, rows: list[list[int]]) -> Launched:
        """Start to compute the vectors of tokenized texts."""
        import torch

        waiting = length_batches([len(row) for row in rows], self.batch_tokens)[::-1]
        indexes: list[int] = []
        parts: list[Tensor] = []
        while waiting:
            batch = waiting.pop()
            vectors = self._run([rows[index] for index in batch])
            if vectors is not None:
                indexes += batch
                parts.append(vectors)
                continue
            if len(batch) == 1:
                raise EmbeddingError(
                    f"A text of {len(rows[batch[0]])} tokens does not fit into the memory of {self._device}",
                    hint=f"End other programs that use it. {_TRY_CPU}",
                )
            half = len(batch) // 2
            self.batch_tokens = min(self.batch_tokens, max(MAX_TOKENS, half * len(rows[batch[0]])))
            waiting += [batch[half:], batch[:half]]
            if self._device == "cuda":
                torch.cuda.empty_cache()
        vectors = torch.cat(parts)
        if self._device != "cuda":
            return Launched(indexes, vectors.cpu(), lambda: None)
        copy = vectors.to("cpu", non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        return Launched(indexes, copy, copied.synchronize)

    @staticmethod
    def finish(launched: Launched) -> list[Vector]:
        """Wait for the vectors, and return them in the order of the texts."""
        launched.wait()
        lengths = launched.vectors.square().sum(dim=1)
        if not bool(((lengths - 1).abs() < _UNIT_TOLERANCE).all()):
            raise EmbeddingError("The GPU returned a vector that is zero or not finite", hint=_TRY_CPU)
        vectors: list[Vector] = [[]] * len(launched.indexes)
        for index, vector in zip(launched.indexes, launched.vectors.tolist(), strict=True):
            vectors[index] = vector
        return vectors

    def _run(self, rows: list[list[int]]) -> Tensor | None:
        """Start one batch; return None if the device has not enough memory for it."""
        import torch

        ids, mask = _padded(rows)
        try:
            with torch.inference_mode(), full_precision():
                return self._model(self._copied(ids), None if mask is None else self._copied(mask))
        except RuntimeError as error:  # the error of MPS has no class of its own
            if isinstance(error, torch.cuda.OutOfMemoryError) or "out of memory" in str(error):
                return None
            raise

    def _copied(self, values: Any) -> Tensor:
        import torch

        tensor = torch.from_numpy(values)
        if self._device != "cuda":
            return tensor.to(self._device)
        return tensor.pin_memory().to("cuda", non_blocking=True)


def _padded(rows: list[list[int]]) -> tuple[Any, Any]:
    """Return the token ids, and which of them are no padding, or None if all are."""
    import numpy as np

    lengths = np.array([len(row) for row in rows])
    width = int(-(-lengths.max() // _WIDTH) * _WIDTH)
    kept = np.arange(width) < lengths[:, None]
    ids = np.full((len(rows), width), _PADDING, np.int32)
    ids[kept] = np.fromiter(chain.from_iterable(rows), np.int32, lengths.sum())
    return ids, None if kept.all() else kept[:, None, None, :]


class TorchModel:
    """The model with the operators of `scripts/make_graph.py`.

    In bf16, only the products are: sums, layer norms and the output are fp32, so a vector hardly changes.
    """

    def __init__(self, weights: Arrays, device: str, dtype: Any) -> None:
        import torch

        self.device = device
        self._dtype = dtype
        values = (
            torch.tensor(weights["word.q"], device=device)
            .float()
            .view(-1, _HIDDEN // _SCALE_GROUP, _SCALE_GROUP)
        )
        scales = torch.tensor(weights["word.s"], device=device)[:, :, None]
        self._words = (values * scales).view(-1, _HIDDEN)
        self._positions = torch.tensor(weights["positions"], device=device)
        norms = ("emb_ln", *(f"l{layer}.{part}" for layer in range(LAST + 1) for part in ("aln", "fln")))
        self._norms = {
            name: [torch.tensor(weights[f"{name}.{part}"], device=device) for part in "wb"] for name in norms
        }
        self._linear = {
            name: [torch.tensor(weights[f"{name}.{part}"], device=device, dtype=dtype) for part in "wb"]
            for name in LINEAR
        }

    def __call__(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return the normalised vector of each row of token ids; the mask is false for padding."""
        from torch.nn.functional import embedding, normalize

        count, width = ids.shape
        x = self._norm(embedding(ids, self._words) + self._positions[:width], "emb_ln")
        for number in range(LAST):
            layer = f"l{number}"
            mixed = self._multiply(x, f"{layer}.qkv").view(count, width, 3, _HEADS, _HEAD)
            x = self._rest(x, mixed.permute(2, 0, 3, 1, 4).unbind(), mask, layer)
        layer = f"l{LAST}"  # for the first token only: the others are not used after it
        first = x[:, :1]
        query = self._multiply(first, f"{layer}.q").view(count, 1, _HEADS, _HEAD).transpose(1, 2)
        mixed = self._multiply(x, f"{layer}.kv").view(count, width, 2, _HEADS, _HEAD)
        last = self._rest(first, (query, *mixed.permute(2, 0, 3, 1, 4).unbind()), mask, layer)
        return normalize(last[:, 0], dim=-1)

    def _rest(self, x: Tensor, parts: Sequence[Tensor], mask: Tensor | None, layer: str) -> Tensor:
        """Compute attention and the feed-forward network of a layer."""
        from torch.nn.functional import gelu, scaled_dot_product_attention

        attended = scaled_dot_product_attention(*parts, attn_mask=mask).transpose(1, 2).reshape(x.shape)
        x = self._norm(x + self._multiply(attended, f"{layer}.ao"), f"{layer}.aln")
        inner = gelu(self._multiply(x, f"{layer}.f1"))
        return self._norm(x + self._multiply(inner, f"{layer}.f2"), f"{layer}.fln")

    def _multiply(self, x: Tensor, name: str) -> Tensor:
        from torch.nn.functional import linear

        return linear(x.to(self._dtype), *self._linear[name])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        from torch.nn.functional import layer_norm

        return layer_norm(x, (_HIDDEN,), *self._norms[name], eps=_EPSILON)


_changing_precision = threading.RLock()


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply fp32 numbers in fp32, even if the program allows TF32.

    The setting belongs to the whole process, so only one thread at a time launches a batch. It is restored
    afterwards, unless the program has changed it meanwhile.
    """
    with _changing_precision:
        before = _precision()
        if before == _HIGHEST:
            yield
            return
        _set_precision(_IEEE if before == _TF32 else _HIGHEST)
        try:
            yield
        finally:
            if _precision() == _HIGHEST:
                _set_precision(before)


def _precision() -> str:
    import torch

    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:  # the program has allowed TF32 with the newer setting, which is for CUDA alone
        return str(torch.backends.cuda.matmul.fp32_precision)


def _set_precision(precision: str) -> None:
    import torch

    if precision in (_IEEE, _TF32):
        torch.backends.cuda.matmul.fp32_precision = precision
    else:
        torch.set_float32_matmul_precision(precision)


@contextmanager
def _as_embedding_error() -> Iterator[None]:
    try:
        yield
    except RectoError:
        raise
    except RuntimeError as error:
        raise EmbeddingError(f"The model failed on the GPU: {error}", hint=_TRY_CPU) from error

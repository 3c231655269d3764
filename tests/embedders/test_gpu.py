"""Documents on a GPU: which device is chosen, and the model in torch, run on the CPU where torch is installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from recto.api import open_embedder, sample_source
from recto.embedders import local
from recto.embedders.granite import gpu
from recto.embedders.granite.embedder import FINGERPRINT, VARIANTS, BuiltInEmbedder
from recto.embedders.granite.gpu import GpuEmbedder, TorchModel, TorchRunner
from recto.embedders.granite.weights import find_pack, read_pack
from recto.errors import ConfigurationError, EmbeddingError
from recto.protocols import Embedder
from recto.settings import Device, Precision, Settings
from recto.testing import EmbedderConformance
from tests.running import ROOT, environment

REASON = "torch is not installed (the extra `gpu`)"
UNICODE = ["", " ", "x", "naïve café", "机器人 " * 40, "🤖", "مرحبا بالعالم", "\0\x1b[31m", "don't" * 90]


def settings(home: Path, device: Device = "auto", precision: Precision = "auto", **more: Any) -> Settings:
    return Settings("local", "edge", home, threads=2, precision=precision, device=device, **more)


def torch_on_cpu(home: Path, device: Device = "cuda", **more: Any) -> GpuEmbedder:
    """Return the embedder of a GPU with torch's CPU in its place."""
    return gpu.GpuEmbedder(settings(home, device, **more), "cpu", print)


@pytest.fixture
def torch() -> ModuleType:
    result = pytest.importorskip("torch", reason=REASON)
    assert isinstance(result, ModuleType)
    return result


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Return texts of the sample book and unusual ones, from empty to almost the model's limit."""
    pages = [page.text for page in sample_source().pages()]
    parts = ((0, 60), (100, 250), (300, 9), (500, 400), (900, 900), (1500, 120), (1700, 600), (2400, 30))
    pieces = (page[start : start + length] for page in pages for start, length in parts)
    return list(dict.fromkeys([*UNICODE, *pieces]))[:200]


CUDA, OTHER = {"device": "cuda"}, {"model": "other/model"}


@pytest.mark.parametrize(
    ("has_torch", "has_driver", "options", "expected"),
    [
        (True, True, {}, GpuEmbedder),
        (True, True, {"precision": "bf16"}, GpuEmbedder),
        (False, True, {}, BuiltInEmbedder),
        (True, False, {}, BuiltInEmbedder),
        (True, True, {"device": "cpu"}, BuiltInEmbedder),
        (True, True, {"precision": "int8"}, BuiltInEmbedder),
        (False, True, CUDA, "RECTO_DEVICE=cuda needs the extra `gpu`"),
        (False, True, {"device": "mps"}, "RECTO_DEVICE=mps needs the extra `gpu`"),
        (True, True, {"device": "cpu", "precision": "bf16"}, "RECTO_PRECISION=bf16 needs a GPU"),
        (True, True, {**CUDA, "precision": "int8"}, "RECTO_PRECISION=int8 is for the CPU"),
        (True, True, {**CUDA, **OTHER}, "is for the built-in models, not for other/model"),
        (True, True, {"precision": "bf16", **OTHER}, "is for the built-in models, not for other/model"),
    ],
)
def test_which_device_embeds_documents(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_torch: bool,
    has_driver: bool,
    options: dict[str, Any],
    expected: type[Embedder] | str,
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(local, "find_spec", lambda name: name if has_torch else None)
    monkeypatch.setattr(local, "_CUDA_SIGNS", (str(tmp_path / ("" if has_driver else "none")),))
    if isinstance(expected, str):
        with pytest.raises(ConfigurationError, match=expected) as caught:
            open_embedder(settings(tmp_path, **options), print)
        assert ("[gpu]" if "extra" in expected else "Unset ") in caught.value.hint
        return
    result = open_embedder(settings(tmp_path, **options), print)
    assert type(result) is expected
    assert all(result.fingerprint.is_compatible(variant.fingerprint) for variant in VARIANTS.values())
    if isinstance(result, GpuEmbedder):  # in fp32, whatever the processor
        assert result.batch_size >= 1024
        variant = "int8-weights-bf16" if options else FINGERPRINT.variant
        assert result.fingerprint == replace(FINGERPRINT, variant=variant)


def test_a_chosen_gpu_that_cannot_be_used(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # the import fails
    with pytest.raises(ConfigurationError, match="torch cannot be imported") as caught:
        torch_on_cpu(shared_home).embed_documents(["x"])
    assert "RECTO_DEVICE=cpu" in caught.value.hint


def test_an_unusable_gpu(shared_home: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(gpu, "_FEW", 2)
    messages: list[str] = []
    mine = gpu.GpuEmbedder(settings(shared_home), "cuda", messages.append)
    documents = ["soil", "A node publishes messages to a topic."]
    for _ in range(2):
        assert mine.embed_documents(documents) == embedder.embed_documents(documents), "in fp32, as recorded"
    assert len(messages) == 1
    assert "the CPU embeds the documents" in messages[0]


def test_few_documents_and_queries_do_not_import_torch(shared_home: Path) -> None:
    code = """
import sys
from pathlib import Path
from recto.embedders.granite import gpu
from recto.settings import Settings
made = gpu.GpuEmbedder(Settings("local", "edge", Path(sys.argv[1]), threads=1), "cuda", print)
made.warm_up(); made.embed_query("robot"); made.embed_documents(["soil"])
assert "torch" not in sys.modules
"""
    command = [sys.executable, "-c", code, str(shared_home)]
    subprocess.run(command, cwd=ROOT, env=environment(shared_home), check=True, timeout=60)


def test_a_missing_device_is_named(torch: ModuleType, shared_home: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    mine = gpu.GpuEmbedder(settings(shared_home, "cuda"), "cuda", print)
    with pytest.raises(ConfigurationError, match="finds no cuda device") as caught:
        mine.embed_documents(["x"])
    assert "RECTO_DEVICE=cpu" in caught.value.hint


def test_wrong_numbers(torch: ModuleType, shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = TorchModel.__call__
    calls: list[int] = []

    def wrong(self: TorchModel, ids: Any, mask: Any) -> Any:
        calls.append(1)
        vectors = original(self, ids, mask)
        return vectors if len(calls) > 1 else vectors.roll(1, dims=1)

    monkeypatch.setattr(TorchModel, "__call__", wrong)
    with pytest.raises(ConfigurationError, match="wrong numbers on cpu"):
        torch_on_cpu(shared_home).embed_documents(["x"])


@pytest.fixture(scope="module")
def mine(shared_home: Path) -> GpuEmbedder:
    pytest.importorskip("torch", reason=REASON)
    return torch_on_cpu(shared_home, query_device="same")


class TestConformance(EmbedderConformance):
    @pytest.fixture
    def embedder(self, mine: GpuEmbedder) -> Embedder:
        return mine


@pytest.mark.slow
def test_vectors_equal_those_of_the_graph(mine: GpuEmbedder, embedder: Embedder, texts: list[str]) -> None:
    left, right = np.array(mine.embed_documents(texts)), np.array(embedder.embed_documents(texts))
    assert (left * right).sum(axis=1).min() >= 0.9999
    assert np.abs(left - right).max() < 1e-5
    assert len(texts) == 200


@pytest.fixture
def scarce(torch: ModuleType) -> Callable[[int], TorchRunner]:
    """A model on a device whose memory holds a number of padded tokens."""

    class Scarce(TorchModel):
        tokens = 0

        def __call__(self, ids: Any, mask: Any) -> Any:
            if ids.numel() > self.tokens:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return super().__call__(ids, mask)

    def make(tokens: int) -> TorchRunner:
        model = Scarce(read_pack(find_pack()), "cpu", torch.float32)
        model.tokens = tokens
        return TorchRunner(model, 4096)

    return make


def test_batches_are_halved_until_they_fit(scarce: Callable[[int], TorchRunner]) -> None:
    rows = [[0, *range(100, 100 + length), 2] for length in (30, 3, 100, 37, 3, 60, 9, 64)]
    large, small = scarce(1 << 20), scarce(256)
    expected, result = (runner.finish(runner.launch(rows)) for runner in (large, small))
    assert np.array(result) == pytest.approx(np.array(expected), abs=1e-5)
    assert small.batch_tokens < large.batch_tokens == 4096


def test_one_text_without_enough_memory_is_an_error(scarce: Callable[[int], TorchRunner]) -> None:
    with pytest.raises(EmbeddingError, match="A text of 22 tokens does not fit into the memory") as caught:
        scarce(16).launch([[0, *range(100, 120), 2]])
    assert "RECTO_DEVICE=cpu" in caught.value.hint


def test_other_failures_of_the_device(mine: GpuEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(TorchModel, "__call__", fail)
    with pytest.raises(EmbeddingError, match="illegal memory access"):
        mine.embed_documents(["x"])


def test_vectors_that_are_not_finite_are_an_error(torch: ModuleType) -> None:
    for value in (0.0, float("nan")):
        broken = gpu.Launched([0], torch.full((1, 384), value), lambda: None)
        with pytest.raises(EmbeddingError, match="zero or not finite"):
            TorchRunner.finish(broken)


class Setting(ModuleType):
    """The setting of torch that allows TF32, for machines without torch."""

    precision = ""

    def get_float32_matmul_precision(self) -> str:
        return self.precision

    def set_float32_matmul_precision(self, precision: str) -> None:
        self.precision = precision


@pytest.mark.parametrize("precision", ["high", "highest"])
def test_tf32_is_off_and_the_setting_is_restored(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    setting = Setting("torch")
    setting.precision = precision
    monkeypatch.setitem(sys.modules, "torch", setting)
    with gpu.full_precision():
        assert setting.precision == "highest"
    assert setting.precision == precision
    with gpu.full_precision():
        setting.precision = "medium"  # by the program
    assert setting.precision == "medium"

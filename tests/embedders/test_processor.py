"""What the processor can do, and the settings that depend on it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recto.embedders import onnx as processor
from recto.embedders import onnx as session

ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd aes crc32 {} sve\nCPU part\t: 0xd0c\n"
X86 = "processor\t: 0\nmodel name\t: A processor avx512_vnni\nflags\t\t: fpu sse2 avx2 {} rdpid\nbugs\t\t: asimddp\n"


@pytest.fixture
def cpu_info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "_CPU_INFO", path)
    monkeypatch.setattr(sys, "platform", "linux")
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ARM.format("asimddp"), True),
        (ARM.format("asimdhp"), False),
        (X86.format("avx512_vnni amx_int8"), True),
        (X86.format("avx_vnni"), True),
        (X86.format("avx512f"), False),
        ("processor: 0\n", False),
        ("", False),
        (None, False),
    ],
)
def test_linux_lists_dot_products(cpu_info: Path, text: str | None, expected: bool) -> None:
    if text is not None:
        cpu_info.write_text(text)
    assert processor.has_int8_dot_product.__wrapped__() is expected


@pytest.mark.parametrize(
    ("dot_product", "settings"), [(True, {}), (False, {"session.x64quantprecision": "1"})]
)
def test_weights_are_made_unsigned_only_where_sums_overflow(
    monkeypatch: pytest.MonkeyPatch, dot_product: bool, settings: dict[str, str]
) -> None:
    monkeypatch.setattr(session, "has_int8_dot_product", lambda: dot_product)
    assert session.session_settings() == settings

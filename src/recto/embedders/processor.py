"""What this machine's processor can do."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

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

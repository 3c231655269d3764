"""Helpers that know nothing of books or engines: files, retries, text, languages; here, numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from operator import mul


def clamp(value: float) -> float:
    """Limit a value to the range from 0 to 1."""
    return min(1.0, max(0.0, value))


def cosine(vector: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors; 0 if one is zero or their dimensions differ."""
    lengths = math.hypot(*vector) * math.hypot(*other)
    return sum(map(mul, vector, other)) / lengths if lengths and len(vector) == len(other) else 0.0


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the percentile of sorted values, interpolated between the two nearest ones."""
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def nearest_rank(values: Sequence[float], share: float) -> float:
    """Return the percentile of values by the nearest-rank method: always one of the values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def distribution(values: Sequence[float]) -> dict[str, float]:
    """Return how many values there are, and their mean, percentiles and maximum; all 0 if there are none."""
    return {
        "count": len(values),
        "mean": round(sum(values) / max(1, len(values)), 3),
        "p95": nearest_rank(values or [0.0], 0.95),
        "p99": nearest_rank(values or [0.0], 0.99),
        "max": max(values, default=0.0),
    }


# A service does not say which weights it runs. The vectors of two fixed texts identify them, but not to the
# last digit: another processor or batch size changes them a little, so they are compared by their cosine.
# What is stored is not the vectors but 64 random projections of each: they keep the angle between similar
# vectors to within a fifth, and fit into a fingerprint.
PROBE_TEXTS = (
    "A worm keeps the soil loose, so that rain reaches the roots.",
    "def area(radius): return 3.14159 * radius ** 2  # Fläche des Kreises",
)
_MARK = "probe-"
_PROJECTIONS = 64
_MIN_COSINE = 0.999
"""The same weights in fp32 or bf16 stay above it (0.99998); other weights do not, nor does int8 (0.995)."""


def probe_revision(vectors: Sequence[Sequence[float]]) -> str:
    """Return the revision of a model, given its vectors of `PROBE_TEXTS`."""
    from binascii import b2a_base64

    return _MARK + b2a_base64(b"".join(map(_project, vectors)), newline=False).decode()


def is_same_probe(revision: str, other: str) -> bool:
    """Return whether two revisions are probes of the same model, apart from rounding errors."""
    if not (revision.startswith(_MARK) and other.startswith(_MARK)):
        return False
    left, right = _read(revision), _read(other)
    return len(left) == len(right) > 0 and all(
        cosine(a, b) >= _MIN_COSINE for a, b in zip(left, right, strict=True)
    )


def _project(vector: Sequence[float]) -> bytes:
    """Return the sums of the numbers with random signs, as signed bytes."""
    from hashlib import shake_256

    total, sums = sum(vector), []
    for row in range(_PROJECTIONS):
        signs = map((1).__and__, shake_256(b"recto %d" % row).digest(len(vector)))
        sums.append(2 * sum(compress(vector, signs)) - total)
    largest = max(map(abs, sums)) or 1.0
    return bytes(round(127 * value / largest) & 0xFF for value in sums)


def _read(revision: str) -> list[list[int]]:
    from binascii import a2b_base64

    try:
        data = a2b_base64(revision.removeprefix(_MARK), strict_mode=True)
    except ValueError:  # someone else wrote it
        return []
    numbers = [byte - 256 if byte > 127 else byte for byte in data]
    return [numbers[start : start + _PROJECTIONS] for start in range(0, len(numbers), _PROJECTIONS)]

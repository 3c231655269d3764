"""What the searches of a session took, step by step."""

from __future__ import annotations

from collections import deque
from dataclasses import astuple

from recto.types import Timings

_STEPS = ("embed", "search", "total")
_KEPT = 10_000


class Latency:
    """Collects the times of searches and puts them in a table."""

    def __init__(self) -> None:
        self._times: deque[Timings] = deque(maxlen=_KEPT)
        self.ready_ms: float | None = None

    def add(self, timings: Timings) -> None:
        """Note what a search took."""
        self._times.append(timings)

    def text(self) -> str:
        """Return the table."""
        ready = "" if self.ready_ms is None else f"The model and the index were ready in {self.ready_ms:.0f} ms.\n"
        if not self._times:
            return f"{ready}No searches yet."
        from recto.calibration.measuring import percentile

        count = len(self._times)
        lines = [f"{ready}{count} search{'' if count == 1 else 'es'}, in milliseconds:"]
        lines.append(f"{'':8}" + "".join(f"{name:>9}" for name in ("last", "p50", "p95", "max")))
        for name, values in zip(_STEPS, zip(*map(astuple, self._times), strict=True), strict=True):
            ordered = sorted(values)
            shown = (values[-1], percentile(ordered, 0.5), percentile(ordered, 0.95), ordered[-1])
            lines.append(f"{name:8}" + "".join(f"{value:9.1f}" for value in shown))
        return "\n".join(lines)

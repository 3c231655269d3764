"""The gate: whether a run may pass, and every reason why not."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recto._util.text import plural
from recto.errors import InvalidArgument
from recto.evaluation.baseline import Comparison
from recto.evaluation.measures import Measure, parse_measure
from recto.evaluation.runs import Run

_EXPRESSION = re.compile(r"\s*([^<>=\s]+)\s*(>=|>)\s*([0-9.]+)(%?)\s*")


@dataclass(frozen=True, slots=True)
class Threshold:
    """The minimum of a measure's mean, such as `Hit@5>=0.9`."""

    measure: Measure
    least: float
    strict: bool = False

    def __str__(self) -> str:
        """Return the expression; `parse_threshold` reads it back."""
        return f"{self.measure}{'>' if self.strict else '>='}{self.least:g}"

    def met_by(self, value: float) -> bool:
        """Return whether a mean is high enough, allowing for rounding errors."""
        return value > self.least or (not self.strict and math.isclose(value, self.least, abs_tol=1e-9))


@dataclass(frozen=True, slots=True)
class Check:
    """One condition of the gate, whether it holds, and why."""

    name: str
    holds: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def parse_threshold(expression: str) -> Threshold:
    """Read an expression such as `Hit@5>=0.9` or `MRR>75%`."""
    match = _EXPRESSION.fullmatch(expression)
    try:
        value = float(match[3]) / (100 if match[4] else 1) if match else math.nan
    except ValueError:
        value = math.nan
    if match is None or not 0 <= value <= 1:
        raise InvalidArgument(
            f"--gate {expression!r} is not a threshold",
            hint='Such as "Hit@5>=0.9": a measure, >= or >, a number up to 1.',
        )
    return Threshold(parse_measure(match[1]), value, strict=match[2] == ">")


def checks(
    run: Run, thresholds: Sequence[Threshold] = (), comparison: Comparison | None = None
) -> tuple[Check, ...]:
    """Return all conditions of the gate; a run without measured or compared questions never passes."""
    unmeasured = len({missing.key for missing in run.unmeasured})
    reason = "all targets exist"
    if not run.judged:
        reason = "nothing in this suite can be measured on this index"
    elif unmeasured:
        reason = f"{plural(unmeasured, 'question')} UNMEASURED: their targets are not in the index"
    conditions = [Check("everything is measured", bool(run.judged) and not unmeasured, reason)]
    scores = run.scores()
    for threshold in thresholds:
        if (score := scores.get(str(threshold.measure))) is None:
            conditions.append(Check(str(threshold), holds=False, reason="no question measures it"))
        else:
            reason = f"{threshold.measure} is {score.mean:.3f} over {plural(score.count, 'question')}"
            conditions.append(Check(str(threshold), threshold.met_by(score.mean), reason))
    if not thresholds and run.share is not None:
        reason = f"{run.passed} of {plural(len(run.judged), 'question')} passed"
        conditions.append(Check(f"at least {run.threshold:.0%} pass", run.sufficient, reason))
    return (*conditions, *_losses(comparison)) if comparison else tuple(conditions)


def _losses(comparison: Comparison) -> list[Check]:
    gated = [delta for delta in comparison.deltas if delta.gated]
    if not gated:
        return [Check("something is compared", holds=False, reason="no question has a measure on both sides")]
    return [
        Check(
            f"no loss of {delta.measure}",
            not delta.significant_drop,
            f"{delta.before:.3f} -> {delta.now:.3f}, {delta.delta.mean:+.3f} "
            f"[{delta.delta.low:+.3f}, {delta.delta.high:+.3f}], "
            f"p = {delta.p_value:.3f} over {plural(delta.delta.count, 'question')}",
        )
        for delta in gated
    ]

"""Save a run as a baseline, compare a later run with it, and decide whether the run passes the gate.

Runs are compared question by question and measure by measure. A drop is significant if the one-sided
sign-flip test on the paired deltas rejects chance, with Holm's correction over the gated measures at 5 %.
Drops of less than one point are ignored. Intervals are paired bootstraps.

Where two indexes must give the same results, `compare_indexes` compares them chunk by chunk.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from recto._util.files import read_text, write_file
from recto._util.text import plural
from recto.errors import InvalidArgument
from recto.evaluation.measures import (
    GATED_MEASURES,
    Measure,
    ScoreEstimate,
    estimate,
    holm,
    p_value_of_loss,
    parse_measure,
)
from recto.evaluation.runs import QueryResult, Run
from recto.evaluation.suites import Suite, parse_json
from recto.indexing.promotion import differs, search_both, shared_modes
from recto.protocols import Embedder, Index
from recto.types.search import Mode

BASELINE_FORMAT = "recto-baseline-1"
RISK = 0.05
_MIN_DROP = 0.01
_HINT = "Write it again with `recto validate --suite FILE --baseline FILE --update-baseline`."
_MAX_BYTES = 512 * 1024 * 1024
_RESULT = re.compile(r'\{\n\s++("place": .*+)\n\s++("score": .*+)\n\s*+\}')
_EXPRESSION = re.compile(r"\s*([^<>=\s]+)\s*(>=|>)\s*([0-9.]+)(%?)\s*")
_PARITY_BATCH = 8  # queries; each is up to three searches in one request, which has a deadline


Baseline = dict[str, Any]
"""The content of a baseline's file: the results of one run, and the index that they come from."""


def make_baseline(run: Run) -> Baseline:
    """Keep what a later run is compared with."""
    made_with = run.fingerprint
    answers = sorted(run.answers, key=lambda result: result.key)
    return {
        "format": BASELINE_FORMAT,
        "suite": {"name": run.suite, "digest": run.suite_digest},
        "collection": run.collection,
        "index": {
            "model": str(made_with.embedder),
            "chunker": made_with.chunker,
            "content_hash": made_with.content_hash,
        }
        if made_with
        else {},
        "top_k": run.top_k,
        "depth": run.depth,
        "queries": [_entry(answer, run.top_k) for answer in answers],
    }


def _entry(answer: QueryResult, top_k: int) -> dict[str, Any]:
    return {
        "id": answer.key,
        "query": answer.query,
        "expect": list(dict.fromkeys((*answer.targets, *answer.modules))),
        "rank": answer.rank,
        "measures": {name: round(value, 6) for name, value in answer.measures.items()},
        "found": [{"place": hit.chunk.url, "score": round(hit.score, 4)} for hit in answer.found[:top_k]],
    }


def save_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline atomically, one line per result, so that a diff shows what changed."""
    write_file(path, _RESULT.sub(r"{\1 \2}", json.dumps(baseline, indent=1, ensure_ascii=False)) + "\n")


def load_baseline(path: Path) -> Baseline:
    """Read a baseline."""
    data: Baseline = parse_json(read_text(path, _MAX_BYTES, _HINT), str(path), hint=_HINT)
    if not isinstance(data, dict) or data.get("format") != BASELINE_FORMAT:
        raise InvalidArgument(f"{path} is not a baseline of the format {BASELINE_FORMAT}", hint=_HINT)
    try:
        texts = [data["suite"]["digest"], data["collection"]]
        numbers = [data["top_k"], data["depth"]]
        for entry in data["queries"]:
            places = [found["place"] for found in entry["found"]]
            texts += [entry["id"], entry["query"], *entry["expect"], *places]
            numbers += [entry["rank"] or 0, *entry["measures"].values()]
        for value, kind in (*((text, str) for text in texts), *((number, int | float) for number in numbers)):
            if not isinstance(value, kind):
                raise TypeError(f"{value!r} is not valid here")
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise InvalidArgument(f"The baseline {path} is damaged: {problem}", hint=_HINT) from error
    return data


@dataclass(frozen=True, slots=True)
class Change:
    """How one question's results changed: links that entered or left the top k, and the target's rank."""

    id: str
    query: str
    entered: tuple[str, ...]
    left: tuple[str, ...]
    rank_before: int | None
    rank_now: int | None

    @property
    def direction(self) -> int:
        """Whether the target came earlier (-1), later (1), or at the same rank (0)."""
        before, now = self.rank_before or math.inf, self.rank_now or math.inf
        return (now > before) - (now < before)


@dataclass(frozen=True, slots=True)
class Delta:
    """How a measure's mean changed over the questions of both runs."""

    measure: str
    before: float
    now: float
    delta: ScoreEstimate
    p_value: float
    gated: bool
    significant_drop: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "before": round(self.before, 6),
            "now": round(self.now, 6),
            "delta": self.delta.to_dict(),
            "p_value": round(self.p_value, 6),
            "gated": self.gated,
            "significant_loss": self.significant_drop,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes from a baseline to a run; questions with other expectations are not compared."""

    against: str
    compared: int
    deltas: tuple[Delta, ...]
    changes: tuple[Change, ...]
    only_before: tuple[str, ...]
    only_now: tuple[str, ...]
    expected_otherwise: tuple[str, ...]
    same_suite: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = asdict(self)
        del values["deltas"]
        return values | {"measures": {delta.measure: delta.to_dict() for delta in self.deltas}}


def compare(run: Run, baseline: Baseline) -> Comparison:
    """Compare a run with a baseline."""
    if run.depth != baseline["depth"] or run.top_k != baseline["top_k"]:
        raise InvalidArgument(
            f"The baseline was made with --top-k {baseline['top_k']} and "
            f"{plural(baseline['depth'], 'result')} per question, "
            f"this run with --top-k {run.top_k} and {run.depth}",
            hint="Use the same --top-k and --measure, or write the baseline again with --update-baseline.",
        )
    before = {entry["id"]: entry for entry in baseline["queries"]}
    now = {answer.key: _entry(answer, run.top_k) for answer in run.answers}
    both = [key for key in now if key in before]
    alike = [key for key in both if set(now[key]["expect"]) == set(before[key]["expect"])]
    pairs = [(before[key]["measures"], now[key]["measures"]) for key in alike]
    return Comparison(
        against=baseline["collection"],
        compared=len(alike),
        deltas=_deltas(map(str, run.measures), pairs),
        changes=tuple(filter(None, (_change(before[key], now[key]) for key in alike))),
        only_before=tuple(sorted(before.keys() - now.keys())),
        only_now=tuple(key for key in now if key not in before),
        expected_otherwise=tuple(sorted(set(both) - set(alike))),
        same_suite=run.suite_digest == baseline["suite"]["digest"],
    )


def _deltas(
    names: Iterable[str], pairs: list[tuple[dict[str, float], dict[str, float]]]
) -> tuple[Delta, ...]:
    deltas_by_name: dict[str, Delta] = {}
    gated = set(map(str, GATED_MEASURES))
    for name in names:
        values = [(before[name], now[name]) for before, now in pairs if name in before and name in now]
        deltas = [round(now - before, 9) for before, now in values]
        if (change := estimate(deltas)) is not None:
            before, now = (sum(side) / len(values) for side in zip(*values, strict=True))
            deltas_by_name[name] = Delta(name, before, now, change, p_value_of_loss(deltas), name in gated)
    watched = [delta for delta in deltas_by_name.values() if delta.gated]
    for delta, rejected in zip(watched, holm([change.p_value for change in watched], RISK), strict=True):
        drop = rejected and delta.delta.mean <= -_MIN_DROP
        deltas_by_name[delta.measure] = replace(delta, significant_drop=drop)
    return tuple(deltas_by_name.values())


def _change(before: dict[str, Any], now: dict[str, Any]) -> Change | None:
    old, new = (list(dict.fromkeys(result["place"] for result in entry["found"])) for entry in (before, now))
    entered = tuple(link for link in new if link not in old)
    left = tuple(link for link in old if link not in new)
    changed = entered or left or before["rank"] != now["rank"]
    return Change(now["id"], now["query"], entered, left, before["rank"], now["rank"]) if changed else None


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


def compare_indexes(
    embedder: Embedder, left: Index, right: Index, suite: Suite, top_k: int
) -> dict[Mode, list[tuple[str, str]]]:
    """Search two indexes in each mode that both support; return queries with their differences."""
    differences: dict[Mode, list[tuple[str, str]]] = {mode: [] for mode in shared_modes(left, right)}
    for start in range(0, len(suite.expectations), _PARITY_BATCH):
        queries = [expectation.query for expectation in suite.expectations[start : start + _PARITY_BATCH]]
        vectors = embedder.embed_queries(queries)
        for mode, in_mode in differences.items():
            results = zip(queries, *search_both((left, right), mode, vectors, queries, top_k), strict=True)
            in_mode += [
                (query, text)
                for query, results_left, results_right in results
                if (text := differs(results_left, results_right))
            ]
    return differences

"""Save a run as a baseline, and compare a later run with it, question by question and measure by measure.

A drop is significant if the one-sided sign-flip test on the paired deltas rejects chance, with Holm's
correction over the gated measures at 5 %. Drops of less than one point are ignored. Intervals are paired
bootstraps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from recto._util.text import plural
from recto.errors import InvalidArgument
from recto.evaluation.measures import GATED_MEASURES, ScoreEstimate, estimate, holm, p_value_of_loss
from recto.evaluation.records import write_file
from recto.evaluation.runs import QueryResult, Run
from recto.evaluation.suites import Suite
from recto.indexing.promotion import differs, search_both, shared_modes
from recto.protocols import Embedder, Index
from recto.types.search import Mode

BASELINE_FORMAT = "recto-baseline-1"
RISK = 0.05
_MIN_DROP = 0.01
_HINT = "Write it again with `recto validate --suite FILE --baseline FILE --update-baseline`."
_MAX_BYTES = 512 * 1024 * 1024
_RESULT = re.compile(r'\{\s+("place": .*)\s+("score": .*)\s+\}')
_PARITY_BATCH = 8  # queries; each is up to three searches in one request, which has a deadline


@dataclass(frozen=True, slots=True)
class BaselineResult:
    """The part of a question's result that a comparison needs; `found` are links with scores, best first."""

    query: str
    targets: tuple[str, ...]
    rank: int | None
    found: tuple[tuple[str, float], ...]
    measures: dict[str, float]

    @staticmethod
    def of(answer: QueryResult, top_k: int) -> BaselineResult:
        """Keep what a comparison needs."""
        return BaselineResult(
            answer.query,
            tuple(dict.fromkeys((*answer.targets, *answer.modules))),
            answer.rank,
            tuple((one.url, round(one.score, 4)) for one in answer.found[:top_k]),
            {name: round(value, 6) for name, value in answer.measures.items()},
        )


@dataclass(frozen=True, slots=True)
class Baseline:
    """The results of one run by question key, and the index that they come from."""

    suite: str
    suite_digest: str
    collection: str
    index: dict[str, Any]
    top_k: int
    depth: int
    answers: dict[str, BaselineResult]

    @staticmethod
    def of(run: Run) -> Baseline:
        """Keep what a later run is compared with."""
        fingerprint = run.fingerprint
        index = fingerprint and {
            "model": str(fingerprint.embedder),
            "chunker": fingerprint.chunker,
            "content_hash": fingerprint.content_hash,
        }
        answers = {answer.key: BaselineResult.of(answer, run.top_k) for answer in run.answers}
        return Baseline(
            run.suite, run.suite_digest, run.collection, index or {}, run.top_k, run.depth, answers
        )


def save_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline atomically, one line per result, so that a diff shows what changed."""
    data = {
        "format": BASELINE_FORMAT,
        "suite": {"name": baseline.suite, "digest": baseline.suite_digest},
        "collection": baseline.collection,
        "index": baseline.index,
        "top_k": baseline.top_k,
        "depth": baseline.depth,
        "queries": [
            {
                "id": key,
                "query": answer.query,
                "expect": answer.targets,
                "rank": answer.rank,
                "measures": answer.measures,
                "found": [{"place": link, "score": score} for link, score in answer.found],
            }
            for key, answer in sorted(baseline.answers.items())
        ],
    }
    write_file(path, _RESULT.sub(r"{\1 \2}", json.dumps(data, indent=1, ensure_ascii=False)) + "\n")


def load_baseline(path: Path) -> Baseline:
    """Read a baseline."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InvalidArgument(f"The baseline {path} is larger than {_MAX_BYTES >> 20} MiB", hint=_HINT)
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or error
        raise InvalidArgument(f"The baseline {path} cannot be read: {reason}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"The baseline {path} is damaged: {error}", hint=_HINT) from error
    if not isinstance(data, dict) or data.get("format") != BASELINE_FORMAT:
        raise InvalidArgument(f"{path} is not a baseline of the format {BASELINE_FORMAT}", hint=_HINT)
    try:
        answers = {str(entry["id"]): _parse(entry) for entry in data["queries"]}
        return Baseline(
            str(data["suite"]["name"]),
            str(data["suite"]["digest"]),
            str(data["collection"]),
            dict(data["index"]),
            int(data["top_k"]),
            int(data["depth"]),
            answers,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidArgument(f"The baseline {path} is damaged: {reason}", hint=_HINT) from error


def _parse(entry: dict[str, Any]) -> BaselineResult:
    return BaselineResult(
        str(entry["query"]),
        tuple(map(str, entry["expect"])),
        None if entry["rank"] is None else int(entry["rank"]),
        tuple((str(result["place"]), float(result["score"])) for result in entry["found"]),
        {str(name): float(value) for name, value in entry["measures"].items()},
    )


@dataclass(frozen=True, slots=True)
class Change:
    """How one question's results changed: links that entered or left the top k, and the target's rank."""

    key: str
    query: str
    entered: tuple[str, ...]
    left: tuple[str, ...]
    rank_before: int | None
    rank_now: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = asdict(self)
        return {"id": values.pop("key"), **values}


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

    @property
    def losses(self) -> tuple[Delta, ...]:
        """The gated measures with a significant drop."""
        return tuple(delta for delta in self.deltas if delta.significant_drop)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "against": self.against,
            "same_suite": self.same_suite,
            "compared": self.compared,
            "measures": {delta.measure: delta.to_dict() for delta in self.deltas},
            "changes": [change.to_dict() for change in self.changes],
            "only_before": list(self.only_before),
            "only_now": list(self.only_now),
            "expected_otherwise": list(self.expected_otherwise),
        }


def compare(run: Run, baseline: Baseline) -> Comparison:
    """Compare a run with a baseline."""
    if run.depth != baseline.depth or run.top_k != baseline.top_k:
        raise InvalidArgument(
            f"The baseline was made with --top-k {baseline.top_k} and {plural(baseline.depth, 'result')} "
            f"per question, this run with --top-k {run.top_k} and {run.depth}",
            hint="Use the same --top-k and --measure, or write the baseline again with --update-baseline.",
        )
    before, now = baseline.answers, Baseline.of(run).answers
    both = [key for key in now if key in before]
    alike = [key for key in both if set(now[key].targets) == set(before[key].targets)]
    pairs = [(before[key].measures, now[key].measures) for key in alike]
    return Comparison(
        against=baseline.collection,
        compared=len(alike),
        deltas=_deltas(map(str, run.measures), pairs),
        changes=tuple(filter(None, (_change(key, before[key], now[key]) for key in alike))),
        only_before=tuple(sorted(before.keys() - now.keys())),
        only_now=tuple(key for key in now if key not in before),
        expected_otherwise=tuple(sorted(set(both) - set(alike))),
        same_suite=run.suite_digest == baseline.suite_digest,
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
    for delta, rejected in zip(watched, holm([one.p_value for one in watched], RISK), strict=True):
        drop = rejected and delta.delta.mean <= -_MIN_DROP
        deltas_by_name[delta.measure] = replace(delta, significant_drop=drop)
    return tuple(deltas_by_name.values())


def _change(key: str, before: BaselineResult, now: BaselineResult) -> Change | None:
    old, new = (list(dict.fromkeys(link for link, _ in one.found)) for one in (before, now))
    entered = tuple(link for link in new if link not in old)
    left = tuple(link for link in old if link not in new)
    changed = entered or left or before.rank != now.rank
    return Change(key, now.query, entered, left, before.rank, now.rank) if changed else None


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
            in_mode += [(query, text) for query, one, other in results if (text := differs(one, other))]
    return differences

"""Save a run as a baseline, and compare a later run with it, question by question and measure by measure.

A drop is significant if the one-sided sign-flip test on the paired deltas rejects chance, with Holm's
correction over the gated measures at 5 %. Drops of less than one point are ignored. Intervals are paired
bootstraps.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from recto._util.files import replace_text
from recto.errors import InvalidArgument, StorageError
from recto.evaluation.measures import GATED_MEASURES, Measure
from recto.evaluation.runs import QueryResult, Run
from recto.evaluation.statistics import ScoreEstimate, estimate, holm, p_value_of_loss

Key = TypeVar("Key", bound=Hashable)

FORMAT = "recto-baseline-1"
_HINT = "Write it again with `recto validate --suite FILE --baseline FILE --update-baseline`."
_MAX_BYTES = 512 * 1024 * 1024

RISK = 0.05
_MIN_DROP = 0.01


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
        found = tuple((one.link, round(one.score, 4)) for one in answer.found[:top_k])
        targets = tuple(dict.fromkeys((*answer.targets, *answer.modules)))
        return BaselineResult(
            answer.query,
            targets,
            answer.rank,
            found,
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
        made = run.fingerprint
        index = (
            {}
            if made is None
            else {"model": str(made.embedder), "chunker": made.chunker, "content_hash": made.content_hash}
        )
        answers = {answer.key: BaselineResult.of(answer, run.top_k) for answer in run.answers}
        return Baseline(run.suite, run.suite_digest, run.collection, index, run.top_k, run.depth, answers)


def save_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline atomically, one line per result, so that a diff shows what changed."""
    head = {
        "format": FORMAT,
        "suite": {"name": baseline.suite, "digest": baseline.suite_digest},
        "collection": baseline.collection,
        "index": baseline.index,
        "top_k": baseline.top_k,
        "depth": baseline.depth,
    }
    queries = [
        {"id": key, "query": answer.query, "expect": list(answer.targets), "rank": answer.rank}
        | {
            "found": [{"place": place, "score": score} for place, score in answer.found],
            "measures": answer.measures,
        }
        for key, answer in sorted(baseline.answers.items())
    ]
    lines = (
        json.dumps(head, indent=1, ensure_ascii=False)[:-2]
        + ',\n "queries": [\n'
        + ",\n".join(map(_entry, queries))
        + "\n ]\n}\n"
    )
    try:
        replace_text(path, lines)
    except OSError as error:
        raise StorageError(
            f"The baseline {path} cannot be written: {error.strerror or error}", hint="Check the directory."
        ) from error


def load_baseline(path: Path) -> Baseline:
    """Read a baseline."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InvalidArgument(f"The baseline {path} is larger than {_MAX_BYTES >> 20} MiB", hint=_HINT)
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidArgument(
            f"The baseline {path} cannot be read: {error.strerror or error}", hint=_HINT
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"The baseline {path} is damaged: {error}", hint=_HINT) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidArgument(f"{path} is not a baseline of the format {FORMAT}", hint=_HINT)
    try:
        return _parse(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(
            f"The baseline {path} is damaged: {type(error).__name__}: {error}", hint=_HINT
        ) from error


def _parse(data: dict[str, Any]) -> Baseline:
    answers = {
        str(entry["id"]): BaselineResult(
            str(entry["query"]),
            tuple(map(str, entry["expect"])),
            None if entry["rank"] is None else int(entry["rank"]),
            tuple((str(found["place"]), float(found["score"])) for found in entry["found"]),
            {str(name): float(value) for name, value in entry["measures"].items()},
        )
        for entry in data["queries"]
    }
    suite = data["suite"]
    return Baseline(
        str(suite["name"]),
        str(suite["digest"]),
        str(data["collection"]),
        dict(data["index"]),
        int(data["top_k"]),
        int(data["depth"]),
        answers,
    )


def _entry(entry: dict[str, Any]) -> str:
    found = ",\n".join(f"    {json.dumps(one, ensure_ascii=False)}" for one in entry["found"])
    plain = {key: entry[key] for key in ("id", "query", "expect", "rank", "measures")}
    lines = [f"   {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in plain.items()]
    return (
        "  {\n"
        + ",\n".join([*lines, f'   "found": [\n{found}\n   ]' if found else '   "found": []'])
        + "\n  }"
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
        places = {"entered": list(self.entered), "left": list(self.left)}
        return {
            "id": self.key,
            "query": self.query,
            "rank_before": self.rank_before,
            "rank_now": self.rank_now,
        } | places


@dataclass(frozen=True, slots=True)
class Delta:
    """How a measure's mean changed over the questions of both runs."""

    measure: str
    before: float
    now: float
    delta: ScoreEstimate
    p_value: float
    gated: bool
    significant_drop: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        numbers = {
            "before": round(self.before, 6),
            "now": round(self.now, 6),
            "delta": self.delta.to_dict(),
            "p_value": round(self.p_value, 6),
        }
        return numbers | {"gated": self.gated, "significant_loss": self.significant_drop}


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


def compare(run: Run, baseline: Baseline, gated: Sequence[Measure] = GATED_MEASURES) -> Comparison:
    """Compare a run with a baseline."""
    if run.depth != baseline.depth or run.top_k != baseline.top_k:
        raise InvalidArgument(
            f"The baseline was made with --top-k {baseline.top_k} and {baseline.depth} results per question, "
            f"this run with --top-k {run.top_k} and {run.depth}",
            hint="Use the same --top-k and --measure, or write the baseline again with --update-baseline.",
        )
    now = {answer.key: BaselineResult.of(answer, run.top_k) for answer in run.answers}
    both = [key for key in now if key in baseline.answers]
    alike = [key for key in both if set(now[key].targets) == set(baseline.answers[key].targets)]
    otherwise = tuple(sorted(set(both) - set(alike)))
    pairs = [(baseline.answers[key].measures, now[key].measures) for key in alike]
    changes = (_change(key, baseline.answers[key], now[key]) for key in alike)
    return Comparison(
        against=baseline.collection,
        compared=len(alike),
        deltas=_deltas(
            [str(measure) for measure in run.measures], pairs, {str(measure) for measure in gated}
        ),
        changes=tuple(change for change in changes if change is not None),
        only_before=tuple(sorted(key for key in baseline.answers if key not in now)),
        only_now=tuple(key for key in now if key not in baseline.answers),
        expected_otherwise=otherwise,
        same_suite=run.suite_digest == baseline.suite_digest,
    )


def changed_scores(
    before: Mapping[Key, float], now: Mapping[Key, float], tolerance: float
) -> Iterator[tuple[Key, float, float | None]]:
    """Yield the results that are gone (None) or whose score moved by more than `tolerance`, with both scores.

    Results whose scores are within the tolerance of the last one may drop out: they nearly tie with it.
    """
    last = min(now.values(), default=0.0)
    for key, old in before.items():
        new = now.get(key)
        if (new is None and old > last + tolerance) or (new is not None and abs(new - old) > tolerance):
            yield key, old, new


def _deltas(
    names: Iterable[str], pairs: list[tuple[dict[str, float], dict[str, float]]], gated: set[str]
) -> tuple[Delta, ...]:
    found: list[Delta] = []
    for name in names:
        values = [(before[name], now[name]) for before, now in pairs if name in before and name in now]
        deltas = [round(after - before, 9) for before, after in values]
        if (change := estimate(deltas)) is not None:
            before, after = (sum(side) / len(values) for side in zip(*values, strict=True))
            found.append(
                Delta(
                    name,
                    before,
                    after,
                    change,
                    p_value_of_loss(deltas),
                    name in gated,
                    significant_drop=False,
                )
            )
    watched = [number for number, delta in enumerate(found) if delta.gated]
    for number, real in zip(watched, holm([found[number].p_value for number in watched], RISK), strict=True):
        one = found[number]
        lost = real and one.delta.mean <= -_MIN_DROP
        found[number] = Delta(
            one.measure, one.before, one.now, one.delta, one.p_value, gated=True, significant_drop=lost
        )
    return tuple(found)


def _change(key: str, before: BaselineResult, now: BaselineResult) -> Change | None:
    old, new = [place for place, _ in before.found], [place for place, _ in now.found]
    entered, left = (
        tuple(dict.fromkeys(place for place in one if place not in other))
        for one, other in ((new, old), (old, new))
    )
    return (
        Change(key, now.query, entered, left, before.rank, now.rank)
        if entered or left or before.rank != now.rank
        else None
    )

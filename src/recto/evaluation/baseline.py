"""Baselines: what a suite's answers were, kept beside the book in a file that reads well in a diff."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recto.atomic import replace_text
from recto.errors import InvalidArgument, StorageError
from recto.evaluation.run import Answer, Run

FORMAT = "recto-baseline-1"
_HINT = "Write it again with `recto validate --suite FILE --baseline FILE --update-baseline`."
_LARGEST = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Remembered:
    """One question's answer: what was expected, what came (places with scores, best first), what it measured."""

    query: str
    targets: tuple[str, ...]
    rank: int | None
    found: tuple[tuple[str, float], ...]
    measures: dict[str, float]

    @staticmethod
    def of(answer: Answer, top_k: int) -> Remembered:
        """Keep of an answer what a comparison needs."""
        found = tuple((one.place, round(one.score, 4)) for one in answer.found[:top_k])
        targets = tuple(dict.fromkeys((*answer.targets, *answer.modules)))
        return Remembered(answer.query, targets, answer.rank, found, {name: round(value, 6) for name, value in answer.measures.items()})


@dataclass(frozen=True, slots=True)
class Baseline:
    """The answers of one run by the questions' keys, and what made them."""

    suite: str
    suite_digest: str
    collection: str
    index: dict[str, Any]
    top_k: int
    depth: int
    answers: dict[str, Remembered]

    @staticmethod
    def of(run: Run) -> Baseline:
        """Keep of a run what a later one is compared with."""
        made = run.fingerprint
        index = {} if made is None else {"model": str(made.embedder), "chunker": made.chunker, "content_hash": made.content_hash}
        answers = {answer.key: Remembered.of(answer, run.top_k) for answer in run.answers}
        return Baseline(run.suite, run.suite_digest, run.collection, index, run.top_k, run.depth, answers)


def save_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline, at once and whole; one line for each result, so that a diff shows what changed."""
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
        | {"found": [{"place": place, "score": score} for place, score in answer.found], "measures": answer.measures}
        for key, answer in sorted(baseline.answers.items())
    ]
    lines = json.dumps(head, indent=1, ensure_ascii=False)[:-2] + ',\n "queries": [\n' + ",\n".join(map(_entry, queries)) + "\n ]\n}\n"
    try:
        replace_text(path, lines)
    except OSError as error:
        raise StorageError(f"The baseline {path} cannot be written: {error.strerror or error}", hint="Check the directory.") from error


def load_baseline(path: Path) -> Baseline:
    """Read a baseline's file."""
    try:
        if path.stat().st_size > _LARGEST:
            raise InvalidArgument(f"The baseline {path} is larger than {_LARGEST >> 20} MiB", hint=_HINT)
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidArgument(f"The baseline {path} cannot be read: {error.strerror or error}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"The baseline {path} is damaged: {error}", hint=_HINT) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidArgument(f"{path} is not a baseline of the format {FORMAT}", hint=_HINT)
    try:
        return _understood(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"The baseline {path} is damaged: {type(error).__name__}: {error}", hint=_HINT) from error


def _understood(data: dict[str, Any]) -> Baseline:
    answers = {
        str(entry["id"]): Remembered(
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
    return "  {\n" + ",\n".join([*lines, f'   "found": [\n{found}\n   ]' if found else '   "found": []']) + "\n  }"

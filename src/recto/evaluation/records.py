"""Write report files, and save the last coverage, validation and gaps of a collection for the health page."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto._util.files import disk_advice, make_private, replace_text
from recto.errors import StorageError

if TYPE_CHECKING:
    from recto.evaluation.coverage import Coverage, Reached
    from recto.evaluation.gaps import Gaps
    from recto.evaluation.runs import QueryResult, Run
    from recto.types.index import IndexInfo

_RECORD_FORMAT = 1
_FIELDS = {
    "coverage": ("pages", "reached", "total"),
    "suite": ("name", "command", "passed", "total", "measures", "failed"),
    "gaps": ("queries", "total", "clusters"),
}


def write_file(path: Path, text: str) -> None:
    """Replace a file atomically, or raise a `StorageError`."""
    try:
        replace_text(path, text, private=False)
    except OSError as error:
        raise not_written(error, path) from error


def not_written(error: OSError, path: Path) -> StorageError:
    """Return the error for a report that cannot be written."""
    return StorageError(
        f"{path} cannot be written: {error.strerror or error}", hint=f"{disk_advice(error, path)}."
    )


def remove_reports(home: Path, collection: str) -> None:
    """Remove all reports on a collection."""
    shutil.rmtree(_directory(home, collection), ignore_errors=True)


def keep_coverage(home: Path, info: IndexInfo, coverage: Coverage) -> None:
    """Save which sections of a book are reached."""
    pages: dict[str, dict[str, Any]] = {}
    for reached in coverage.sections:
        section, first = reached.section, reached.section.first
        page = {"url": first.page_url, "title": first.title, "module": first.module, "sections": []}
        title = section.headings[-1] if section.headings else first.title
        pages.setdefault(first.page_url, page)["sections"].append(
            {"title": title, "anchor": section.anchor, "state": _state(reached)}
        )
    total = len(coverage.sections)
    reachable = total - len(coverage.unreachable)
    _keep(home, info, "coverage", pages=list(pages.values()), reached=reachable, total=total)


def keep_run(home: Path, info: IndexInfo, run: Run, command: str) -> None:
    """Save the results of a suite, and the command that repeats the run."""
    failed = [
        {"query": answer.query, "reason": _why(answer)} for answer in run.answers if answer.passed is False
    ]
    failed += [
        {"query": missing.query, "reason": f"not in the index: {missing.target}"}
        for missing in run.unmeasured
    ]
    measures = {name: round(score.mean, 6) for name, score in run.scores().items()}
    counts = {"passed": run.passed, "total": run.total}
    _keep(home, info, "suite", name=run.suite, command=command, **counts, measures=measures, failed=failed)


def keep_gaps(home: Path, info: IndexInfo, gaps: Gaps, count: int) -> None:
    """Save the first gaps of a book."""
    clusters = [one.to_dict() for one in gaps.gaps[:count]]
    _keep(home, info, "gaps", queries=gaps.total, total=len(gaps.gaps), clusters=clusters)


def read_report(home: Path, info: IndexInfo, kind: str) -> dict[str, Any] | None:
    """Return the last report of a kind; `current` says whether it belongs to this generation."""
    try:
        data = json.loads(_path(home, info, kind).read_text("utf-8"))
        if data["format"] != _RECORD_FORMAT:
            return None
        fields = {name: data[name] for name in ("made_at", "generation", *_FIELDS[kind])}
        return fields | {"current": data["generation"] == info.generation}
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or written by another version
        return None


def _keep(home: Path, info: IndexInfo, kind: str, **data: Any) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    head = {"format": _RECORD_FORMAT, "made_at": now, "generation": info.generation}
    path = _path(home, info, kind)
    with suppress(OSError):  # then the file cannot be written either, which is reported
        make_private(path.parent)
    write_file(path, json.dumps(head | data, ensure_ascii=False))


def _path(home: Path, info: IndexInfo, kind: str) -> Path:
    return _directory(home, info.collection) / f"{kind}.json"


def _directory(home: Path, collection: str) -> Path:
    return home / "reports" / collection


def _state(reached: Reached) -> str:
    if reached.unreachable:
        return "unreachable"
    if reached.copies:
        return "duplicate"
    return "shadowed" if reached.shadowed_by else "reached"


def _why(answer: QueryResult) -> str:
    """Say in one line what was found instead."""
    if answer.nothing:
        return "results above the noise floor, although the book does not cover the query"
    first = answer.found[0].chunk.url if answer.found else "nothing"
    return f"expected {answer.expected}; the first result is {first}"

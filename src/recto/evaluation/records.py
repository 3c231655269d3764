"""Keep the last coverage and the last validation of each collection, for those who look at an index without measuring it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto._util.files import replace_text
from recto.errors import StorageError

if TYPE_CHECKING:
    from recto.evaluation.coverage import Coverage, Reached
    from recto.evaluation.runs import Answer, Run, ValidationReport
    from recto.types import IndexInfo

_FORMAT = 1
_COVERAGE, _SUITE = "coverage", "suite"


def keep_coverage(home: Path, info: IndexInfo, found: Coverage) -> None:
    """Keep which sections of a book could be reached."""
    pages: dict[str, dict[str, Any]] = {}
    for reached in found.sections:
        section = reached.section
        page = {
            "url": section.page_url,
            "title": section.page_title,
            "module": section.module,
            "sections": [],
        }
        title = section.headings[-1] if section.headings else section.page_title
        pages.setdefault(section.page_url, page)["sections"].append(
            {"title": title, "anchor": section.anchor, "state": _state(reached)}
        )
    reachable = len(found.sections) - len(found.unreachable)
    _keep(
        home,
        info,
        _COVERAGE,
        {"pages": list(pages.values()), "reached": reachable, "total": len(found.sections)},
    )


def keep_run(home: Path, info: IndexInfo, run: Run) -> None:
    """Keep how a suite went."""
    failed = [
        {"query": answer.query, "reason": _why(answer)} for answer in run.answers if answer.passed is False
    ]
    failed += [
        {"query": missing.query, "reason": f"not in the index: {missing.target}"}
        for missing in run.unmeasured
    ]
    measures = {name: round(score.mean, 6) for name, score in run.scores().items()}
    total = len(run.answers) + len({missing.key for missing in run.unmeasured})
    _keep(
        home,
        info,
        _SUITE,
        {"name": run.suite, "passed": run.passed, "total": total, "measures": measures, "failed": failed},
    )


def keep_report(home: Path, info: IndexInfo, report: ValidationReport) -> None:
    """Keep how the documented questions went."""
    failed = [
        {"query": verdict.expectation.query, "reason": f"the first passage is from {verdict.actual}"}
        for verdict in report.verdicts
        if not verdict.passed
    ]
    measures = {"Accuracy": round(report.accuracy, 6)}
    total = len(report.verdicts)
    _keep(
        home,
        info,
        _SUITE,
        {
            "name": report.suite,
            "passed": report.passed,
            "total": total,
            "measures": measures,
            "failed": failed,
        },
    )


def read_coverage(home: Path, info: IndexInfo) -> dict[str, Any] | None:
    """Return the last coverage of a collection, if there is one; `current` tells whether it is of this very index."""
    return _read(home, info, _COVERAGE, ("made_at", "generation", "pages", "reached", "total"))


def read_suite(home: Path, info: IndexInfo) -> dict[str, Any] | None:
    """Return the last run of a suite, if there is one; see `read_coverage`."""
    return _read(
        home, info, _SUITE, ("made_at", "generation", "name", "passed", "total", "measures", "failed")
    )


def _keep(home: Path, info: IndexInfo, kind: str, data: Mapping[str, Any]) -> None:
    made = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = json.dumps(
        {"format": _FORMAT, "made_at": made, "generation": info.generation, **data}, ensure_ascii=False
    )
    path = _path(home, info, kind)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, text)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}", hint="Check RECTO_HOME."
        ) from error


def _read(home: Path, info: IndexInfo, kind: str, fields: tuple[str, ...]) -> dict[str, Any] | None:
    try:
        data = json.loads(_path(home, info, kind).read_text("utf-8"))
        if data["format"] != _FORMAT:
            return None
        return {name: data[name] for name in fields} | {"current": data["generation"] == info.generation}
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
    ):  # none yet, or one that another version wrote; it is made again by its command
        return None


def _path(home: Path, info: IndexInfo, kind: str) -> Path:
    return home / "reports" / info.collection / f"{kind}.json"


def _state(reached: Reached) -> str:
    if reached.unreachable:
        return "unreachable"
    if reached.copies:
        return "duplicate"
    return "shadowed" if reached.shadowed_by else "reached"


def _why(answer: Answer) -> str:
    """Say in one line what came instead."""
    if answer.nothing:
        return "something came, though nothing in the book answers it"
    first = f"first came {answer.found[0].place}" if answer.found else "nothing came"
    return f"expected {answer.expected}; {first}"

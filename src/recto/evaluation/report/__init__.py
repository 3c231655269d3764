"""Reports on a run, the coverage or the gaps of a book: HTML, Markdown, JUnit XML, and the health page."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recto import __version__
from recto._util import clamp, percentile
from recto._util.files import make_private, write_file
from recto._util.text import plural

if TYPE_CHECKING:
    from jinja2 import Environment

    from recto.evaluation.baseline import Check, Comparison
    from recto.evaluation.coverage import CoverageReport, Reached
    from recto.evaluation.gaps import Gaps
    from recto.evaluation.measures import ScoreEstimate
    from recto.evaluation.runs import QueryResult, Run
    from recto.types.index import IndexInfo

_REMOVED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""Control characters, text direction overrides, and what UTF-8, HTML or XML cannot hold."""

_SHADES = (0.25, 0.45, 0.65, 0.8, 0.9, 0.97)
"""Finer at the top: most pages of most books are well covered, and the few others must stand out."""

_MAX_CHANGES_TEXT = 50_000  # characters; a comment on GitHub has at most 65,536

_RECORD_FORMAT = 1
_FIELDS = {
    "coverage": ("pages", "reached", "total"),
    "suite": ("name", "command", "passed", "total", "measures", "failed"),
    "gaps": ("queries", "total", "clusters"),
}


def validation_page(
    run: Run,
    gate: Sequence[Check],
    comparison: Comparison | None,
    *,
    noise_floor: float | None,
    when: datetime,
) -> str:
    """Return the page of a run; scores below `noise_floor`, if known, are noise."""
    from recto.evaluation.baseline import RISK

    sections = (
        ("measures", "Measures", True),
        ("comparison", "Comparison", comparison),
        ("unmeasured", "Not in the index", run.unmeasured or run.partial),
        ("ranks", "Rank of the first expected result", sum(run.ranks().values())),
        ("worst", "Furthest from what is expected", run.answers),
        ("confusion", "Modules", run.confusion()),
        ("tags", "Tags", _measure_names(run.by_tag())),
        ("times", "Times", run.answers),
        ("questions", "All questions", run.answers),
    )
    return render(
        "validation.html",
        f"Validation of {run.collection}",
        sections,
        run=run,
        gate=gate,
        good=all(check.holds for check in gate),
        compared=comparison,
        noise_floor=noise_floor,
        when=when,
        reach=_reach(comparison) if comparison else 0.0,
        risk=RISK,
    )


def coverage_page(coverage: CoverageReport, info: IndexInfo, *, least: float | None, when: datetime) -> str:
    """Return the page of a book's coverage; `least` is the required percentage of reached sections."""
    from recto.evaluation.coverage import WITHIN

    rows = coverage.pages()
    sections = (
        ("map", "Map of the book", True),
        ("unreachable", "Unreachable", True),
        ("duplicates", "Duplicates", True),
        ("shadowed", "Shadowed", True),
        ("confusion", "Modules", coverage.confusion),
        ("pages", "Pages", rows),
    )
    return render(
        "coverage.html",
        f"Coverage of {coverage.collection}",
        sections,
        coverage=coverage,
        rows=rows,
        modules=[
            (module, list(cells))
            for module, cells in groupby(enumerate(rows), key=lambda numbered: numbered[1]["module"])
        ],
        within=WITHIN,
        least=least,
        good=least is None or coverage.share * 100 >= least,
        reached=len(coverage.sections) - len(coverage.unreachable),
        when=when,
        info=info,
    )


def gaps_page(gaps: Gaps, info: IndexInfo, *, count: int, when: datetime) -> str:
    """Return the page of what readers ask and a book does not answer, with `count` clusters of each kind."""
    sections = (
        ("gaps", "Not answered by the book", True),
        ("unclicked", "Answered, but no result was opened", gaps.unclicked),
    )
    return render(
        "gaps.html",
        f"Gaps of {gaps.collection}",
        sections,
        analysis=gaps,
        shown=gaps.gaps[:count],
        shown_unclicked=gaps.unclicked[:count],
        when=when,
        info=info,
    )


def render(template: str, title: str, sections: Iterable[tuple[str, str, Any]], **context: Any) -> str:
    """Render a page with the sections that have content; its policy lets a browser load and run nothing."""
    style = files("recto.evaluation.report").joinpath("style.css").read_text("utf-8").replace("\r\n", "\n")
    page = environment().get_template("page.html")
    html = page.render(
        parts_template=template,
        title=title,
        sections=[(key, name) for key, name, content in sections if content],
        style=style,
        style_digest=b64encode(sha256(style.encode()).digest()).decode(),
        version=__version__,
        **context,
    )
    # Everything is escaped by now, so removing characters cannot create a tag or an entity.
    return _REMOVED.sub("", html)


@cache
def environment() -> Environment:
    """Return the template environment, with autoescaping."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        autoescape=True,
        loader=PackageLoader("recto.evaluation.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "plural": plural,
        "number": number,
        "signed": signed,
        "percent": lambda share: f"{clamp(share) * 100:.4g}%",
        "number_column": lambda measure: (str(measure), "number"),
        "percentile": percentile,
        "measure_names": _measure_names,
        "matrix_names": _matrix_names,
        "code": _code,
        "cell": lambda text: text.replace("|", "\\|"),
    }
    templates.tests["web"] = is_web
    templates.globals |= {"shade": _shade, "agreement": _agreement}
    return templates


def number(value: float) -> str:
    """Format a measure or a score."""
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    """Format a change, with its sign."""
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


def is_web(address: str) -> bool:
    """Return whether a browser can open an address: others are shown as text, never as links."""
    try:
        parts = urlsplit(_REMOVED.sub("", address))
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def _shade(share: float) -> str:
    """Return the CSS class of a colour from orange (low) to blue (high), for every kind of colour vision."""
    return f"s{sum(share >= step for step in _SHADES)}"


def _agreement(share: float, right: bool) -> str:
    """Return the CSS class of a matrix cell: blue if right, orange if wrong, deeper for a larger share."""
    steps = (0.5, 0.8) if right else (0.15, 0.4)
    depth = 1 + sum(share >= step for step in steps)
    return f"s{3 + depth if right else 3 - depth}"


def _measure_names(groups: Mapping[str, Mapping[str, ScoreEstimate]]) -> list[str]:
    return list(dict.fromkeys(name for scores in groups.values() for name in scores))


def _matrix_names(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    return sorted({*counts, *(name for row in counts.values() for name in row)})


def _reach(comparison: Comparison) -> float:
    """Return the largest absolute change, which the charts' axes reach."""
    ends = (
        abs(value)
        for change in comparison.deltas
        for value in (change.delta.mean, change.delta.low, change.delta.high)
    )
    return max([0.01, *ends])


def validation_markdown(run: Run, gate: Sequence[Check], comparison: Comparison | None) -> str:
    """Return a run as Markdown for a comment: the gate, the measures, and the results that changed."""
    # The changes of ranks come first; what does not fit into a comment is only counted.
    changes = sorted(
        comparison.changes if comparison else (), key=lambda change: change.rank_before == change.rank_now
    )
    lengths = (
        100 + len(change.query) + sum(20 + len(link) for link in (*change.entered, *change.left))
        for change in changes
    )
    template = environment().overlay(autoescape=False).get_template("validation.md")
    text = template.render(
        run=run,
        gate=gate,
        good=all(check.holds for check in gate),
        compared=comparison,
        changes=[
            change
            for change, length in zip(changes, accumulate(lengths), strict=True)
            if length <= _MAX_CHANGES_TEXT
        ],
        version=__version__,
    )
    return _REMOVED.sub("", text)


def _code(text: str) -> str:
    """Return text that Markdown does not interpret: no link, no HTML, no mention of a person."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def junit_xml(run: Run, gate: Sequence[Check]) -> str:
    """Return a run as JUnit XML: a test case for each question, and one for each condition of the gate."""
    unmeasured = {missing.key: missing for missing in run.unmeasured}.values()
    template = environment().get_template("junit.xml")
    return _REMOVED.sub("", template.render(run=run, gate=gate, unmeasured=list(unmeasured)))


def remove_reports(home: Path, collection: str) -> None:
    """Remove all reports on a collection."""
    shutil.rmtree(_directory(home, collection), ignore_errors=True)


def keep_coverage(home: Path, info: IndexInfo, coverage: CoverageReport) -> None:
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
    clusters = [cluster.to_dict() for cluster in gaps.gaps[:count]]
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

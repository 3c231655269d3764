"""Format a run, the coverage or the gaps of a book as one HTML page, or a run as Markdown or JUnit XML."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recto import __version__
from recto._util.numbers import clamp, percentile
from recto._util.text import plural
from recto.evaluation.baseline import RISK, Change, Comparison
from recto.evaluation.coverage import WITHIN, Coverage
from recto.evaluation.gaps import Gaps
from recto.evaluation.gate import Check
from recto.evaluation.measures import ScoreEstimate
from recto.evaluation.runs import Run
from recto.types.index import IndexInfo

if TYPE_CHECKING:
    from jinja2 import Environment

_REMOVED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""Control characters, text direction overrides, and what UTF-8, HTML or XML cannot hold."""

_SHADES = (0.25, 0.45, 0.65, 0.8, 0.9, 0.97)
"""Finer at the top: most pages of most books are well covered, and the few others must stand out."""

_MAX_WORST = 10
_MAX_CHANGES_TEXT = 50_000  # characters; a comment on GitHub has at most 65,536


def validation_page(
    run: Run,
    gate: Sequence[Check],
    comparison: Comparison | None,
    *,
    noise_floor: float | None,
    when: datetime,
) -> str:
    """Return the page of a run; scores below `noise_floor`, if known, are noise."""
    counts = run.ranks()
    confusion, by_tag = run.confusion(), run.by_tag()
    sections = (
        ("measures", "Measures", True),
        ("comparison", "Comparison", comparison),
        ("unmeasured", "Not in the index", run.unmeasured or run.partial),
        ("ranks", "Rank of the first expected result", sum(counts.values())),
        ("worst", "Furthest from what is expected", run.answers),
        ("confusion", "Modules", confusion),
        ("tags", "Tags", _measure_names(by_tag)),
        ("times", "Times", run.answers),
        ("questions", "All questions", run.answers),
    )
    changes = _by_direction(comparison.changes if comparison else ())
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
        scores=run.scores(),
        by_tag=by_tag,
        by_module=run.by_module(),
        asked=sum(counts.values()),
        rank_counts=counts,
        worst_answers=run.worst(_MAX_WORST),
        better=changes[-1],
        worse=changes[1],
        other=changes[0],
        reach=_reach(comparison) if comparison else 0.0,
        risk=RISK,
        ms=sorted(answer.ms for answer in run.answers),
    )


def coverage_page(coverage: Coverage, info: IndexInfo, *, least: float | None, when: datetime) -> str:
    """Return the page of a book's coverage; `least` is the required percentage of reached sections."""
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
            for module, cells in groupby(enumerate(rows), key=lambda numbered: numbered[1].module)
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


def _by_direction(changes: Iterable[Change]) -> dict[int, list[Change]]:
    """Group changes by the direction of the rank: better (-1), worse (1), or the same (0)."""
    groups: dict[int, list[Change]] = {-1: [], 0: [], 1: []}
    for change in changes:
        before, now = change.rank_before or math.inf, change.rank_now or math.inf
        groups[(now > before) - (now < before)].append(change)
    return groups


def _reach(comparison: Comparison) -> float:
    """Return the largest absolute change, which the charts' axes reach."""
    ends = (
        abs(value) for one in comparison.deltas for value in (one.delta.mean, one.delta.low, one.delta.high)
    )
    return max([0.01, *ends])


def validation_markdown(run: Run, gate: Sequence[Check], comparison: Comparison | None) -> str:
    """Return a run as Markdown for a comment: the gate, the measures, and the results that changed."""
    verdict = "passed" if all(check.holds for check in gate) else "**failed**"
    asked = plural(len(run.answers), "question")
    judged = f"{run.passed} of {len(run.judged)} passed" if run.judged else "none judged"
    lines = [
        f"### Retrieval: {verdict}",
        "",
        f"Suite {_code(run.suite)} on {_code(run.collection)}: {asked}, {judged}.",
        "",
        *_table(
            ("", "condition", "reason"),
            [("✅" if check.holds else "❌", _code(check.name), check.reason) for check in gate],
        ),
    ]
    if comparison:
        lines += [*_delta_lines(comparison), "", *_change_lines(comparison.changes)]
    else:
        scores = run.scores().items()
        rows = [(name, f"{one.mean:.3f}", f"{one.low:.3f} to {one.high:.3f}") for name, one in scores]
        lines += ["", *_table(("measure", "mean", "95 % interval"), rows)]
    lines += ["", f"_Recto {__version__}_", ""]
    return _REMOVED.sub("", "\n".join(lines))


def _delta_lines(comparison: Comparison) -> list[str]:
    rows = [
        (
            delta.measure,
            f"{delta.before:.3f}",
            f"{delta.now:.3f}",
            f"{delta.delta.mean:+.3f}" + (" **worse**" if delta.significant_drop else ""),
            f"{delta.delta.low:+.3f} to {delta.delta.high:+.3f}",
        )
        for delta in comparison.deltas
    ]
    lines = ["", *_table(("measure", "before", "now", "change", "95 % interval"), rows)]
    if not comparison.same_suite:
        left_out = len(comparison.only_before) + len(comparison.only_now) + len(comparison.expected_otherwise)
        changed = f"The suite is not the one of the baseline: {plural(left_out, 'question')} not compared."
        lines += ["", changed]
    return lines


def _change_lines(changes: Sequence[Change]) -> list[str]:
    """List the questions whose results changed; where the expected page moved, they come first."""
    if not changes:
        return ["No results changed."]
    lines = [
        f"<details><summary>Results that changed: {plural(len(changes), 'question')}</summary>",
        "",
    ]
    room = _MAX_CHANGES_TEXT
    ordered = sorted(changes, key=lambda change: change.rank_before == change.rank_now)
    for number, change in enumerate(ordered):
        moved = f": rank {change.rank_before or 'none'} → {change.rank_now or 'none'}"
        entry = [f"- {_code(change.query)}{'' if change.rank_before == change.rank_now else moved}"]
        entry += [f"  - new: {_code(place)}" for place in change.entered]
        entry += [f"  - gone: {_code(place)}" for place in change.left]
        room -= sum(len(line) + 1 for line in entry)
        if room < 0:
            lines.append(f"- and {len(ordered) - number} more")
            break
        lines += entry
    return [*lines, "", "</details>"]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    lines = (head, ("---",) * len(head), *rows)
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]


def _code(text: str) -> str:
    """Return text that Markdown does not interpret: no link, no HTML, no mention of a person."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def junit_xml(run: Run, gate: Sequence[Check]) -> str:
    """Return a run as JUnit XML: a test case for each question, and one for each condition of the gate."""
    unmeasured = {missing.key: missing for missing in run.unmeasured}
    failed = sum(answer.passed is False for answer in run.answers)
    skipped = sum(answer.passed is None for answer in run.answers)
    broken = sum(not check.holds for check in gate)
    root = ET.Element("testsuites", _counts(run.total + len(gate), failed + broken, len(unmeasured), skipped))
    suite = {
        "name": run.suite,
        **_counts(run.total, failed, len(unmeasured), skipped),
        "time": f"{run.seconds:.3f}",
    }
    questions = ET.SubElement(root, "testsuite", suite)
    for answer in run.answers:
        case = {"classname": run.suite, "name": answer.key, "time": f"{answer.ms / 1000:.4f}"}
        element = ET.SubElement(questions, "testcase", case)
        if answer.passed is None:
            message = "the noise floor of the index is not measured"
            ET.SubElement(element, "skipped", message=message)
        elif not answer.passed:
            actual = f"{answer.found[0].score:.3f} {answer.found[0].url}" if answer.found else "nothing"
            expected = " or ".join(answer.targets) or answer.expected
            message = f"expected {expected} (rank {answer.rank or 'none'}), found {actual}"
            ET.SubElement(element, "failure", message=message)
    for missing in unmeasured.values():
        element = ET.SubElement(questions, "testcase", {"classname": run.suite, "name": missing.query})
        ET.SubElement(element, "error", {"type": "UNMEASURED", "message": str(missing)})
    name = f"{run.suite}: gate"
    conditions = ET.SubElement(root, "testsuite", {"name": name, **_counts(len(gate), broken, 0, 0)})
    for check in gate:
        element = ET.SubElement(conditions, "testcase", {"classname": name, "name": check.name})
        if not check.holds:
            ET.SubElement(element, "failure", message=check.reason)
    for element in root.iter():
        element.attrib = {key: _REMOVED.sub("", value) for key, value in element.attrib.items()}
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(tests: int, failures: int, errors: int, skipped: int) -> dict[str, str]:
    counts = {"tests": tests, "failures": failures, "errors": errors, "skipped": skipped}
    return {name: str(count) for name, count in counts.items()}

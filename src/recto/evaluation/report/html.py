"""Write a run or the coverage of a book as one self-contained HTML page, from Jinja2 templates."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recto import __version__
from recto._util.files import replace_text
from recto._util.numbers import clamp, percentile
from recto.errors import StorageError
from recto.evaluation.baseline import RISK, Change, Comparison
from recto.evaluation.coverage import WITHIN, Coverage
from recto.evaluation.gate import Check
from recto.evaluation.runs import Run
from recto.evaluation.statistics import ScoreEstimate
from recto.types import Fingerprint, IndexInfo

if TYPE_CHECKING:
    from jinja2 import Environment

_REMOVED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""Control characters, text direction overrides, and what UTF-8 or HTML cannot hold."""

_SHADES = (0.25, 0.45, 0.65, 0.8, 0.9, 0.97)
"""Finer at the top: most pages of most books are well covered, and the few others must stand out."""

_TILES = 4
_MAX_RANKS = 10
_MAX_WORST = 10
_BINS = 10
_NOT_FOUND = math.inf


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
    better, worse, other = _by_direction(comparison.changes if comparison else ())
    times = sorted(answer.ms for answer in run.answers)
    scores = run.scores()
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
        scores=scores,
        top_scores=_top_scores(run, scores),
        by_tag=by_tag,
        by_module=run.by_module(),
        fact_pairs=_run_facts(run, noise_floor),
        asked=sum(counts.values()),
        rank_counts=[
            (f"not in {run.depth}" if rank == "none" else rank, count)
            for rank, count in counts.items()
            if count or rank == "none" or int(rank) <= _MAX_RANKS
        ],
        worst_answers=run.worst(_MAX_WORST),
        better=better,
        worse=worse,
        other=other,
        reach=_reach(comparison) if comparison else 0.0,
        risk=RISK,
        time_tiles=[
            (name, f"{percentile(times, share):.1f} ms", "")
            for name, share in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("longest", 1.0))
            if times
        ],
        time_bins=list(_bins(times)) if times else [],
    )


def coverage_page(found: Coverage, info: IndexInfo, *, least: float | None, when: datetime) -> str:
    """Return the page of a book's coverage; `least` is the required percentage of reached sections."""
    rows = found.pages()
    total = len(found.sections)
    by_heading = sum(one.heading_rank is not None for one in found.sections)
    by_sentence = sum(one.sentence_rank is not None for one in found.sections)
    sections = (
        ("map", "Map of the book", True),
        ("unreachable", "Unreachable", True),
        ("duplicates", "Duplicates", True),
        ("shadowed", "Shadowed", True),
        ("confusion", "Modules", found.confusion),
        ("pages", "Pages", rows),
    )
    return render(
        "coverage.html",
        f"Coverage of {found.collection}",
        sections,
        found=found,
        rows=rows,
        modules=[
            (module, list(cells))
            for module, cells in groupby(enumerate(rows), key=lambda numbered: numbered[1].module)
        ],
        within=WITHIN,
        least=least,
        good=least is None or found.share * 100 >= least,
        reached=total - len(found.unreachable),
        when=when,
        fact_pairs=[
            ("Collection", found.collection),
            ("Generation", info.generation),
            ("Chunks", str(info.chunks)),
            *_index_facts(info.fingerprint),
        ],
        tile_values=[
            *(
                (name, f"{count / total:.1%}" if total else "–", f"{count} of {total} in the first {WITHIN}")
                for name, count in (("By heading", by_heading), ("By first sentence", by_sentence))
            ),
            ("Unreachable", str(len(found.unreachable)), ""),
            ("Duplicates", str(len(found.duplicates)), ""),
            ("Shadowed", str(len(found.shadowed)), ""),
        ],
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

    made = Environment(
        autoescape=True,
        loader=PackageLoader("recto.evaluation.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "counted": counted,
        "number": number,
        "signed": signed,
        "percent": lambda share: f"{clamp(share) * 100:.4g}%",
        "number_column": lambda measure: (str(measure), "number"),
        "measure_names": _measure_names,
        "matrix_names": _matrix_names,
    }
    made.tests["web"] = is_web
    made.globals |= {"shade": _shade, "agreement": _agreement}
    return made


def write_page(path: Path, page: str) -> None:
    """Write a page's file."""
    try:
        replace_text(path, page)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}", hint="Check the directory."
        ) from error


def number(value: float) -> str:
    """Format a measure or a score."""
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    """Format a change, with its sign."""
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, singular or plural."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


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


def _top_scores(run: Run, scores: Mapping[str, ScoreEstimate]) -> list[tuple[str, str, str]]:
    if run.share is None:
        passed = ("Questions passed", "none judged", "")
    else:
        passed = ("Questions passed", f"{run.passed} of {len(run.judged)}", f"{run.share:.1%}")
    means = [
        (name, number(score.mean), f"{number(score.low)} to {number(score.high)}")
        for name, score in list(scores.items())[:_TILES]
    ]
    return [passed, *means]


def _run_facts(run: Run, noise_floor: float | None) -> list[tuple[str, str]]:
    unmeasured = len({missing.key for missing in run.unmeasured})
    unjudged = len(run.answers) - len(run.judged)
    asked = [counted(len(run.answers), "question")]
    asked += [f"{unjudged} not judged"] if unjudged else []
    asked += [f"{unmeasured} unmeasured"] if unmeasured else []
    return [
        ("Suite", run.suite),
        ("Digest", run.suite_digest),
        ("Asked", f"{', '.join(asked)}; {run.depth} results each, {run.top_k} shown"),
        ("Collection", run.collection),
        ("Generation", run.generation),
        *_index_facts(run.fingerprint),
        ("Noise", "not measured" if noise_floor is None else f"scores below {number(noise_floor)}"),
    ]


def _index_facts(fingerprint: Fingerprint | None) -> list[tuple[str, str]]:
    if fingerprint is None:
        return [("Model", "not known: another pipeline made the collection")]
    return [
        ("Model", str(fingerprint.embedder)),
        ("Book", f"{fingerprint.book}, {fingerprint.pages} pages"),
        ("Content", fingerprint.content_hash),
        ("Chunker", fingerprint.chunker),
        ("Indexed", f"{fingerprint.created_at}, by Recto {fingerprint.recto_version}"),
    ]


def _by_direction(changes: Iterable[Change]) -> tuple[list[Change], list[Change], list[Change]]:
    """Split changes into better, worse, and same rank."""
    better: list[Change] = []
    worse: list[Change] = []
    other: list[Change] = []
    for change in changes:
        before, now = change.rank_before or _NOT_FOUND, change.rank_now or _NOT_FOUND
        (better if now < before else worse if now > before else other).append(change)
    return better, worse, other


def _reach(comparison: Comparison) -> float:
    """Return the largest absolute change, which the charts' axes reach."""
    ends = (
        abs(value) for one in comparison.deltas for value in (one.delta.mean, one.delta.low, one.delta.high)
    )
    return max([0.01, *ends])


def _bins(ordered: Sequence[float]) -> Iterator[tuple[float, float, int]]:
    """Count sorted values between round limits: steps of 1, 2 or 5 times a power of ten."""
    low, high = ordered[0], ordered[-1]
    rough = max((high - low) / _BINS, 0.1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    counts: dict[int, int] = {}
    for value in ordered:
        number_of_bin = math.floor(value / step)
        counts[number_of_bin] = counts.get(number_of_bin, 0) + 1
    for bin in range(math.floor(low / step), math.floor(high / step) + 1):
        yield bin * step, (bin + 1) * step, counts.get(bin, 0)

"""`recto validate` with a suite: run it, compare it, gate it, report it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recto.cli.commands.search import connect
from recto.cli.output import in_line
from recto.cli.runner import Exit, keep, warn
from recto.errors import InvalidArgument, StorageError
from recto.evaluation import records
from recto.evaluation.baseline import Comparison
from recto.evaluation.gate import Check
from recto.evaluation.measures import DEFAULT_MEASURES, GATED_MEASURES, Measure, ScoreEstimate, parse_measure
from recto.evaluation.runs import QueryResult, Run
from recto.settings import check_collection_name

_WIDTH = 80
_MOST = 10


def text(run: Run, gate: Sequence[Check], comparison: Comparison | None, *, verbose: bool) -> str:
    """Return the report; `verbose` adds every question and every group."""
    parts = [_head(run), _scores(run)]
    if comparison:
        parts += [_deltas(comparison), _changes(comparison, verbose=verbose)]
    if verbose or len(run.by_module()) > 1:
        parts.append(_groups("Module", run.by_module()))
    parts += [_groups("Tag", run.by_tag()), _ranks(run)]
    parts += [
        _answers("Every question:", run.answers)
        if verbose
        else _answers("Furthest from what is expected:", run.worst(_MOST))
    ]
    parts += [_missing(run), _gate(gate)]
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


def _head(run: Run) -> Iterator[str]:
    yield from textwrap.wrap(f"Suite '{in_line(run.suite)}' on collection '{run.collection}'", _WIDTH)
    share = (
        "none judged" if run.share is None else f"{run.passed} of {len(run.judged)} passed ({run.share:.1%})"
    )
    unjudged = len(run.answers) - len(run.judged)
    asked = len(run.answers)
    yield (
        f"{asked} question{'' if asked == 1 else 's'} asked, {share}"
        + (f", {unjudged} not judged" if unjudged else "")
        + f", {run.seconds:.2f}s"
    )


def _scores(run: Run) -> list[str]:
    rows = [
        f"{name:<18}{score.mean:>7.3f}   [{score.low:.3f}, {score.high:.3f}]{score.count:>12}"
        for name, score in run.scores().items()
    ]
    return [f"{'Measure':<18}{'Mean':>7}   {'95 % interval':<14}{'Questions':>12}", *rows] if rows else []


def _deltas(comparison: Comparison) -> Iterator[str]:
    yield f"Compared with '{in_line(comparison.against)}' on {comparison.compared} questions:"
    yield f"{'Measure':<18}{'Before':>7}{'Now':>8}{'Change':>9}   {'95 % interval':<18}{'p':>6}"
    for delta in comparison.deltas:
        change = delta.delta
        mark = "  LOST" if delta.significant_drop else ""
        interval = f"[{change.low:+.3f}, {change.high:+.3f}]"
        yield f"{delta.measure:<18}{delta.before:>7.3f}{delta.now:>8.3f}{change.mean:>+9.3f}   {interval:<18}{delta.p_value:>6.3f}{mark}"
    if not comparison.same_suite:
        yield "The suite is not the one of the baseline."
    for keys, words in (
        (comparison.only_before, "only before"),
        (comparison.only_now, "only now"),
        (comparison.expected_otherwise, "with another expectation than before"),
    ):
        if keys:
            yield from _wrapped(
                f"{len(keys)} {words}, not compared: {'; '.join(keys[:3])}{' ...' if len(keys) > 3 else ''}",
                "",
            )


def _changes(comparison: Comparison, *, verbose: bool) -> Iterator[str]:
    shown = comparison.changes if verbose else comparison.changes[:_MOST]
    if shown:
        yield f"Results that changed ({len(comparison.changes)} questions):"
    for change in shown:
        moved = (
            ""
            if change.rank_before == change.rank_now
            else f" (rank {change.rank_before or 'none'} -> {change.rank_now or 'none'})"
        )
        yield from _wrapped(f'"{change.query}"{moved}', "  ")
        for sign, places in (("+", change.entered), ("-", change.left)):
            yield from (f"    {sign} {_cut(place, _WIDTH - 6)}" for place in places)


def _groups(title: str, groups: dict[str, dict[str, ScoreEstimate]]) -> list[str]:
    names = [name for scores in groups.values() for name in scores]
    columns = [name for name in dict.fromkeys(names) if name != "ModuleAccuracy" or title == "Module"][:6]
    if not columns:
        return []
    rows = [
        f"{_cut(name, 17):<18}" + "".join(_cell(scores.get(column)) for column in columns)
        for name, scores in groups.items()
    ]
    return [
        f"{title:<18}" + "".join(f"{_cut(column.removeprefix(title), 9):>10}" for column in columns),
        *rows,
    ]


def _cell(score: ScoreEstimate | None) -> str:
    return f"{'-':>10}" if score is None else f"{score.mean:>10.3f}"


def _ranks(run: Run) -> list[str]:
    counts = {rank: count for rank, count in run.ranks().items() if count}
    line = ", ".join(
        f"{count} {'not in ' + str(run.depth) if rank == 'none' else 'at rank ' + str(rank)}"
        for rank, count in counts.items()
    )
    return _wrapped(f"Questions by the rank of their first expected place: {line}", "") if counts else []


def _answers(title: str, answers: Iterable[QueryResult]) -> Iterator[str]:
    for number, answer in enumerate(answers):
        if number == 0:
            yield title
        mark = {"passed": "PASS", "failed": "FAIL", "not judged": "????"}[answer.outcome]
        yield from _wrapped(f'[{mark}] "{answer.query}"', "")
        wanted = " or ".join(answer.targets) or answer.expected
        yield from _wrapped(
            f"expected: {wanted}" + ("" if answer.nothing else f" | rank: {answer.rank or 'none'}"), "       "
        )
        if answer.found and answer.rank != 1:
            yield f"       found: {answer.found[0].score:.3f} {_cut(answer.found[0].link, _WIDTH - 20)}"


def _missing(run: Run) -> Iterator[str]:
    for missing in run.unmeasured:
        yield from _wrapped(f'UNMEASURED "{missing.query}": {missing}', "")
    for missing in run.partial:
        yield from _wrapped(f'[WARNING] "{missing.query}": {missing}', "")


def _gate(gate: Sequence[Check]) -> Iterator[str]:
    for check in gate:
        yield from _wrapped(f"[{'PASS' if check.holds else 'FAIL'}] {check.name}: {check.reason}", "")


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        in_line(line),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_on_hyphens=False,
    )


def _cut(line: str, width: int) -> str:
    """Shorten a line, keeping its end: addresses differ there."""
    flat = in_line(line)
    return flat if len(flat) <= width else f"...{flat[3 - width :]}"


if TYPE_CHECKING:
    from recto.evaluation.baseline import Baseline
    from recto.evaluation.gate import Threshold
    from recto.evaluation.suites import Suite
    from recto.search.retriever import Retriever
    from recto.types import Mode


@dataclass(frozen=True, slots=True)
class Request:
    """What the flags ask for."""

    suite: Path | None
    collection: str | None
    top_k: int
    baseline: Path | None = None
    update_baseline: bool = False
    gates: tuple[str, ...] = ()
    compare: str | None = None
    compare_settings: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    noise_floor: float | None = None
    junit: Path | None = None
    html: Path | None = None
    mode: Mode = "hybrid"


def validate(request: Request, *, verbose: bool, as_json: bool) -> Exit:
    """Run a suite and report on standard output."""
    from recto.evaluation.baseline import Baseline, compare, load_baseline, save_baseline
    from recto.evaluation.gate import checks, parse_threshold

    _check(request)
    thresholds = tuple(map(parse_threshold, request.gates))
    measures = _measures(request, thresholds)
    whole, suite = _suites(request)
    before = load_baseline(request.baseline) if request.baseline and not request.update_baseline else None
    with ExitStack() as opened:
        retriever = opened.enter_context(connect(request.collection))
        other = _other(request, retriever, opened)
        for one in (retriever, other):
            for warning in one.open().info.warnings if one else ():
                warn(warning)
        retriever.warm_up()  # so that the first question's time is a question's time
        from recto.evaluation.runs import Options, run_suite

        noise = request.noise_floor if request.noise_floor is not None else retriever.open().info.noise_floor
        asked = Options(request.top_k, measures, request.noise_floor, request.mode)
        run = run_suite(retriever, suite, asked)
        info = retriever.open().info
        if other:
            before = Baseline.of(run_suite(other, suite, asked))
    if not request.tags:  # a part of a suite says little of the index
        keep(lambda home: records.keep_run(home, info, run))
    comparison = compare(run, _narrowed(before, whole, suite)) if before else None
    gate = checks(run, thresholds, comparison)
    failed = any(not check.holds for check in gate)
    if request.update_baseline and request.baseline and run.answers:
        save_baseline(request.baseline, Baseline.of(run))

    if request.junit:
        from recto.evaluation.report import junit_xml

        write(request.junit, junit_xml(run, gate))
    if request.html:
        from recto.evaluation.report import validation_page

        page = validation_page(run, gate, comparison, noise_floor=noise, when=datetime.now(UTC))
        records.write_file(request.html, page)
    if as_json:
        gated = {"passed": not failed, "checks": [check.to_dict() for check in gate]}
        click.echo(
            json.dumps(
                run.to_dict() | {"comparison": comparison and comparison.to_dict(), "gate": gated},
                indent=2,
                ensure_ascii=False,
            )
        )
    else:
        click.echo(text(run, gate, comparison, verbose=verbose))
    return Exit.VALIDATION_FAILED if failed else Exit.OK


def write(path: Path, text: str) -> None:
    """Write a report's file."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}", hint="Check the directory."
        ) from error


def _check(request: Request) -> None:
    if request.update_baseline and request.baseline is None:
        raise InvalidArgument(
            "--update-baseline goes with --baseline",
            hint="Add --baseline FILE: where the answers are written.",
        )
    if request.baseline and request.compare is not None:
        raise InvalidArgument(
            "--baseline and --compare exclude each other", hint="A run is compared with one thing at a time."
        )
    if request.update_baseline and request.tags:
        raise InvalidArgument("--update-baseline writes all questions", hint="Leave --tag out.")
    if request.compare is not None:
        check_collection_name(request.compare, "--compare")
    elif request.compare_settings:
        raise InvalidArgument(
            "--compare-setting goes with --compare",
            hint="Add --compare COLLECTION: what the other side is called.",
        )
    for setting in request.compare_settings:
        if not setting.partition("=")[0].strip().isidentifier() or "=" not in setting:
            raise InvalidArgument(
                f"--compare-setting {setting!r} is not NAME=VALUE",
                hint="Try --compare-setting RECTO_PROFILE=embedded.",
            )


def _other(request: Request, retriever: Retriever, opened: ExitStack) -> Retriever | None:
    """Open what a run is compared with: beside it, or with settings of its own, such as another model or the other set-up."""
    if request.compare is None:
        return None
    if not request.compare_settings:
        return retriever.with_collection(request.compare)
    changed = dict(setting.partition("=")[::2] for setting in request.compare_settings)
    return opened.enter_context(
        connect(request.compare, {name.strip(): value for name, value in changed.items()})
    )


def _measures(request: Request, thresholds: Iterable[Threshold]) -> tuple[Measure, ...]:
    """What was asked for, what the gate looks at, and what is watched in a comparison."""
    asked = [parse_measure(name) for group in request.measures for name in group.split(",")] or list(
        DEFAULT_MEASURES
    )
    watched = GATED_MEASURES if request.baseline or request.compare else ()
    found = tuple(dict.fromkeys([*asked, *(threshold.measure for threshold in thresholds), *watched]))
    for measure in found:
        if (measure.cutoff or 1) > 100:
            raise InvalidArgument(
                f"{measure} looks at more than the 100 results that a search returns",
                hint="Choose a smaller number.",
            )
    return found


def _suites(request: Request) -> tuple[Suite, Suite]:
    """The whole suite, and what of it has the asked tags."""
    from recto.evaluation.suites import documented_suite, load_strict_suite

    suite = load_strict_suite(request.suite) if request.suite else documented_suite()
    if not request.tags:
        return suite, suite
    chosen = tuple(
        expectation
        for expectation in suite.expectations
        if not set(request.tags).isdisjoint(expectation.tags)
    )
    if not chosen:
        known = sorted({tag for expectation in suite.expectations for tag in expectation.tags})
        raise InvalidArgument(
            f"No question has the tag {' or '.join(request.tags)}",
            hint=f"Tags: {', '.join(known) or 'none'}.",
        )
    return suite, replace(suite, expectations=chosen)


def _narrowed(baseline: Baseline, whole: Suite, suite: Suite) -> Baseline:
    """Leave out the questions that this run was told to leave out."""
    left_out = {expectation.key for expectation in whole.expectations} - {
        expectation.key for expectation in suite.expectations
    }
    return replace(
        baseline, answers={key: answer for key, answer in baseline.answers.items() if key not in left_out}
    )

"""`recto validate`: run a suite, compare it with a baseline or another index, and check the gates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from recto._util.text import plural
from recto.cli import Exit, connect, echo_json, echo_text, one_line, options, save_report, table
from recto.cli.retrieve import VALIDATE, check_book, command_line, validate_contract, warm_up
from recto.errors import InvalidArgument
from recto.types.request import DEFAULT_TOP_K
from recto.types.search import Mode

if TYPE_CHECKING:
    from recto.evaluation.baseline import Baseline, Check, Comparison, Threshold
    from recto.evaluation.measures import Measure
    from recto.evaluation.runs import QueryResult, Run
    from recto.evaluation.suites import Suite

_EPILOG = """\b
Examples:
  recto validate --suite questions.json --gate "Hit@5>=0.9"
  recto validate --suite questions.json --baseline results.json --update-baseline
  recto validate --suite questions.json --baseline results.json
"""
_MAX_LISTED = 10


class _Request(NamedTuple):
    """The options of the command that decide what is run, compared and written."""

    suite: Path | None
    collection: str | None
    top_k: int
    mode: Mode
    baseline: Path | None
    update_baseline: bool
    gates: tuple[str, ...]
    compare: str | None
    compare_settings: tuple[str, ...]
    measures: tuple[str, ...]
    tags: tuple[str, ...]
    junit: Path | None
    markdown: Path | None
    html: Path | None


@click.command(epilog=_EPILOG)
@options.suite
@options.collection
@options.top_k
@options.mode
@options.file_option("--baseline", "Compare with the results in this file.")
@click.option("--update-baseline", is_flag=True, help="Write the results of this run to the baseline file.")
@options.repeated("--gate", "gates", "EXPR", 'Fail if a measure is too low: "Hit@5>=0.9".')
@options.collection_option("Compare with the results of this collection.", flag="--compare")
@options.repeated(
    "--compare-setting",
    "compare_settings",
    "NAME=VALUE",
    "Use this setting for the compared collection only, such as RECTO_PROFILE=embedded.",
)
@options.repeated("--measure", "measures", "NAME", "Compute this measure, such as nDCG@10.")
@options.repeated("--tag", "tags", "TAG", "Run only the questions with this tag.")
@options.file_option("--junit", "Also write the outcome of every question as JUnit XML.")
@options.file_option("--markdown", "Also write the result and what changed as Markdown, for a comment.")
@options.html
@click.option("--verbose", is_flag=True, help="Show every question with its results.")
@options.as_json
def validate(
    suite: Path | None, collection: str | None, top_k: int, verbose: bool, as_json: bool, **flags: Any
) -> Exit:
    """Run a suite of questions with known answers, and measure the results.

    Without --suite, it runs the five questions of the query contract. They are about the sample book.

    Exits with 5 if fewer questions pass than the suite requires (80 % by default) or a --gate is not met, if
    MRR or Hit@5 is significantly worse than in the comparison, or if an expected page is not in the index.
    """
    default_mode = click.get_current_context().get_parameter_source("mode") is ParameterSource.DEFAULT
    if suite is None and default_mode and not any(value for name, value in flags.items() if name != "mode"):
        return validate_contract(None, collection, VALIDATE, verbose=verbose, as_json=as_json)
    request = _Request(suite, collection, top_k, **flags)
    return _validate(request, verbose=verbose, as_json=as_json)


def _validate(request: _Request, *, verbose: bool, as_json: bool) -> Exit:
    from recto.evaluation.baseline import (
        checks,
        compare,
        load_baseline,
        make_baseline,
        parse_threshold,
        save_baseline,
    )
    from recto.evaluation.report import keep_run
    from recto.evaluation.runs import Options, run_suite

    _check(request)
    thresholds = tuple(map(parse_threshold, request.gates))
    whole, suite = _suites(request)
    measures = _measures(request, thresholds)
    before = load_baseline(request.baseline) if request.baseline and not request.update_baseline else None
    run_options = Options(request.top_k, measures, request.mode)
    with connect(request.collection) as retriever:
        if request.suite is None:
            check_book(retriever)
        warm_up(retriever)
        run = run_suite(retriever, suite, run_options)
        info = retriever.open().info
    if request.compare is not None:
        settings = dict(setting.partition("=")[::2] for setting in request.compare_settings)
        with connect(request.compare, settings) as other:
            warm_up(other)
            before = make_baseline(run_suite(other, suite, run_options))
    if not request.tags:  # a part of a suite says little about the index
        command = command_line(VALIDATE, request.suite, run.collection, *_result_options(request))
        save_report(lambda home: keep_run(home, info, run, command))
    comparison = compare(run, _without(before, whole, suite)) if before else None
    gate = checks(run, thresholds, comparison)
    failed = any(not check.holds for check in gate)
    if request.update_baseline and request.baseline and run.answers:
        save_baseline(request.baseline, make_baseline(run))
    _write_reports(request, run, gate, comparison, info.noise_floor)
    if as_json:
        gated = {"passed": not failed, "checks": [asdict(check) for check in gate]}
        echo_json(run.to_dict() | {"comparison": comparison and comparison.to_dict(), "gate": gated})
    else:
        echo_text(_report(run, gate, comparison, verbose=verbose))
    return Exit.VALIDATION_FAILED if failed else Exit.OK


def _write_reports(
    request: _Request,
    run: Run,
    gate: Sequence[Check],
    comparison: Comparison | None,
    noise_floor: float | None,
) -> None:
    """Write the files of --junit, --markdown and --html."""
    from recto._util.files import not_written, write_file
    from recto.evaluation.report import junit_xml, validation_markdown, validation_page

    markdown = validation_markdown(run, gate, comparison)
    for path, text in ((request.junit, junit_xml(run, gate)), (request.markdown, markdown)):
        if path:
            try:
                path.write_text(text, "utf-8")  # not `write_file`: it may be /dev/stdout
            except OSError as error:
                raise not_written(error, path) from error
    if request.html:
        page = validation_page(run, gate, comparison, noise_floor=noise_floor, when=datetime.now(UTC))
        write_file(request.html, page)


def _result_options(request: _Request) -> Iterator[str]:
    """Yield the options of a request that change its results."""
    if request.top_k != DEFAULT_TOP_K:
        yield from ("--top-k", str(request.top_k))
    if request.mode != "hybrid":
        yield from ("--mode", request.mode)
    for measure in request.measures:
        yield from ("--measure", measure)


def _check(request: _Request) -> None:
    if request.update_baseline and request.baseline is None:
        raise InvalidArgument("--update-baseline needs --baseline", hint="Add --baseline FILE.")
    if request.baseline and request.compare is not None:
        raise InvalidArgument(
            "--baseline and --compare exclude each other", hint="Compare with one of them at a time."
        )
    if request.update_baseline and request.tags:
        raise InvalidArgument("--update-baseline writes all questions", hint="Leave out --tag.")
    if request.compare_settings and request.compare is None:
        raise InvalidArgument("--compare-setting needs --compare", hint="Add --compare COLLECTION.")
    for setting in request.compare_settings:
        if not setting.partition("=")[0].isidentifier() or "=" not in setting:
            raise InvalidArgument(
                f"--compare-setting {setting!r} is not NAME=VALUE",
                hint="Try --compare-setting RECTO_PROFILE=embedded.",
            )


def _measures(request: _Request, thresholds: Iterable[Threshold]) -> tuple[Measure, ...]:
    """Return the measures that --measure, --gate or a comparison need."""
    from recto.evaluation.measures import DEFAULT_MEASURES, GATED_MEASURES, parse_measure

    named = [parse_measure(name) for group in request.measures for name in group.split(",")]
    compared = GATED_MEASURES if request.baseline or request.compare else ()
    gated = (threshold.measure for threshold in thresholds)
    measures = tuple(dict.fromkeys([*(named or DEFAULT_MEASURES), *gated, *compared]))
    for measure in measures:
        if (measure.cutoff or 1) > 100:
            raise InvalidArgument(
                f"{measure} needs more than the 100 results of a search", hint="Choose a smaller number."
            )
    return measures


def _suites(request: _Request) -> tuple[Suite, Suite]:
    """Return the whole suite, and its questions with the tags of --tag."""
    from recto.evaluation.suites import documented_suite, load_strict_suite

    suite = load_strict_suite(request.suite) if request.suite else documented_suite()
    if not request.tags:
        return suite, suite
    tags = set(request.tags)
    chosen = tuple(question for question in suite.expectations if not tags.isdisjoint(question.tags))
    if not chosen:
        tags_of_suite = sorted({tag for expectation in suite.expectations for tag in expectation.tags})
        raise InvalidArgument(
            f"No question has the tag {' or '.join(request.tags)}",
            hint=f"Tags: {', '.join(tags_of_suite) or 'none'}.",
        )
    return suite, replace(suite, expectations=chosen)


def _without(baseline: Baseline, whole: Suite, suite: Suite) -> Baseline:
    """Return the baseline without the questions that --tag left out."""
    run = {expectation.key for expectation in suite.expectations}
    left_out = {expectation.key for expectation in whole.expectations} - run
    return baseline | {"queries": [entry for entry in baseline["queries"] if entry["id"] not in left_out]}


def _report(run: Run, gate: Sequence[Check], comparison: Comparison | None, *, verbose: bool) -> str:
    parts: list[Iterable[str]] = [_head(run), _scores(run)]
    if comparison:
        parts += [_deltas(comparison), _changes(comparison, verbose=verbose)]
    if verbose:
        parts.append(_answers("All questions:", run.answers))
    else:
        parts.append(_answers("Worst questions:", run.worst(_MAX_LISTED)))
    parts += [_missing(run), _gate(gate)]
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


def _head(run: Run) -> Iterator[str]:
    yield one_line(f"Suite '{run.suite}' on collection '{run.collection}'")
    passed = f"{run.passed} of {len(run.judged)} passed ({run.share:.1%})" if run.share is not None else ""
    unjudged = len(run.answers) - len(run.judged)
    yield (
        f"{plural(len(run.answers), 'question')} asked, {passed or 'none judged'}"
        + (f", {unjudged} not judged" if unjudged else "")
        + f", {run.seconds:.2f}s"
    )


def _scores(run: Run) -> list[str]:
    rows = [
        (name, f"{score.mean:.3f}", f"[{score.low:.3f}, {score.high:.3f}]", str(score.count))
        for name, score in run.scores().items()
    ]
    lines = table(("Measure", ">Mean", "95 % interval", ">Questions"), rows) if rows else []
    if run.near:
        means = ", ".join(f"{name} {score.mean:.3f}" for name, score in run.scores_without_near().items())
        is_near = f"{len(run.near)} of {plural(len(run.answers), 'question')} are nearly a section question"
        lines += ["", f"[WARNING] {is_near} of the book. Without them: {means or 'none are left'}"]
    return lines


def _deltas(comparison: Comparison) -> Iterator[str]:
    yield f"Compared with '{one_line(comparison.against)}' on {plural(comparison.compared, 'question')}:"
    titles = ("Measure", ">Before", ">Now", ">Change", "95 % interval", ">p", "")
    rows = []
    for delta in comparison.deltas:
        numbers = (f"{delta.before:.3f}", f"{delta.now:.3f}", f"{delta.delta.mean:+.3f}")
        interval = f"[{delta.delta.low:+.3f}, {delta.delta.high:+.3f}]"
        mark = "WORSE" if delta.significant_drop else ""
        rows.append((delta.measure, *numbers, interval, f"{delta.p_value:.3f}", mark))
    yield from table(titles, rows)
    if not comparison.same_suite:
        yield "The suite is not the one of the baseline."
    for keys, words in (
        (comparison.only_before, "only before"),
        (comparison.only_now, "only now"),
        (comparison.expected_otherwise, "with another expectation than before"),
    ):
        if keys:
            examples = "; ".join(keys[:3]) + (" ..." if len(keys) > 3 else "")
            yield one_line(f"{len(keys)} {words}, not compared: {examples}")


def _changes(comparison: Comparison, *, verbose: bool) -> Iterator[str]:
    listed = comparison.changes if verbose else comparison.changes[:_MAX_LISTED]
    if listed:
        yield f"Results that changed ({plural(len(comparison.changes), 'question')}):"
    for change in listed:
        before, now = change.rank_before, change.rank_now
        moved = "" if before == now else f" (rank {before or 'none'} -> {now or 'none'})"
        yield "  " + one_line(f'"{change.query}"{moved}')
        for sign, links in (("+", change.entered), ("-", change.left)):
            yield from (f"    {sign} {one_line(link)}" for link in links)


def _answers(title: str, answers: Iterable[QueryResult]) -> Iterator[str]:
    for number, answer in enumerate(answers):
        if number == 0:
            yield title
        mark = {"passed": "PASS", "failed": "FAIL", "not judged": "????"}[answer.outcome]
        yield one_line(f'[{mark}] "{answer.query}"')
        rank = "" if answer.nothing else f" | rank: {answer.rank or 'none'}"
        expected = " or ".join(answer.targets) or answer.expected
        yield f"       {one_line(f'expected: {expected}{rank}')}"
        if answer.found and answer.rank != 1:
            first = answer.found[0]
            yield f"       found: {first.score:.3f} {one_line(first.chunk.url)}"


def _missing(run: Run) -> Iterator[str]:
    for missing in run.unmeasured:
        yield one_line(f'UNMEASURED "{missing.query}": {missing}')
    for missing in run.partial:
        yield one_line(f'[WARNING] "{missing.query}": {missing}')


def _gate(gate: Sequence[Check]) -> Iterator[str]:
    for check in gate:
        yield one_line(f"[{'PASS' if check.holds else 'FAIL'}] {check.name}: {check.reason}")

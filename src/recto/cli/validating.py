"""`recto validate` with a suite: run it, compare it, gate it, report it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recto import records
from recto.cli.commands import connect
from recto.cli.keeping import keep
from recto.cli.running import Exit, warn
from recto.errors import InvalidArgument, StorageError
from recto.evaluation.measures import DEFAULT_MEASURES, GATED_MEASURES, Measure, parse_measure
from recto.settings import check_collection_name

if TYPE_CHECKING:
    from recto.evaluation.baseline import Baseline
    from recto.evaluation.gate import Threshold
    from recto.evaluation.suite import Suite
    from recto.retriever import Retriever
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
    noise: float | None = None
    junit: Path | None = None
    html: Path | None = None
    mode: Mode = "hybrid"


def validate(request: Request, *, verbose: bool, as_json: bool) -> Exit:
    """Run a suite and report on standard output."""
    from recto.evaluation.baseline import Baseline, load_baseline, save_baseline
    from recto.evaluation.comparison import compare
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
        from recto.evaluation.validation import Options, run_suite

        noise = request.noise if request.noise is not None else retriever.open().info.noise
        asked = Options(request.top_k, measures, request.noise, request.mode)
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
    from recto.cli import validation_report

    if request.junit:
        from recto.cli.junit import junit_xml

        write(request.junit, junit_xml(run, gate))
    if request.html:
        from recto.report.page import write as write_page
        from recto.report.validation import validation_page

        write_page(request.html, validation_page(run, gate, comparison, noise=noise, when=datetime.now(UTC)))
    if as_json:
        gated = {"passed": not failed, "checks": [check.to_dict() for check in gate]}
        click.echo(
            json.dumps(run.to_dict() | {"comparison": comparison and comparison.to_dict(), "gate": gated}, indent=2, ensure_ascii=False)
        )
    else:
        click.echo(validation_report.text(run, gate, comparison, verbose=verbose))
    return Exit.VALIDATION_FAILED if failed else Exit.OK


def write(path: Path, text: str) -> None:
    """Write a report's file."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}", hint="Check the directory.") from error


def _check(request: Request) -> None:
    if request.update_baseline and request.baseline is None:
        raise InvalidArgument("--update-baseline goes with --baseline", hint="Add --baseline FILE: where the answers are written.")
    if request.baseline and request.compare is not None:
        raise InvalidArgument("--baseline and --compare exclude each other", hint="A run is compared with one thing at a time.")
    if request.update_baseline and request.tags:
        raise InvalidArgument("--update-baseline writes all questions", hint="Leave --tag out.")
    if request.compare is not None:
        check_collection_name(request.compare, "--compare")
    elif request.compare_settings:
        raise InvalidArgument("--compare-setting goes with --compare", hint="Add --compare COLLECTION: what the other side is called.")
    for setting in request.compare_settings:
        if not setting.partition("=")[0].strip().isidentifier() or "=" not in setting:
            raise InvalidArgument(f"--compare-setting {setting!r} is not NAME=VALUE", hint="Try --compare-setting RECTO_PROFILE=embedded.")


def _other(request: Request, retriever: Retriever, opened: ExitStack) -> Retriever | None:
    """Open what a run is compared with: beside it, or with settings of its own, such as another model or the other set-up."""
    if request.compare is None:
        return None
    if not request.compare_settings:
        return retriever.beside(request.compare)
    changed = dict(setting.partition("=")[::2] for setting in request.compare_settings)
    return opened.enter_context(connect(request.compare, {name.strip(): value for name, value in changed.items()}))


def _measures(request: Request, thresholds: Iterable[Threshold]) -> tuple[Measure, ...]:
    """What was asked for, what the gate looks at, and what is watched in a comparison."""
    asked = [parse_measure(name) for group in request.measures for name in group.split(",")] or list(DEFAULT_MEASURES)
    watched = GATED_MEASURES if request.baseline or request.compare else ()
    found = tuple(dict.fromkeys([*asked, *(threshold.measure for threshold in thresholds), *watched]))
    for measure in found:
        if (measure.cutoff or 1) > 100:
            raise InvalidArgument(f"{measure} looks at more than the 100 results that a search returns", hint="Choose a smaller number.")
    return found


def _suites(request: Request) -> tuple[Suite, Suite]:
    """The whole suite, and what of it has the asked tags."""
    from recto.evaluation.suite import documented_suite, load_strict_suite

    suite = load_strict_suite(request.suite) if request.suite else documented_suite()
    if not request.tags:
        return suite, suite
    chosen = tuple(expectation for expectation in suite.expectations if not set(request.tags).isdisjoint(expectation.tags))
    if not chosen:
        known = sorted({tag for expectation in suite.expectations for tag in expectation.tags})
        raise InvalidArgument(f"No question has the tag {' or '.join(request.tags)}", hint=f"Tags: {', '.join(known) or 'none'}.")
    return suite, replace(suite, expectations=chosen)


def _narrowed(baseline: Baseline, whole: Suite, suite: Suite) -> Baseline:
    """Leave out the questions that this run was told to leave out."""
    left_out = {expectation.key for expectation in whole.expectations} - {expectation.key for expectation in suite.expectations}
    return replace(baseline, answers={key: answer for key, answer in baseline.answers.items() if key not in left_out})

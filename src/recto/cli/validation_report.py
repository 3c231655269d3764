"""A run of a suite as text: tables that fit into 80 columns, then what needs a person's eyes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from recto.cli.render import in_line
from recto.evaluation.comparison import Comparison
from recto.evaluation.gate import Check
from recto.evaluation.run import Answer, Run
from recto.evaluation.statistics import Estimate

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
    parts += [_answers("Every question:", run.answers) if verbose else _answers("Furthest from what is expected:", run.worst(_MOST))]
    parts += [_missing(run), _gate(gate)]
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


def _head(run: Run) -> Iterator[str]:
    yield from textwrap.wrap(f"Suite '{in_line(run.suite)}' on collection '{run.collection}'", _WIDTH)
    share = "none judged" if run.share is None else f"{run.passed} of {len(run.judged)} passed ({run.share:.1%})"
    unjudged = len(run.answers) - len(run.judged)
    asked = len(run.answers)
    yield (
        f"{asked} question{'' if asked == 1 else 's'} asked, {share}"
        + (f", {unjudged} not judged" if unjudged else "")
        + f", {run.seconds:.2f}s"
    )


def _scores(run: Run) -> list[str]:
    rows = [f"{name:<18}{score.mean:>7.3f}   [{score.low:.3f}, {score.high:.3f}]{score.count:>12}" for name, score in run.scores().items()]
    return [f"{'Measure':<18}{'Mean':>7}   {'95 % interval':<14}{'Questions':>12}", *rows] if rows else []


def _deltas(comparison: Comparison) -> Iterator[str]:
    yield f"Compared with '{in_line(comparison.against)}' on {comparison.compared} questions:"
    yield f"{'Measure':<18}{'Before':>7}{'Now':>8}{'Change':>9}   {'95 % interval':<18}{'p':>6}"
    for delta in comparison.deltas:
        change = delta.delta
        mark = "  LOST" if delta.lost else ""
        interval = f"[{change.low:+.3f}, {change.high:+.3f}]"
        yield f"{delta.measure:<18}{delta.before:>7.3f}{delta.now:>8.3f}{change.mean:>+9.3f}   {interval:<18}{delta.chance:>6.3f}{mark}"
    if not comparison.same_suite:
        yield "The suite is not the one of the baseline."
    for keys, words in (
        (comparison.only_before, "only before"),
        (comparison.only_now, "only now"),
        (comparison.expected_otherwise, "with another expectation than before"),
    ):
        if keys:
            yield from _wrapped(f"{len(keys)} {words}, not compared: {'; '.join(keys[:3])}{' ...' if len(keys) > 3 else ''}", "")


def _changes(comparison: Comparison, *, verbose: bool) -> Iterator[str]:
    shown = comparison.changes if verbose else comparison.changes[:_MOST]
    if shown:
        yield f"Results that changed ({len(comparison.changes)} questions):"
    for change in shown:
        moved = "" if change.rank_before == change.rank_now else f" (rank {change.rank_before or 'none'} -> {change.rank_now or 'none'})"
        yield from _wrapped(f'"{change.query}"{moved}', "  ")
        for sign, places in (("+", change.entered), ("-", change.left)):
            yield from (f"    {sign} {_cut(place, _WIDTH - 6)}" for place in places)


def _groups(title: str, groups: dict[str, dict[str, Estimate]]) -> list[str]:
    names = [name for scores in groups.values() for name in scores]
    columns = [name for name in dict.fromkeys(names) if name != "ModuleAccuracy" or title == "Module"][:6]
    if not columns:
        return []
    rows = [f"{_cut(name, 17):<18}" + "".join(_cell(scores.get(column)) for column in columns) for name, scores in groups.items()]
    return [f"{title:<18}" + "".join(f"{_cut(column.removeprefix(title), 9):>10}" for column in columns), *rows]


def _cell(score: Estimate | None) -> str:
    return f"{'-':>10}" if score is None else f"{score.mean:>10.3f}"


def _ranks(run: Run) -> list[str]:
    counts = {rank: count for rank, count in run.ranks().items() if count}
    line = ", ".join(
        f"{count} {'not in ' + str(run.depth) if rank == 'none' else 'at rank ' + str(rank)}" for rank, count in counts.items()
    )
    return _wrapped(f"Questions by the rank of their first expected place: {line}", "") if counts else []


def _answers(title: str, answers: Iterable[Answer]) -> Iterator[str]:
    for number, answer in enumerate(answers):
        if number == 0:
            yield title
        mark = {"passed": "PASS", "failed": "FAIL", "not judged": "????"}[answer.outcome]
        yield from _wrapped(f'[{mark}] "{answer.query}"', "")
        wanted = " or ".join(answer.targets) or answer.expected
        yield from _wrapped(f"expected: {wanted}" + ("" if answer.nothing else f" | rank: {answer.rank or 'none'}"), "       ")
        if answer.found and answer.rank != 1:
            yield f"       found: {answer.found[0].score:.3f} {_cut(answer.found[0].place, _WIDTH - 20)}"


def _missing(run: Run) -> Iterator[str]:
    for missing in run.unmeasured:
        yield from _wrapped(f'UNMEASURED "{missing.query}": {missing}', "")
    for missing in run.partial:
        yield from _wrapped(f'[WARNING] "{missing.query}": {missing}', "")


def _gate(gate: Sequence[Check]) -> Iterator[str]:
    for check in gate:
        yield from _wrapped(f"[{'PASS' if check.holds else 'FAIL'}] {check.name}: {check.reason}", "")


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(in_line(line), _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False)


def _cut(line: str, width: int) -> str:
    """Shorten a line, keeping its end: addresses differ there."""
    flat = in_line(line)
    return flat if len(flat) <= width else f"...{flat[3 - width :]}"

"""`recto tune`: recommend an index, a mode and a hybrid weight for a suite, or to keep what there is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recto._util.text import plural
from recto.cli import options
from recto.cli.output import echo_json, echo_text, one_line, table
from recto.cli.runner import Exit, connect_all
from recto.errors import InvalidArgument

if TYPE_CHECKING:
    from recto.evaluation.tune import Tuning

_EPILOG = """\b
Examples:
  recto tune --suite questions.json
  recto tune --suite questions.json --mode hybrid --weight 0.15,0.25,0.4
  recto tune --suite questions.json --index my-book-320
  recto tune --suite questions.json --index my-book-bge,RECTO_MODEL=BAAI/bge-base-en-v1.5
"""
_MAX_WEIGHTS = 50


@click.command(epilog=_EPILOG)
@options.file_option("--suite", "Use these questions.", required=True)
@options.collection
@options.modes("Compare only these modes: dense, lexical, hybrid.")
@options.repeated("--weight", "weights", "NUMBERS", "Compare these weights of the lexical score, 0 to 1.")
@options.indexes("Also compare this collection, opened with these settings.")
@options.value_option("--measure", "NAME", "Decide by this measure.", "nDCG@10")
@options.as_json
def tune(
    suite: Path,
    collection: str | None,
    modes: tuple[str, ...],
    weights: tuple[str, ...],
    indexes: tuple[str, ...],
    measure: str | None,
    as_json: bool,
) -> Exit:
    """Recommend how to search a book, or to keep what you have.

    It compares modes, weights of hybrid search, and indexes with other chunk sizes or models, on a suite of
    questions. It recommends a change only if the gain is significant.
    """
    from recto.evaluation.measures import parse_measure
    from recto.evaluation.suites import load_strict_suite
    from recto.evaluation.tune import DEFAULT_MEASURE, DEFAULT_WEIGHTS, advice, verdict
    from recto.evaluation.tune import tune as compare

    chosen_modes, chosen_weights = options.parse_modes(modes), _weights(weights) or DEFAULT_WEIGHTS
    chosen_measure = parse_measure(measure) if measure else DEFAULT_MEASURE
    if (chosen_measure.cutoff or 1) > 100 or chosen_measure.kind == "Judged":
        raise InvalidArgument(f"{chosen_measure} cannot be used", hint="Choose a measure such as nDCG@10.")
    parsed = [options.parse_index(index) for index in indexes]
    questions = load_strict_suite(suite)
    with connect_all(collection, parsed) as retrievers:
        result = compare(retrievers, questions, chosen_modes, chosen_weights, chosen_measure)
    changed = dict(parsed).get(result.recommended.collection, {}) if result.recommended else {}
    steps = advice(result) + [f"Set {name}={value}, too." for name, value in changed.items()]
    if as_json:
        echo_json(result.to_dict() | {"verdict": verdict(result), "apply": steps})
    else:
        echo_text("\n\n".join(_report(result, verdict(result), steps)))
    return Exit.OK


def _weights(groups: tuple[str, ...]) -> tuple[float, ...]:
    numbers = []
    for text in options.split_names(groups):
        try:
            weight = float(text)
        except ValueError:
            weight = math.nan
        if not 0 <= weight <= 1:
            hint = "Such as --weight 0.15,0.25,0.4."
            raise InvalidArgument(f"--weight {text!r} is not a number from 0 to 1", hint=hint)
        numbers.append(weight)
    if len(numbers) > _MAX_WEIGHTS:
        hint = "Each further weight makes it harder to show that one is better."
        raise InvalidArgument(f"--weight has more than {_MAX_WEIGHTS} numbers", hint=hint)
    return tuple(dict.fromkeys(numbers))


def _report(result: Tuning, verdict: str, steps: list[str]) -> list[str]:
    left_out = f"; {result.left_out} left out" if result.left_out else ""
    head = f"Suite '{one_line(result.suite)}': {plural(result.questions, 'question')} compared{left_out}"
    if result.left_out:
        head += "\nQuestions without a target in every index cannot be compared."
    gain = result.expected_gain
    expected = [verdict]
    if gain.low < gain.high:  # otherwise the cross-validation always chooses the current configuration
        interval = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
        expected.append(f"Expected gain: {interval} {result.measure} (nested cross-validation)")
    if result.detectable:
        expected.append(f"This suite finds a gain of {result.detectable:.3f} with a probability of 80 %.")
    return [head, "\n".join(_table(result)), "\n".join([*expected, *steps])]


def _table(result: Tuning) -> list[str]:
    several = len({score.configuration.collection for score in result.scores}) > 1
    titles = ("Configuration", f">{result.measure}", ">Change", "90 % interval", ">p", "")
    rows = []
    for score in result.scores:
        configuration, mean = score.configuration, f"{score.mean:.3f}"
        name = one_line(str(configuration) if several else configuration.label)
        if score.change is None or score.p_value is None:
            rows.append((name, mean, "", "(current)", "", ""))
            continue
        interval = f"[{score.change.low:+.3f}, {score.change.high:+.3f}]"
        mark = "BETTER" if configuration == result.recommended else ""
        rows.append((name, mean, f"{score.change.mean:+.3f}", interval, f"{score.p_value:.3f}", mark))
    return [*table(titles, rows), "p is corrected for the number of configurations."]

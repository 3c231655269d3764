"""Write a run as JUnit XML: a test case for each question, and one for each condition of the gate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import quoteattr

from recto.evaluation.gate import Check
from recto.evaluation.runs import QueryResult, Run

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(run: Run, gate: Sequence[Check]) -> str:
    """Return the XML document."""
    gone = {missing.key: missing for missing in run.unmeasured}
    failed = sum(answer.passed is False for answer in run.answers)
    skipped = sum(answer.passed is None for answer in run.answers)
    broken = sum(not check.holds for check in gate)
    cases = len(run.answers) + len(gone)
    questions = [line for answer in run.answers for line in _case(run, answer)]
    for missing in gone.values():
        questions.append(f"  <testcase classname={_quoted(run.suite)} name={_quoted(missing.query)}>")
        questions += [
            f"   <error type={_quoted('UNMEASURED')} message={_quoted(str(missing))}/>",
            "  </testcase>",
        ]
    conditions = [line for check in gate for line in _condition(run, check)]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites {_counts(cases + len(gate), failed + broken, len(gone), skipped)}>",
        f" <testsuite name={_quoted(run.suite)} {_counts(cases, failed, len(gone), skipped)}"
        f' time="{run.seconds:.3f}">',
        *questions,
        " </testsuite>",
        f" <testsuite name={_quoted(f'{run.suite}: gate')} {_counts(len(gate), broken, 0, 0)}>",
        *conditions,
        " </testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _case(run: Run, answer: QueryResult) -> Iterator[str]:
    head = (
        f'  <testcase classname={_quoted(run.suite)} name={_quoted(answer.key)} time="{answer.ms / 1000:.4f}"'
    )
    if answer.passed:
        yield f"{head}/>"
        return
    yield f"{head}>"
    found = f"{answer.found[0].score:.3f} {answer.found[0].link}" if answer.found else "nothing"
    if answer.passed is None:
        yield f"   <skipped message={_quoted('the noise floor of the index is not measured')}/>"
    else:
        wanted = " or ".join(answer.targets) or answer.expected
        reason = f"expected {wanted} (rank {answer.rank or 'none'}), found {found}"
        yield f"   <failure message={_quoted(reason)}/>"
    yield "  </testcase>"


def _condition(run: Run, check: Check) -> Iterator[str]:
    head = f"  <testcase classname={_quoted(f'{run.suite}: gate')} name={_quoted(check.name)}"
    if check.holds:
        yield f"{head}/>"
    else:
        yield f"{head}>"
        yield f"   <failure message={_quoted(check.reason)}/>"
        yield "  </testcase>"


def _counts(tests: int, failures: int, errors: int, skipped: int) -> str:
    return f'tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}"'


def _quoted(text: str) -> str:
    """Quote an attribute's value, without characters that XML cannot contain."""
    return quoteattr(_NOT_XML.sub("", text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})

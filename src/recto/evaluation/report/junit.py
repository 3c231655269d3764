"""A run of a suite as JUnit XML: a test case for each question, and one for each condition of the gate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import quoteattr

from recto.evaluation.gate import Check
from recto.evaluation.runs import Answer, Run

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(run: Run, gate: Sequence[Check]) -> str:
    """Return the document."""
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
        f'<testsuites tests="{cases + len(gate)}" failures="{failed + broken}" errors="{len(gone)}" skipped="{skipped}">',
        f' <testsuite name={_quoted(run.suite)} tests="{cases}" failures="{failed}" errors="{len(gone)}" skipped="{skipped}"'
        f' time="{run.seconds:.3f}">',
        *questions,
        " </testsuite>",
        f' <testsuite name={_quoted(f"{run.suite}: gate")} tests="{len(gate)}" failures="{broken}" errors="0" skipped="0">',
        *conditions,
        " </testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _case(run: Run, answer: Answer) -> Iterator[str]:
    head = (
        f'  <testcase classname={_quoted(run.suite)} name={_quoted(answer.key)} time="{answer.ms / 1000:.4f}"'
    )
    if answer.passed:
        yield f"{head}/>"
        return
    yield f"{head}>"
    found = f"{answer.found[0].score:.3f} {answer.found[0].place}" if answer.found else "nothing"
    if answer.passed is None:
        yield f"   <skipped message={_quoted('the noise level of the index is not known')}/>"
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


def _quoted(text: str) -> str:
    """Return an attribute's value; what XML cannot hold at all is left out."""
    return quoteattr(_NOT_XML.sub("", text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})

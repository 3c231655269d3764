"""`recto doctor`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from recto._util.text import plural
from recto.cli import options
from recto.cli.runner import EXIT_CODES, Exit, confirm_endpoint, echo, echo_json
from recto.errors import ErrorKind, RectoError
from recto.settings import check_collection_name, load_settings, working_directory

if TYPE_CHECKING:
    from recto.evaluation.doctor.environment import Finding

_EXITS = EXIT_CODES | {ErrorKind.ARGUMENT: Exit.CONFIGURATION, ErrorKind.DAMAGED: Exit.VALIDATION_FAILED}
_WARNINGS = Exit.NO_RESULTS
_MARKS = {"ok": "[ok]     ", "note": "[note]   ", "warning": "[WARNING]", "error": "[ERROR]  "}
_INDENT = " " * 12


@click.command()
@options.collection
@click.option("--all", "everything", is_flag=True, help="Check every chunk of a large index, not a sample.")
@options.as_json
def doctor(collection: str | None, everything: bool, as_json: bool) -> Exit:
    """Check settings, services, index and text, and print the command that repairs each problem.

    Exits with 1 if there are warnings, 2 for a configuration error, 3 if a service or the disk cannot be
    used, and 5 if the index is damaged.
    """
    if collection is not None:
        check_collection_name(collection, "--collection")
    from recto.evaluation.doctor import examine

    try:
        settings = load_settings()
    except RectoError:
        pass  # the checks report it
    else:
        confirm_endpoint(settings)

    progress = _progress if sys.stderr.isatty() and not as_json else None
    findings: list[Finding] = []
    directory = working_directory()
    for finding in examine(os.environ, directory, collection, everything=everything, progress=progress):
        findings.append(finding)
        if not as_json:
            echo(*_lines(finding))
    code = exit_code(findings)
    if as_json:
        rows = [
            {name: value for name, value in asdict(finding).items() if name != "kind"} for finding in findings
        ]
        echo_json({"healthy": code is Exit.OK, "findings": rows})
    else:
        errors, warnings = (
            sum(finding.severity == severity for finding in findings) for severity in ("error", "warning")
        )
        counts = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}."
        echo("", "No problems found." if code is Exit.OK else counts)
    return code


def exit_code(findings: list[Finding]) -> Exit:
    """Return the exit code of the most basic error, which may cause the others; 1 for warnings alone."""
    errors = [_EXITS[finding.kind] for finding in findings if finding.kind is not None]
    if errors:
        return min(errors)
    return _WARNINGS if any(finding.severity == "warning" for finding in findings) else Exit.OK


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{_MARKS[finding.severity]} {finding.check}: {finding.message}"
    if finding.severity != "ok":
        yield from (f"{_INDENT}{line}" for line in finding.evidence)
    if finding.repair:
        yield f"{_INDENT}Repair: {finding.repair}"


def _progress(name: str) -> None:
    sys.stderr.write(f"\r\033[K{name} ...\r")
    sys.stderr.flush()

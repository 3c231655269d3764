"""`recto doctor`: what is wrong and what repairs it, for people and for scripts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from recto.cli.runner import EXIT_CODES, Exit
from recto.errors import ErrorKind
from recto.settings import check_collection_name, working_directory

if TYPE_CHECKING:
    from recto.evaluation.doctor.findings import Finding

_EXITS = EXIT_CODES | {ErrorKind.ARGUMENT: Exit.CONFIGURATION, ErrorKind.DAMAGED: Exit.VALIDATION_FAILED}
_WARNINGS = Exit.NO_RESULTS
_MARKS = {"ok": "[ok]     ", "note": "[note]   ", "warning": "[WARNING]", "error": "[ERROR]  "}


def doctor(collection: str | None, *, everything: bool, as_json: bool) -> Exit:
    """Examine the set-up and print what was found as it is found."""
    if collection is not None:
        check_collection_name(collection, "--collection")
    from recto.evaluation.doctor import examine

    progress = _progress if sys.stderr.isatty() and not as_json else None
    found: list[Finding] = []
    for finding in examine(
        os.environ, working_directory(), collection, everything=everything, progress=progress
    ):
        found.append(finding)
        if not as_json:
            click.echo("\n".join(_lines(finding)))
    code = exit_code(found)
    if as_json:
        rows = [
            {name: value for name, value in asdict(finding).items() if name != "kind"} for finding in found
        ]
        click.echo(json.dumps({"healthy": code is Exit.OK, "findings": rows}, indent=2, ensure_ascii=False))
    else:
        counts = {
            severity: sum(finding.severity == severity for finding in found)
            for severity in ("error", "warning")
        }
        click.echo()
        click.echo(
            "All is well." if code is Exit.OK else f"{counts['error']} errors, {counts['warning']} warnings."
        )
    return code


def exit_code(found: list[Finding]) -> Exit:
    """Return how a command ends by the worst finding; of several errors the most basic one counts, as it may cause the others."""
    errors = [_EXITS[finding.kind] for finding in found if finding.kind is not None]
    if errors:
        return min(errors)
    return _WARNINGS if any(finding.severity == "warning" for finding in found) else Exit.OK


def _lines(finding: Finding) -> Iterator[str]:
    from recto.cli.output import in_line

    yield f"{_MARKS[finding.severity]} {in_line(f'{finding.check}: {finding.message}')}"
    if finding.severity != "ok":
        yield from (f"            {in_line(line)}" for line in finding.evidence)
    if finding.repair:
        yield f"            Repair: {in_line(finding.repair)}"


def _progress(name: str) -> None:
    click.echo(f"\r\033[K{name} ...\r", nl=False, err=True)

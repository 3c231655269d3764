"""Diagnose everything that a search depends on.

The checks are independent: one that fails does not stop the others. Keys never appear in a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from recto._util.files import disk_error
from recto._util.retry import redacted
from recto.errors import ErrorKind, RectoError
from recto.evaluation.doctor import collection as indexed
from recto.evaluation.doctor import environment as setup
from recto.evaluation.doctor.findings import DoctorContext, Finding, error, from_error
from recto.settings import read_variables

CheckFunction = Callable[[DoctorContext], Iterable[Finding]]

CHECKS: Mapping[str, CheckFunction] = {
    "settings": setup.settings_files,
    "configuration": setup.configuration,
    "home": setup.home,
    "packages": setup.packages,
    "model": setup.model,
    "cohere": setup.cohere,
    "engine": setup.engine,
    "leftovers": setup.leftovers,
    "collection": indexed.collection,
    "fingerprint": indexed.fingerprint,
    "payload indexes": indexed.payload_indexes,
    "cluster": indexed.cluster,
    "dialect": indexed.dialect,
    "calibration": indexed.calibration,
    "search": indexed.search,
    "source": indexed.source,
    "includes": indexed.includes,
    "content": indexed.content,
    "not checked": indexed.skipped,
}
_SECRETS = ("COHERE_API_KEY", "OPENAI_API_KEY", "QDRANT_API_KEY", "RECTO_OPENAI_API_KEY")


def examine(
    environment: Mapping[str, str],
    directory: Path | None,
    collection: str | None = None,
    *,
    everything: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Finding]:
    """Yield the findings of all checks in order."""
    context = DoctorContext(environment, directory, collection or "", everything)
    secrets = _secrets(environment, directory)
    try:
        for name, check in CHECKS.items():
            if progress:
                progress(name)
            for finding in _run(name, check, context):
                yield replace(
                    finding,
                    check=name,
                    message=redacted(finding.message, *secrets),
                    evidence=tuple(redacted(line, *secrets) for line in finding.evidence),
                    repair=redacted(finding.repair, *secrets),
                )
    finally:
        for part in (context.embedder, context.store):
            if part is not None:
                part.close()


def _run(name: str, check: CheckFunction, context: DoctorContext) -> list[Finding]:
    """Run a check; an exception becomes a finding."""
    findings: list[Finding] = []
    try:
        findings.extend(check(context))
    except RectoError as failure:
        findings.append(from_error(failure))
    except OSError as failure:
        findings.append(from_error(disk_error(failure, Path(failure.filename or name))))
    except MemoryError:
        raise
    except Exception as failure:  # noqa: BLE001 - the other checks still help
        message = f"The check itself failed: {type(failure).__name__}: {failure}"
        repair = "This is a bug in Recto. Please report it with the output of `recto doctor --json`."
        findings.append(error("failed", message, repair=repair, kind=ErrorKind.DAMAGED))
    return findings


def _secrets(environment: Mapping[str, str], directory: Path | None) -> tuple[str, ...]:
    values = [environment.get(name, "").strip() for name in _SECRETS]
    with suppress(RectoError):
        for source in read_variables(environment, directory).sources:
            values += [source.values.get(name, "") for name in _SECRETS]
    return tuple(filter(None, values))

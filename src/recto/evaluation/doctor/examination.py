"""Run all checks independently: a check that fails does not stop the others, and keys are redacted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from recto._util.retry import redacted
from recto.errors import ErrorKind, RectoError
from recto.evaluation.doctor import collection as indexed
from recto.evaluation.doctor import environment as setup
from recto.evaluation.doctor.findings import DoctorContext, Finding, error, from_error, note
from recto.settings import read_dotenv

CheckFunction = Callable[[DoctorContext], Iterable[Finding]]

CHECKS: Mapping[str, CheckFunction] = {
    "configuration": setup.configuration,
    "home": setup.home,
    "packages": setup.packages,
    "model": setup.model,
    "cohere": setup.cohere,
    "engine": setup.engine,
    "leftovers": setup.leftovers,
    "collection": indexed.collection,
    "fingerprint": indexed.fingerprint,
    "payload indexes": indexed.fields,
    "calibration": indexed.calibration,
    "search": indexed.search,
    "source": indexed.source,
    "includes": indexed.includes,
    "content": indexed.content,
}
_SECRETS = ("COHERE_API_KEY", "QDRANT_API_KEY")


def examine(
    environment: Mapping[str, str],
    directory: Path | None,
    collection: str | None = None,
    *,
    everything: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Finding]:
    """Yield the findings of all checks in order."""
    context = DoctorContext(environment, directory, collection, everything)
    secrets = _secrets(environment, directory)
    try:
        for name, check in CHECKS.items():
            if progress:
                progress(name)
            for finding in _isolated(name, check, context):
                yield _redacted(secrets, finding)
        skipped = _skipped(context)
        if skipped:
            yield note("not checked", "skipped", skipped)
    finally:
        for part in (context.embedder, context.store):
            if part is not None:
                part.close()


def _isolated(name: str, check: CheckFunction, context: DoctorContext) -> list[Finding]:
    """Run a check; an exception becomes a finding."""
    found: list[Finding] = []
    try:
        found.extend(check(context))
    except RectoError as failure:
        found.append(from_error(name, failure))
    except OSError as failure:
        message = f"{failure.filename or name}: {failure.strerror or failure}"
        repair = "Check the permissions and the space there, or set RECTO_HOME to a directory of your own."
        found.append(error(name, "storage", message, repair=repair, kind=ErrorKind.STORAGE))
    except Exception as failure:  # noqa: BLE001 - the other checks still help
        message = f"The check itself failed: {type(failure).__name__}: {failure}"
        found.append(
            error(name, "failed", message, repair=context.index_command(rebuild=True), kind=ErrorKind.DAMAGED)
        )
    return found


def _skipped(context: DoctorContext) -> str:
    """Say what could not be checked, and why."""
    if context.settings is None:
        return "Everything that depends on the settings: they cannot be loaded"
    if context.store is None:
        return "The collection and its content: the engine cannot be used"
    if context.index is None:
        return "The content: there is no index to look into"
    if context.embedder is None:
        return "Vectors and searches: there is no embedder"
    return ""


def _secrets(environment: Mapping[str, str], directory: Path | None) -> tuple[str, ...]:
    values = [environment.get(name, "").strip() for name in _SECRETS]
    with suppress(RectoError):
        written = read_dotenv(directory)
        values += [written.get(name, "").strip() for name in _SECRETS]
    return tuple(value for value in values if value)


def _redacted(secrets: tuple[str, ...], finding: Finding) -> Finding:
    return replace(
        finding,
        message=redacted(finding.message, *secrets),
        evidence=tuple(redacted(line, *secrets) for line in finding.evidence),
        repair=redacted(finding.repair, *secrets),
    )

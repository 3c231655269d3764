"""Check of what is in an index: each kind of damage is told apart, with its places and its repair."""

from __future__ import annotations

from collections.abc import Iterator

from recto.doctor.findings import Finding, Severity, note, ok
from recto.doctor.patient import Patient
from recto.errors import ErrorKind
from recto.evaluation.integrity import Integrity, examine
from recto.evaluation.issues import Issue, Trouble
from recto.previous import PageState

_SAYS = {
    Trouble.NO_TEXT: "{count} passages have no text",
    Trouble.NO_URL: "{count} passages have no page address",
    Trouble.BAD_URL: "{count} passages have an address that is none",
    Trouble.NO_TITLE: "{count} passages have no page title",
    Trouble.NO_MODULE: "{count} passages have no module, so no module filter finds them",
    Trouble.BAD_NUMBER: "{count} passages have a number that their page cannot have",
    Trouble.MISSING: "{count} passages of pages are missing",
    Trouble.REPEATED: "{count} passages have the number of another one of their page",
    Trouble.SHUFFLED: "{count} passages are out of the order of their lines",
    Trouble.WRONG_ID: "{count} passages stand under the id of another one",
    Trouble.OTHER_TEXT: "{count} passages have another text than the one that was embedded",
    Trouble.NOT_AS_PUBLISHED: "The index does not hold what was published",
    Trouble.BAD_VECTOR: "{count} vectors are zero, not finite or not of length one",
    Trouble.OTHER_VECTOR: "{count} vectors do not belong to their texts; they look like noise or like those of other passages",
    Trouble.OTHER_MODEL: "The vectors were made by another model than the one that questions are embedded with",
    Trouble.NOT_IN_SOURCE: "{count} passages are not on their page in the book",
    Trouble.OTHER_LINES: "{count} passages stand at other lines in the book",
}
_HARMLESS_ELSEWHERE = frozenset(_SAYS) - {Trouble.OTHER_MODEL, Trouble.BAD_VECTOR, Trouble.NO_TEXT}


def content(patient: Patient) -> Iterator[Finding]:
    """Compare every passage with what it must be, and the vectors that tell most with fresh ones."""
    if patient.index is None or not patient.index.info.chunks:
        return
    changed = frozenset(page.path for page in patient.plan.pages if page.state is PageState.CHANGED) if patient.plan else frozenset()
    found = examine(patient.index, patient.embedder, patient.source, changed=changed, everything=patient.everything)
    own = patient.index.info.fingerprint is not None
    yield from (_finding(patient, issue, own=own) for issue in found.issues)
    if not found.complete:
        message = f"{found.checked} of {found.chunks} passages were checked"
        yield note("content", "part", message, repair=f"recto doctor --all --collection {patient.collection}")
    if not found.issues:
        yield ok("content", f"{found.checked} passages are what they should be", *_evidence(found))
    if not own and found.agreement is not None and not any(issue.trouble is Trouble.OTHER_MODEL for issue in found.issues):
        message = f"Stored vectors agree with fresh ones of the same texts (cosine {found.agreement:.3f}), so it is this model"
        yield note("content", "same_model", message)


def _finding(patient: Patient, issue: Issue, *, own: bool) -> Finding:
    message = _SAYS[issue.trouble].format(count=issue.count)
    evidence = list(issue.places)
    if issue.trouble is Trouble.NOT_AS_PUBLISHED:
        evidence = [f"not in the index: {page.path}" for page in patient.plan.pages if page.state is PageState.NEW] if patient.plan else []
        message += ": pages are missing" if evidence else ": passages were added, removed or exchanged"
    if own:
        repair, severity = patient.index_command(rebuild=True), Severity.ERROR
    else:
        severity = Severity.WARNING if issue.trouble in _HARMLESS_ELSEWHERE else Severity.ERROR
        repair = "Set RECTO_MODEL to the model of the pipeline that made the collection, or index the book with `recto index PATH`"
        if issue.trouble is not Trouble.OTHER_MODEL:
            repair = "Repair it with the pipeline that made the collection, or index the book with `recto index PATH`"
    kind = ErrorKind.DAMAGED if own or issue.trouble is not Trouble.OTHER_MODEL else ErrorKind.CONFIGURATION
    return Finding("content", issue.trouble.value, severity, message, tuple(evidence), repair, kind if severity is Severity.ERROR else None)


def _evidence(found: Integrity) -> Iterator[str]:
    if found.embedded:
        yield f"{found.embedded} texts were embedded again: cosine {found.agreement:.4f} with what is stored"
    if found.sourced:
        yield f"{found.sourced} texts are in the book at the lines that the index says"

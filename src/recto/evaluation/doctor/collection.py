"""Checks of a collection as a whole: that it is there, made by the right model, ready to be filtered, measured, and up to date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter

from recto.errors import CollectionMissing, ErrorKind
from recto.evaluation.doctor.findings import DoctorContext, Finding, Severity, error, note, ok, warning
from recto.evaluation.integrity import Integrity, Issue, IssueKind, examine
from recto.indexing.planner import PageState
from recto.settings import DEFAULT_COLLECTIONS, SAMPLE_COLLECTION

_SAYS = {
    IssueKind.NO_TEXT: "{count} passages have no text",
    IssueKind.NO_URL: "{count} passages have no page address",
    IssueKind.BAD_URL: "{count} passages have an address that is none",
    IssueKind.NO_TITLE: "{count} passages have no page title",
    IssueKind.NO_MODULE: "{count} passages have no module, so no module filter finds them",
    IssueKind.BAD_NUMBER: "{count} passages have a number that their page cannot have",
    IssueKind.MISSING: "{count} passages of pages are missing",
    IssueKind.REPEATED: "{count} passages have the number of another one of their page",
    IssueKind.SHUFFLED: "{count} passages are out of the order of their lines",
    IssueKind.WRONG_ID: "{count} passages stand under the id of another one",
    IssueKind.OTHER_TEXT: "{count} passages have another text than the one that was embedded",
    IssueKind.NOT_AS_PUBLISHED: "The index does not hold what was published",
    IssueKind.BAD_VECTOR: "{count} vectors are zero, not finite or not of length one",
    IssueKind.OTHER_VECTOR: "{count} vectors do not belong to their texts; they look like noise or like those of other passages",
    IssueKind.OTHER_MODEL: "The vectors were made by another model than the one that questions are embedded with",
    IssueKind.NOT_IN_SOURCE: "{count} passages are not on their page in the book",
    IssueKind.OTHER_LINES: "{count} passages stand at other lines in the book",
}
_HARMLESS_ELSEWHERE = frozenset(_SAYS) - {IssueKind.OTHER_MODEL, IssueKind.BAD_VECTOR, IssueKind.NO_TEXT}


def content(patient: DoctorContext) -> Iterator[Finding]:
    """Compare every passage with what it must be, and the vectors that tell most with fresh ones."""
    if patient.index is None or not patient.index.info.chunks:
        return
    changed = (
        frozenset(page.path for page in patient.plan.pages if page.state is PageState.CHANGED)
        if patient.plan
        else frozenset()
    )
    found = examine(
        patient.index, patient.embedder, patient.source, changed=changed, everything=patient.everything
    )
    own = patient.index.info.fingerprint is not None
    yield from (_finding(patient, issue, own=own) for issue in found.issues)
    if not found.complete:
        message = f"{found.checked} of {found.chunks} passages were checked"
        yield note("content", "part", message, repair=f"recto doctor --all --collection {patient.collection}")
    if not found.issues:
        yield ok("content", f"{found.checked} passages are what they should be", *_evidence(found))
    if (
        not own
        and found.agreement is not None
        and not any(issue.trouble is IssueKind.OTHER_MODEL for issue in found.issues)
    ):
        message = f"Stored vectors agree with fresh ones of the same texts (cosine {found.agreement:.3f}), so it is this model"
        yield note("content", "same_model", message)


def _finding(patient: DoctorContext, issue: Issue, *, own: bool) -> Finding:
    message = _SAYS[issue.trouble].format(count=issue.count)
    evidence = list(issue.places)
    if issue.trouble is IssueKind.NOT_AS_PUBLISHED:
        evidence = (
            [f"not in the index: {page.path}" for page in patient.plan.pages if page.state is PageState.NEW]
            if patient.plan
            else []
        )
        message += ": pages are missing" if evidence else ": passages were added, removed or exchanged"
    if own:
        repair, severity = patient.index_command(rebuild=True), Severity.ERROR
    else:
        severity = Severity.WARNING if issue.trouble in _HARMLESS_ELSEWHERE else Severity.ERROR
        repair = "Set RECTO_MODEL to the model of the pipeline that made the collection, or index the book with `recto index PATH`"
        if issue.trouble is not IssueKind.OTHER_MODEL:
            repair = "Repair it with the pipeline that made the collection, or index the book with `recto index PATH`"
    kind = ErrorKind.DAMAGED if own or issue.trouble is not IssueKind.OTHER_MODEL else ErrorKind.CONFIGURATION
    return Finding(
        "content",
        issue.trouble.value,
        severity,
        message,
        tuple(evidence),
        repair,
        kind if severity is Severity.ERROR else None,
    )


def _evidence(found: Integrity) -> Iterator[str]:
    if found.embedded:
        yield f"{found.embedded} texts were embedded again: cosine {found.agreement:.4f} with what is stored"
    if found.sourced:
        yield f"{found.sourced} texts are in the book at the lines that the index says"


_FEW_APART = 0.9


def collection(patient: DoctorContext) -> Iterator[Finding]:
    """Open the collection, and say which one a name leads to."""
    if patient.store is None or patient.settings is None:
        return
    try:
        index = patient.store.open(patient.collection)
    except CollectionMissing:
        unused = not set(patient.store.collections()) - {SAMPLE_COLLECTION}
        if patient.settings.store == "edge" and unused and patient.collection in DEFAULT_COLLECTIONS:
            yield note(
                "collection",
                "first_run",
                "Nothing is indexed yet; a first question indexes the sample book",
                repair="recto index PATH",
            )
            return
        raise
    patient.index = index
    info = index.info
    for told in info.warnings:
        if patient.settings.store == "edge":
            yield error(
                "collection",
                "damaged",
                told,
                repair=patient.index_command(rebuild=True),
                kind=ErrorKind.DAMAGED,
            )
        else:
            yield warning("collection", "degraded", told, repair=patient.index_command())
    counted = index.count()
    name = (
        patient.collection
        if patient.collection == info.collection
        else f"{patient.collection}' is '{info.collection}"
    )
    aliases = sorted(alias for alias, target in patient.store.aliases().items() if target == info.collection)
    evidence = [f"also called {', '.join(aliases)}"] if aliases else []
    evidence += [f"module '{module}': {count} passages" for module, count in index.modules().items()]
    yield ok("collection", f"'{name}', {info.generation}: {counted} passages", *evidence)


def fingerprint(patient: DoctorContext) -> Iterator[Finding]:
    """Compare the model that made the index with the one that questions are embedded with."""
    if patient.index is None:
        return
    made = patient.index.info.fingerprint
    if patient.embedder is not None:
        from recto.search.retriever import check_fingerprint

        check_fingerprint(patient.index, patient.embedder)
    if made is None:
        yield note(
            "fingerprint", "foreign", "Another pipeline made the collection; it does not say with which model"
        )
        return
    evidence = [
        f"{made.pages} pages of '{made.book}' from {made.source}",
        f"{made.chunker}, Recto {made.recto_version}, {made.created_at}",
    ]
    from recto.book.chunking import DEFAULT_SIZE

    if made.chunker.split()[0] != str(DEFAULT_SIZE).split()[0]:
        message = f"The index was made by an older way to divide pages ({made.chunker})"
        yield note("fingerprint", "old_chunker", message, *evidence, repair=patient.index_command())
    elif patient.embedder is None:
        yield note(
            "fingerprint",
            "not_compared",
            f"Made with {made.embedder}; there is no embedder to compare it with",
            *evidence,
        )
    elif made.embedder != patient.embedder.fingerprint:
        mine = patient.embedder.fingerprint.variant
        message = f"Made with {made.embedder}; queries use another precision ({mine}), which is compatible"
        yield note("fingerprint", "other_precision", message, *evidence)
    else:
        yield ok("fingerprint", f"Made with {made.embedder}, as questions are", *evidence)


def fields(patient: DoctorContext) -> Iterator[Finding]:
    """Check that a server can filter, and how the payloads are read."""
    if patient.index is None or patient.store is None:
        return
    from recto.stores.qdrant.index import ServerIndex
    from recto.stores.qdrant.store import ServerStore

    if not isinstance(patient.store, ServerStore) or not isinstance(patient.index, ServerIndex):
        return
    missing = patient.store.missing_fields(patient.collection)
    if missing:
        yield warning(
            "payload indexes",
            "missing",
            f"No payload index on {', '.join(missing)}: filters look at a part of the passages only",
            repair=f"recto prepare {patient.collection}",
        )
    else:
        yield ok("payload indexes", "Every field that filters use has a payload index")
    shape = patient.index.shape
    if shape.own:
        yield ok("dialect", "Recto's own payloads")
    elif not shape.dialect.text or not shape.dialect.page_url:
        lacking = " and ".join(name for name in ("text", "page_url") if not shape.dialect.path(name))
        yield error(
            "dialect",
            "unreadable",
            f"No payload field is known to hold {lacking}",
            shape.dialect.describe(),
            repair="Set RECTO_DIALECT to a file that maps the fields; see docs/how-to/cloud.md",
            kind=ErrorKind.CONFIGURATION,
        )
    else:
        yield ok("dialect", f"The payloads are read as '{shape.dialect.name}'", shape.dialect.describe())


def calibration(patient: DoctorContext) -> Iterator[Finding]:
    """Check that the level of noise is known."""
    if patient.index is None:
        return
    info = patient.index.info
    repair = f"recto calibrate --collection {patient.collection}"
    measured = info.calibration
    if measured is None:
        yield note("calibration", "missing", "It was not measured which scores are noise", repair=repair)
    elif measured.auroc < _FEW_APART:
        message = (
            f"Scores hardly tell the book's own questions from others (in {measured.auroc:.0%} of cases)"
        )
        yield warning(
            "calibration",
            "not_apart",
            message,
            f"noise below {measured.noise_floor}",
            repair=patient.index_command(rebuild=True),
        )
    else:
        yield ok(
            "calibration",
            f"Scores below {measured.noise_floor:.3f} are noise",
            f"separation {measured.auroc}",
        )


def includes(patient: DoctorContext) -> Iterator[Finding]:
    """Report included files whose text is missing from the index."""
    made = patient.index.info.fingerprint if patient.index else None
    if made is None or not made.unresolved_includes:
        return
    count = made.unresolved_includes
    message = f"{count} included file{'s' * (count != 1)} could not be resolved when the book was indexed, so the text is not searchable"
    told = [told for told in patient.plan.notes if "could not be resolved" in told] if patient.plan else []
    repair = f"Correct the paths, or put the files where the pages expect them, inside the repository; then {patient.index_command()}"
    yield warning("includes", "unresolved", message, *told, repair=repair)


def search(patient: DoctorContext) -> Iterator[Finding]:
    """Ask for one passage by its heading."""
    if patient.index is None or patient.embedder is None or not patient.index.info.chunks:
        return
    from recto.evaluation.calibration import heading_question

    sample = next(islice(patient.index.scroll(batch=1), 1))
    question = heading_question(sample) or "book"
    began = perf_counter()
    hits = patient.index.query(patient.embedder.embed_query(question), 5)
    took = (perf_counter() - began) * 1e3
    evidence = f'"{question}": ' + ", ".join(f"{hit.score:.3f} {hit.chunk.page_url}" for hit in hits[:3])
    if not hits:
        repair = patient.index_command(rebuild=True)
        yield error(
            "search",
            "no_hits",
            "A search without filters finds nothing",
            evidence,
            repair=repair,
            kind=ErrorKind.DAMAGED,
        )
    elif all(hit.chunk.page_url != sample.page_url for hit in hits):
        message = f"The page {sample.page_url} is not found by its own heading"
        yield note(
            "search",
            "own_heading",
            message,
            evidence,
            repair=f"recto coverage --collection {patient.collection}",
        )
    else:
        yield ok("search", f"A page is found by its own heading, in {took:.0f} ms", evidence)


def source(patient: DoctorContext) -> Iterator[Finding]:
    """Compare the index with the book as it is now; nothing is embedded."""
    index, store, settings, embedder = patient.index, patient.store, patient.settings, patient.embedder
    made = index.info.fingerprint if index else None
    if index is None or store is None or settings is None or embedder is None or made is None:
        return
    from recto.api import SourceOptions, open_source, sample_source
    from recto.indexing.indexer import IndexJob, plan_book

    if made.source.startswith(("http://", "https://")):
        yield note(
            "source",
            "website",
            f"The book is the website {made.source}; it is not read again here",
            repair=patient.index_command(),
        )
        return
    if index.info.collection == SAMPLE_COLLECTION:
        patient.source = sample_source()
    elif Path(made.source).exists():
        patient.source = open_source(made.source, SourceOptions(), None, patient.told.append)
    else:
        yield note(
            "source",
            "gone",
            f"The book is not at {made.source} any more, so the index cannot be compared with it",
        )
        return
    plan = patient.plan = plan_book(
        IndexJob(patient.source, embedder), store, index.info.collection, journal=settings.home / "journal"
    )
    states = Counter(page.state for page in plan.pages)
    changes = {
        state: states[state] for state in (PageState.NEW, PageState.CHANGED, PageState.GONE) if states[state]
    }
    if not changes:
        yield ok("source", f"{states.total()} pages, as they are in {made.source}")
        return
    listed = ", ".join(f"{count} {state}" for state, count in changes.items())
    places = [f"{page.state}: {page.path}" for page in plan.pages if page.state in changes]
    if not plan.texts and PageState.GONE not in changes:
        message = (
            f"All texts are indexed, but pages differ in other things, such as their addresses ({listed})"
        )
        yield note("source", "other_settings", message, *places[:5], repair=patient.index_command())
    else:
        message = f"The book has changed since it was indexed: {listed} pages, {plan.texts} passages to embed"
        yield warning("source", "changed", message, *places[:10], repair=patient.index_command())

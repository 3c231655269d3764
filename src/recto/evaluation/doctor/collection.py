"""Check a collection: its model, payload indexes, calibration, content, and whether the book has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter

from recto.errors import CollectionMissing, ErrorKind
from recto.evaluation.doctor.findings import DoctorContext, Finding, Severity, error, note, ok, warning
from recto.evaluation.integrity import Integrity, Issue, IssueKind, examine
from recto.indexing.indexer import is_first_run
from recto.indexing.planner import PageState
from recto.protocols import Preparable, Rollback, SchemaInfo
from recto.settings import SAMPLE_COLLECTION
from recto.types import PayloadSchema

_MESSAGES = {
    IssueKind.NO_TEXT: "{count} chunks have no text",
    IssueKind.NO_URL: "{count} chunks have no page URL",
    IssueKind.BAD_URL: "{count} chunks have an invalid URL",
    IssueKind.NO_TITLE: "{count} chunks have no page title",
    IssueKind.NO_MODULE: "{count} chunks have no module, so module filters never return them",
    IssueKind.BAD_NUMBER: "{count} chunks have an invalid index within their page",
    IssueKind.MISSING: "{count} chunks are missing from their pages",
    IssueKind.REPEATED: "{count} chunks have the same index as another chunk of their page",
    IssueKind.SHUFFLED: "{count} chunks are not in the order of their lines",
    IssueKind.WRONG_ID: "{count} chunks have the id of another chunk",
    IssueKind.OTHER_TEXT: "{count} chunks have a text that differs from the embedded one",
    IssueKind.NOT_AS_PUBLISHED: "The index does not match what was published",
    IssueKind.BAD_VECTOR: "{count} vectors are zero, not finite or not of length one",
    IssueKind.OTHER_VECTOR: "{count} vectors do not belong to their texts",
    IssueKind.OTHER_MODEL: "Another model made the vectors, not the one that embeds queries",
    IssueKind.NOT_IN_SOURCE: "{count} chunks are not on their page in the book",
    IssueKind.OTHER_LINES: "{count} chunks are at other lines in the book",
}
_HARMLESS_ELSEWHERE = frozenset(_MESSAGES) - {IssueKind.OTHER_MODEL, IssueKind.BAD_VECTOR, IssueKind.NO_TEXT}

_MIN_AUROC = 0.9


def content(context: DoctorContext) -> Iterator[Finding]:
    """Check the fields of every chunk, and compare a sample of vectors with freshly embedded ones."""
    if context.index is None or not context.index.info.chunks:
        return
    changed = (
        frozenset(page.path for page in context.plan.pages if page.state is PageState.CHANGED)
        if context.plan
        else frozenset()
    )
    found = examine(
        context.index, context.embedder, context.source, changed=changed, everything=context.everything
    )
    own = context.index.info.fingerprint is not None
    yield from (_finding(context, issue, own=own) for issue in found.issues)
    if not found.complete:
        message = f"{found.checked} of {found.chunks} chunks were checked"
        yield note("content", "part", message, repair=f"recto doctor --all --collection {context.collection}")
    if not found.issues:
        yield ok("content", f"{found.checked} chunks are intact", *_evidence(found))
    if (
        not own
        and found.agreement is not None
        and not any(issue.kind is IssueKind.OTHER_MODEL for issue in found.issues)
    ):
        message = f"Fresh vectors agree with stored ones (cosine {found.agreement:.3f}), so it is this model"
        yield note("content", "same_model", message)


def _finding(context: DoctorContext, issue: Issue, *, own: bool) -> Finding:
    message = _MESSAGES[issue.kind].format(count=issue.count)
    evidence = list(issue.places)
    if issue.kind is IssueKind.NOT_AS_PUBLISHED:
        evidence = (
            [f"not in the index: {page.path}" for page in context.plan.pages if page.state is PageState.NEW]
            if context.plan
            else []
        )
        message += ": pages are missing" if evidence else ": chunks were added, removed or replaced"
    if own:
        repair, severity = context.index_command(rebuild=True), Severity.ERROR
    else:
        severity = Severity.WARNING if issue.kind in _HARMLESS_ELSEWHERE else Severity.ERROR
        repair = "Set RECTO_MODEL to the model of the pipeline that made the collection"
        if issue.kind is not IssueKind.OTHER_MODEL:
            repair = "Repair it with the pipeline that made the collection"
        repair += ", or index the book with `recto index PATH`"
    kind = ErrorKind.DAMAGED if own or issue.kind is not IssueKind.OTHER_MODEL else ErrorKind.CONFIGURATION
    return Finding(
        "content",
        issue.kind.value,
        severity,
        message,
        tuple(evidence),
        repair,
        kind if severity is Severity.ERROR else None,
    )


def _evidence(found: Integrity) -> Iterator[str]:
    if found.embedded:
        yield f"{found.embedded} texts were embedded again: median cosine {found.agreement:.4f}"
    if found.sourced:
        yield f"{found.sourced} texts are in the book at the indexed lines"


def collection(context: DoctorContext) -> Iterator[Finding]:
    """Open the collection and count its chunks."""
    if context.store is None or context.settings is None:
        return
    try:
        index = context.store.open(context.collection)
    except CollectionMissing:
        if not is_first_run(context.collection, context.store):
            raise
        message = "Nothing is indexed yet; the first query indexes the sample book"
        yield note("collection", "first_run", message, repair="recto index PATH")
        return
    context.index = index
    info = index.info
    for message in info.warnings:
        if isinstance(context.store, Rollback):  # it opens an older generation if the current one is damaged
            yield error(
                "collection",
                "damaged",
                message,
                repair=context.index_command(rebuild=True),
                kind=ErrorKind.DAMAGED,
            )
        else:
            yield warning("collection", "degraded", message, repair=context.index_command())
    counted = index.count()
    name = (
        context.collection
        if context.collection == info.collection
        else f"{context.collection}' is '{info.collection}"
    )
    aliases = sorted(alias for alias, target in context.store.aliases().items() if target == info.collection)
    evidence = [f"aliases: {', '.join(aliases)}"] if aliases else []
    evidence += [f"module '{module}': {count} chunks" for module, count in index.modules().items()]
    yield ok("collection", f"'{name}', {info.generation}: {counted} chunks", *evidence)


def fingerprint(context: DoctorContext) -> Iterator[Finding]:
    """Compare the model that made the index with the one that embeds queries."""
    if context.index is None:
        return
    made = context.index.info.fingerprint
    if context.embedder is not None:
        from recto.search.retriever import check_fingerprint

        check_fingerprint(context.index, context.embedder)
    if made is None:
        yield note(
            "fingerprint", "foreign", "Another pipeline made the collection, so its model is not known"
        )
        return
    evidence = [
        f"{made.pages} pages of '{made.book}' from {made.source}",
        f"{made.chunker}, Recto {made.recto_version}, {made.created_at}",
    ]
    from recto.book.chunking import DEFAULT_SIZE

    if made.chunker.split()[0] != str(DEFAULT_SIZE).split()[0]:
        message = f"An older chunker made the index ({made.chunker})"
        yield note("fingerprint", "old_chunker", message, *evidence, repair=context.index_command())
    elif context.embedder is None:
        yield note(
            "fingerprint",
            "not_compared",
            f"Made with {made.embedder}; there is no embedder to compare it with",
            *evidence,
        )
    elif made.embedder != context.embedder.fingerprint:
        mine = context.embedder.fingerprint.variant
        message = f"Made with {made.embedder}; queries use another precision ({mine}), which is compatible"
        yield note("fingerprint", "other_precision", message, *evidence)
    else:
        yield ok("fingerprint", f"Made with {made.embedder}, like the queries", *evidence)


def fields(context: DoctorContext) -> Iterator[Finding]:
    """Check the payload indexes that filters use, and how payloads are read."""
    if context.index is None or context.store is None:
        return
    if isinstance(context.store, Preparable):
        yield from _payload_indexes(context, context.store.missing_fields(context.collection))
    if isinstance(context.index, SchemaInfo):
        yield _dialect(context.index.payload_schema)


def _payload_indexes(context: DoctorContext, missing: Sequence[str]) -> Iterator[Finding]:
    if missing:
        yield warning(
            "payload indexes",
            "missing",
            f"No payload index on {', '.join(missing)}: filters see only a part of the chunks",
            repair=f"recto prepare {context.collection}",
        )
    else:
        yield ok("payload indexes", "Every field that filters use has a payload index")


def _dialect(schema: PayloadSchema) -> Finding:
    if schema.own:
        return ok("dialect", "Recto's own payloads")
    if schema.missing:
        return error(
            "dialect",
            "unreadable",
            f"No payload field is known to hold {' and '.join(schema.missing)}",
            schema.description,
            repair="Set RECTO_DIALECT to a file that maps the fields; see docs/how-to/cloud.md",
            kind=ErrorKind.CONFIGURATION,
        )
    return ok("dialect", f"The payloads are read as '{schema.dialect}'", schema.description)


def calibration(context: DoctorContext) -> Iterator[Finding]:
    """Check that the noise floor is measured, and that scores separate the book from other topics."""
    if context.index is None:
        return
    info = context.index.info
    repair = f"recto calibrate --collection {context.collection}"
    measured = info.calibration
    if measured is None:
        yield note("calibration", "missing", "The noise floor is not measured", repair=repair)
    elif measured.auroc < _MIN_AUROC:
        message = f"Scores hardly separate queries about the book from others (AUROC {measured.auroc:.2f})"
        yield warning(
            "calibration",
            "not_apart",
            message,
            f"noise floor {measured.noise_floor}",
            repair=context.index_command(rebuild=True),
        )
    else:
        yield ok(
            "calibration",
            f"Scores below {measured.noise_floor:.3f} are noise",
            f"AUROC {measured.auroc}",
        )


def includes(context: DoctorContext) -> Iterator[Finding]:
    """Report included files whose text is missing from the index."""
    made = context.index.info.fingerprint if context.index else None
    if made is None or not made.unresolved_includes:
        return
    count = made.unresolved_includes
    message = (
        f"{count} included file{'s' * (count != 1)} could not be resolved, so their text is not in the index"
    )
    notes = [line for line in context.plan.notes if "could not be resolved" in line] if context.plan else []
    repair = f"Correct the paths of the included files, then run {context.index_command()}"
    yield warning("includes", "unresolved", message, *notes, repair=repair)


def search(context: DoctorContext) -> Iterator[Finding]:
    """Search for one chunk by its heading."""
    if context.index is None or context.embedder is None or not context.index.info.chunks:
        return
    from recto.evaluation.calibration import heading_question

    sample = next(islice(context.index.scroll(batch=1), 1))
    question = heading_question(sample) or "book"
    began = perf_counter()
    hits = context.index.query(context.embedder.embed_query(question), 5)
    took = (perf_counter() - began) * 1e3
    evidence = f'"{question}": ' + ", ".join(f"{hit.score:.3f} {hit.chunk.page_url}" for hit in hits[:3])
    if not hits:
        repair = context.index_command(rebuild=True)
        yield error(
            "search",
            "no_hits",
            "A search without filters returns nothing",
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
            repair=f"recto coverage --collection {context.collection}",
        )
    else:
        yield ok("search", f"A page is found by its own heading, in {took:.0f} ms", evidence)


def source(context: DoctorContext) -> Iterator[Finding]:
    """Compare the index with the current state of the book, without embedding anything."""
    index, store, settings, embedder = context.index, context.store, context.settings, context.embedder
    made = index.info.fingerprint if index else None
    if index is None or store is None or settings is None or embedder is None or made is None:
        return
    from recto.book.sources.location import (
        WEBSITE_SCHEMES,
        SourceOptions,
        open_source,
        sample_source,
        scheme_of,
    )
    from recto.indexing.indexer import IndexJob, plan_book

    if scheme := scheme_of(made.source):
        website = scheme in WEBSITE_SCHEMES
        message = f"The book is the website {made.source}; the doctor does not crawl it again"
        if not website:
            message = f"The book is at {made.source}; the doctor compares only books on disk"
        code = "website" if website else "not_on_disk"
        yield note("source", code, message, repair=context.index_command())
        return
    if index.info.collection == SAMPLE_COLLECTION:
        context.source = sample_source()
    elif Path(made.source).exists():
        context.source = open_source(made.source, SourceOptions(), None, context.messages.append)
    else:
        yield note(
            "source",
            "gone",
            f"{made.source} does not exist any more, so the index cannot be compared with the book",
        )
        return
    plan = context.plan = plan_book(
        IndexJob(context.source, embedder), store, index.info.collection, journal=settings.home / "journal"
    )
    states = Counter(page.state for page in plan.pages)
    changes = {
        state: states[state] for state in (PageState.NEW, PageState.CHANGED, PageState.GONE) if states[state]
    }
    if not changes:
        yield ok("source", f"{states.total()} pages, the same as in {made.source}")
        return
    listed = ", ".join(f"{count} {state}" for state, count in changes.items())
    places = [f"{page.state}: {page.path}" for page in plan.pages if page.state in changes]
    if not plan.texts and PageState.GONE not in changes:
        message = (
            f"All texts are indexed, but other properties of pages differ, such as their URLs ({listed})"
        )
        yield note("source", "other_settings", message, *places[:5], repair=context.index_command())
    else:
        message = f"The book has changed since it was indexed: {listed} pages, {plan.texts} chunks to embed"
        yield warning("source", "changed", message, *places[:10], repair=context.index_command())

"""Diagnose everything that a search depends on: the environment, and a collection with its content.

The checks are independent: one that fails does not stop the others. Keys never appear in a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from recto._util.files import disk_error
from recto._util.languages import ENGLISH
from recto._util.retry import redacted
from recto._util.text import plural
from recto.book.chunking import ChunkSize, describe_leftovers
from recto.book.sources import SourceOptions, open_source, sample_source, scheme_of
from recto.errors import CollectionMissing, ErrorKind, IndexDamaged, RectoError
from recto.evaluation.calibration import heading_question
from recto.evaluation.doctor import environment
from recto.evaluation.doctor.environment import DoctorContext, Finding, error, from_error, note, ok, warning
from recto.evaluation.integrity import READING, Issue, IssueKind, check_integrity
from recto.indexing import default_collection
from recto.indexing.indexer import IndexJob, plan_book
from recto.indexing.planner import PageState
from recto.protocols import Index
from recto.search.lexical import other_analyzer, read_lexicon, unknown_languages
from recto.search.pipeline import nearest_chunks
from recto.search.retriever import other_model, query_embedder
from recto.settings import SAMPLE_COLLECTION, Settings, is_secret, read_variables

_HARMLESS_ELSEWHERE = frozenset(IssueKind) - {IssueKind.BAD_VECTOR, IssueKind.NO_TEXT}
_BOOK_REPAIRS = {
    IssueKind.BAD_URL: "Remove control characters from the names of these files",
    IssueKind.NO_TITLE: "Give these pages a heading",
    IssueKind.EMPTY_HEADING: "Give these sections a heading with words, or index the built site",
    IssueKind.CODE_HEADING: "Put the code into a fence, or index the built site",
    IssueKind.SHRUNK: "Index the built site instead, if these pages matter",
}
_MIN_AUROC = 0.9


def collection(context: DoctorContext, settings: Settings) -> Iterator[Finding]:
    """Verify the files of the collection, open it, and count its chunks."""
    if context.store is None:
        return
    context.collection = context.collection or default_collection(settings, context.store)
    if verify := context.abilities.verify:
        with suppress(CollectionMissing, IndexDamaged):  # `open` reports it, or opens an older generation
            verify(context.collection)
    try:
        index = context.store.open(context.collection)
    except CollectionMissing:
        if context.name in context.writers:
            message = f"'{context.name}' is being indexed now, for the first time"
            yield note("at_work", message, repair=context.index_command())
            return
        if context.collection != SAMPLE_COLLECTION or not context.store.is_local:
            raise
        message = "Nothing is indexed yet; the first query indexes the sample book"
        yield note("first_run", message, repair="recto index PATH")
        return
    context.index, info = index, index.info
    for message in info.warnings:
        if context.store.is_local:  # it opens an older generation if one is damaged
            repair = context.index_command(rebuild=True)
            yield error("damaged", message, repair=repair, kind=ErrorKind.DAMAGED)
        else:
            yield warning("degraded", message, repair=context.index_command())
    name, target = context.collection, info.collection
    label = f"'{name}'" if name == target else f"'{name}' is '{target}'"
    aliases = sorted(alias for alias, other in context.store.aliases().items() if other == target)
    evidence = [f"aliases: {', '.join(aliases)}"] if aliases else []
    evidence += [f"module '{name}': {plural(count, 'chunk')}" for name, count in index.modules().items()]
    yield ok(f"{label}, {info.generation}: {plural(index.count(), 'chunk')}", *evidence)


def fingerprint(context: DoctorContext, index: Index) -> Iterator[Finding]:
    """Compare the model that made the index with the one that embeds queries."""
    recorded, embedder = index.info.fingerprint, context.embedder
    if embedder is not None:
        context.embedder = query_embedder(index, embedder)
    if recorded is None:
        yield note("foreign", "Another pipeline made the collection, so its model is not known")
        return
    evidence = (
        f"{plural(recorded.pages, 'page')} of '{recorded.book}' from {recorded.source}",
        f"{recorded.chunker}, Recto {recorded.recto_version}, {recorded.created_at}",
    )
    if message := other_analyzer(index.info):
        yield warning("other_analyzer", message, *evidence, repair=context.index_command())
    elif embedder is None:
        message = f"Made with {recorded.embedder}; there is no embedder to compare it with"
        yield note("not_compared", message, *evidence)
    elif context.embedder is not embedder:
        message = other_model(index.info, embedder)
        yield note("other_model", message, *evidence, repair=context.index_command())
    elif recorded.embedder.variant != embedder.fingerprint.variant:
        mine = embedder.fingerprint.variant
        message = (
            f"Made with {recorded.embedder}; queries use another precision ({mine}), which is compatible"
        )
        yield note("other_precision", message, *evidence)
    else:
        yield ok(f"Made with {recorded.embedder}, like the queries", *evidence)


def payload_indexes(context: DoctorContext, _index: Index) -> Iterator[Finding]:
    """Check the payload indexes that filters use."""
    missing_fields = context.abilities.missing_fields
    if missing_fields is None:
        return
    if missing := missing_fields(context.collection):
        message = f"No payload index on {', '.join(missing)}: filters see only a part of the chunks"
        yield warning("missing", message, repair=f"recto prepare {context.collection}")
    else:
        yield ok("Every field that filters use has a payload index")


def cluster(context: DoctorContext, _index: Index) -> Iterator[Finding]:
    """Check the nodes of the server, and the shards and replicas of the collection."""
    abilities = context.abilities
    if abilities.problems is None or abilities.redundancy is None:
        return
    problems = abilities.problems(context.collection)
    for problem in problems:
        if problem.serious:
            yield error(problem.kind, problem.message, repair=problem.repair, kind=ErrorKind.CONNECTION)
        else:
            yield warning(problem.kind, problem.message, repair=problem.repair)
    if not problems:
        yield ok("All nodes and replicas work", abilities.redundancy(context.collection))


def dialect(context: DoctorContext, _index: Index) -> Iterator[Finding]:
    """Check how payloads are read."""
    payload_schema = context.abilities.payload_schema
    if payload_schema is None:
        return
    schema = payload_schema(context.collection)
    if schema.own:
        yield ok("Recto's own payloads")
    elif schema.missing:
        message = f"No payload field is known to hold {' and '.join(schema.missing)}"
        repair = "Set RECTO_DIALECT to a file that maps the fields; see docs/how-to/cloud.md"
        yield error("unreadable", message, schema.description, repair=repair)
    else:
        yield ok(f"The payloads are read as '{schema.dialect}'", schema.description)


def calibration(context: DoctorContext, index: Index) -> Iterator[Finding]:
    """Check that the noise floor is measured, and that scores separate the book from other topics."""
    measured, lexicon = index.info.calibration, read_lexicon(index)
    if measured and lexicon and lexicon.languages and ENGLISH not in lexicon.languages:
        languages = " and ".join(f"'{tag}'" for tag in lexicon.languages)
        yield ok(f"The noise floor is for English queries: searches in {languages} have none")
    elif measured is None:
        repair = f"recto calibrate --collection {context.collection}"
        message = "The noise floor is not measured, or another version of Recto measured it"
        yield note("missing", message, repair=repair)
    elif measured.auroc < _MIN_AUROC:
        message = f"Scores hardly separate queries about the book from others (AUROC {measured.auroc:.2f})"
        repair = "Set RECTO_MODEL to a model for the language of the book, and index the book again"
        yield warning("not_apart", message, f"noise floor {measured.noise_floor}", repair=repair)
    else:
        yield ok(f"Cosine similarities below {measured.noise_floor:.3f} are noise", f"AUROC {measured.auroc}")


def languages(context: DoctorContext, index: Index) -> Iterator[Finding]:
    """Show the languages of the book, and compare them with the languages that the model knows."""
    lexicon = read_lexicon(index)
    if lexicon is None:
        return
    shares = (f"{tag} {count / max(lexicon.chunks, 1):.0%}" for tag, count in lexicon.languages.items())
    message = f"Languages of the chunks: {', '.join(shares)}"
    if context.embedder is not None and (advice := unknown_languages(lexicon, context.embedder)):
        yield note("unknown_language", message, advice)
    else:
        yield ok(message)


def editions(_context: DoctorContext, index: Index) -> Iterator[Finding]:
    """Show the versions and locales of the book, if it has several."""
    recorded = index.info.fingerprint
    if recorded and recorded.versions:
        names = (f"{name} (searched by default)" if current else name for name, current in recorded.versions)
        yield ok(f"Versions of the book: {', '.join(names)}")
    if recorded and recorded.locales:
        yield ok(f"Locales of the book: {', '.join(recorded.locales)}")


def search(context: DoctorContext, index: Index) -> Iterator[Finding]:
    """Search for one chunk by its heading."""
    if context.embedder is None or not index.info.chunks:
        return
    sample = next(index.scroll(batch=1))
    query = heading_question(sample) or "book"
    began = perf_counter()
    (hits,) = nearest_chunks(index, [context.embedder.embed_query(query)], 5)
    took = (perf_counter() - began) * 1e3
    evidence = f'"{query}": ' + ", ".join(f"{hit.score:.3f} {hit.chunk.page_url}" for hit in hits[:3])
    if not hits:
        message, repair = "A search without filters returns nothing", context.index_command(rebuild=True)
        yield error("no_hits", message, evidence, repair=repair, kind=ErrorKind.DAMAGED)
    elif all(hit.chunk.page_url != sample.page_url for hit in hits):
        message = f"The page {sample.page_url} is not found by its own heading"
        repair = f"recto coverage --collection {context.collection}"
        yield note("own_heading", message, evidence, repair=repair)
    else:
        yield ok(f"A page is found by its own heading, in {took:.0f} ms", evidence)


def source(context: DoctorContext, index: Index) -> Iterator[Finding]:
    """Compare the index with the current state of the book, without embedding anything."""
    store, settings, embedder = context.store, context.settings, context.embedder
    recorded = index.info.fingerprint
    if store is None or settings is None or embedder is None or recorded is None:
        return
    if scheme_of(recorded.source):
        message = f"The book is at {recorded.source}; the doctor compares only books on disk"
        yield note("not_on_disk", message, repair=context.index_command())
        return
    if index.info.collection == SAMPLE_COLLECTION:
        context.source = sample_source()
    elif Path(recorded.source).exists():
        context.source = open_source(
            recorded.source, SourceOptions().repeating(recorded.options), None, context.messages.append
        )
    else:
        message = f"{recorded.source} does not exist any more, so the index cannot be compared with the book"
        yield note("gone", message)
        return
    job = IndexJob(context.source, embedder, ChunkSize(settings.chunk_tokens))
    journal = settings.home / "journal"
    plan = context.plan = plan_book(job, store, index.info.collection, journal=journal)
    if plan.failed:
        message = f"Not read, so not in the index: {plural(len(plan.failed), 'file')}"
        repair = f"Correct these files or leave them out, then run {context.index_command()}"
        yield warning("unread", message, *map(str, plan.failed[:10]), repair=repair)
    if unlisted := [line for line in plan.notes if "not in the navigation" in line]:
        repair = f"If they belong to the book, list them, then run {context.index_command()}"
        yield warning("unlisted", "Most files of the book are not indexed", *unlisted, repair=repair)
    # A page without text is new in every run: there is nothing of it to index.
    compared = [page for page in plan.pages if page.chunks or page.state is not PageState.NEW]
    states = Counter(page.state for page in compared)
    changes = [state for state in (PageState.NEW, PageState.CHANGED, PageState.GONE) if states[state]]
    listed = ", ".join(f"{states[state]} {state}" for state in changes)
    places = [f"{page.state}: {page.path}" for page in compared if page.state in changes]
    if not changes:
        yield ok(f"{plural(states.total(), 'page')}, the same as in {recorded.source}")
    elif context.name in context.writers:
        yield note(
            "at_work", f"The book has changed (pages: {listed}), and '{context.name}' is being indexed now"
        )
    elif not plan.texts and PageState.GONE not in changes:
        message = (
            f"All texts are indexed, but other properties of pages differ, such as their URLs ({listed})"
        )
        # The command without the options of that run would replace published addresses by local ones.
        repair = "If that is not intended: index it again with all options of that run, such as --site-url"
        yield note("other_settings", message, *places[:5], repair=repair)
    else:
        embed = plural(plan.texts, "chunk")
        message = f"The book has changed since it was indexed (pages: {listed}; {embed} to embed)"
        yield warning("changed", message, *places[:10], repair=context.index_command())


def questions(_context: DoctorContext, index: Index) -> Iterator[Finding]:
    """Show the share of sections that have section questions, and those of another text."""
    sections: dict[tuple[str, tuple[str, ...], str], bool] = {}
    for chunk in index.scroll():
        sections[chunk.source, chunk.headings, chunk.anchor] = bool(chunk.questions)
    recorded, count = index.info.fingerprint, sum(sections.values())
    if recorded is None or not count:
        return
    message = f"{count} of {plural(len(sections), 'section')} ({count / len(sections):.0%}) have questions"
    if stale := recorded.stale_questions:
        places = [f"{page} > {heading}" for page, heading in stale[:5]]
        yield warning(
            "stale",
            f"{message}, and {len(stale)} were written for another text",
            *places,
            repair=f"recto questions check {recorded.source}",
        )
    else:
        yield ok(message)


def includes(context: DoctorContext, index: Index) -> Iterator[Finding]:
    """Report included files whose text is missing from the index."""
    recorded = index.info.fingerprint
    if recorded is None or not recorded.unresolved_includes:
        return
    files = plural(recorded.unresolved_includes, "included file")
    message = f"{files} could not be resolved, so their text is not in the index"
    notes = [line for line in context.plan.notes if "could not be resolved" in line] if context.plan else []
    repair = f"Correct the paths of the included files, then run {context.index_command()}"
    yield warning("unresolved", message, *notes, repair=repair)


def content(context: DoctorContext, index: Index) -> Iterator[Finding]:
    """Check the fields of every chunk, and compare a sample of vectors with freshly embedded ones."""
    if not index.info.chunks:
        return
    pages = context.plan.pages if context.plan else ()
    changed = frozenset(
        page.path
        for page in pages
        if page.state is PageState.CHANGED or (page.state is PageState.NEW and page.chunks)
    )
    result = check_integrity(
        index, context.embedder, context.source, changed=changed, everything=context.everything
    )
    by_recto, agreement = index.info.fingerprint is not None, result.agreement
    issues = {issue.kind: issue for issue in result.issues}
    markup = issues.pop(IssueKind.MARKUP, None)
    yield from (_damage(context, issue, by_recto=by_recto) for issue in issues.values())
    if not result.complete:
        message = f"{result.checked} of {plural(result.chunks, 'chunk')} were checked"
        yield note("part", message, repair=f"recto doctor --all --collection {context.collection}")
    if issues.keys() <= READING:
        evidence = []
        if result.embedded:
            texts = plural(result.embedded, "text")
            evidence.append(f"{texts} embedded again: median cosine {agreement:.4f}")
        if result.sourced:
            evidence.append(f"{plural(result.sourced, 'text')} found in the book at the indexed lines")
        yield ok(f"{plural(result.checked, 'chunk')} checked, no damage", *evidence)
    if markup:
        repair = "Index the built site instead, if these parts of the pages matter"
        yield warning("markup", describe_leftovers(result.markup), *markup.places, repair=repair)
    other_model = IssueKind.OTHER_MODEL in issues
    if not by_recto and agreement is not None and not other_model:
        message = f"Fresh vectors agree with stored ones (cosine {agreement:.3f}), so it is this model"
        yield note("same_model", message)


def _damage(context: DoctorContext, issue: Issue, *, by_recto: bool) -> Finding:
    message, evidence = issue.message, tuple(issue.places)
    if issue.kind is IssueKind.NOT_AS_PUBLISHED:
        pages = context.plan.pages if context.plan else ()
        evidence = tuple(f"not in the index: {page.path}" for page in pages if page.state is PageState.NEW)
        message += ": pages are missing" if evidence else ": chunks were added, removed or replaced"
    name = issue.kind.value
    if by_recto and issue.kind in _BOOK_REPAIRS:  # the same book gives the same index
        repair = f"{_BOOK_REPAIRS[issue.kind]}, then run {context.index_command()}"
        return warning(name, message, *evidence, repair=repair)
    if by_recto:
        repair = context.index_command(rebuild=True)
        return error(name, message, *evidence, repair=repair, kind=ErrorKind.DAMAGED)
    index_again = "or index the book with `recto index PATH`"
    if issue.kind is IssueKind.OTHER_MODEL:
        repair = f"Set RECTO_MODEL to the model of the pipeline that made the collection, {index_again}"
        return error(name, message, *evidence, repair=repair)
    repair = f"Repair it with the pipeline that made the collection, {index_again}"
    if issue.kind in _HARMLESS_ELSEWHERE:
        return warning(name, message, *evidence, repair=repair)
    return error(name, message, *evidence, repair=repair, kind=ErrorKind.DAMAGED)


def skipped(context: DoctorContext) -> Iterator[Finding]:
    """Say what could not be checked, and why."""
    if context.settings is None:
        yield note("skipped", "Everything that depends on the settings: they cannot be loaded")
    elif context.store is None:
        yield note("skipped", "The collection and its content: the engine cannot be used")
    elif context.index is None:
        yield note("skipped", "The content: there is no index to look into")
    elif context.embedder is None:
        yield note("skipped", "Vectors and searches: there is no embedder")


CheckFunction = Callable[[DoctorContext], Iterable[Finding]]


def _with_settings(check: Callable[[DoctorContext, Settings], Iterable[Finding]]) -> CheckFunction:
    return lambda context: check(context, context.settings) if context.settings else ()


def _with_index(check: Callable[[DoctorContext, Index], Iterable[Finding]]) -> CheckFunction:
    return lambda context: check(context, context.index) if context.index is not None else ()


CHECKS: Mapping[str, CheckFunction] = {
    "settings": environment.settings_files,
    "configuration": environment.configuration,
    "home": _with_settings(environment.home),
    "packages": environment.packages,
    "model": _with_settings(environment.model),
    "engine": _with_settings(environment.engine),
    "leftovers": _with_settings(environment.leftovers),
    "collection": _with_settings(collection),
    "fingerprint": _with_index(fingerprint),
    "payload indexes": _with_index(payload_indexes),
    "cluster": _with_index(cluster),
    "dialect": _with_index(dialect),
    "calibration": _with_index(calibration),
    "languages": _with_index(languages),
    "editions": _with_index(editions),
    "search": _with_index(search),
    "source": _with_index(source),
    "questions": _with_index(questions),
    "includes": _with_index(includes),
    "content": _with_index(content),
    "not checked": skipped,
}


def examine(
    variables: Mapping[str, str],
    directory: Path | None,
    collection: str | None = None,
    *,
    everything: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Finding]:
    """Yield the findings of all checks in order."""
    context = DoctorContext(variables, directory, collection or "", everything)
    secrets = _secrets(variables, directory)
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


def _secrets(variables: Mapping[str, str], directory: Path | None) -> tuple[str, ...]:
    sources = [variables]
    with suppress(RectoError):
        sources += [source.values for source in read_variables(variables, directory).sources]
    values = (value.strip() for source in sources for name, value in source.items() if is_secret(name))
    return tuple(filter(None, values))

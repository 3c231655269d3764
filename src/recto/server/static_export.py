"""A static copy of an index: the widget searches it in the browser, without a service (decision 15)."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

from recto._util.files import export_errors, read_limited, refuse_link, staging
from recto._util.languages import ENGLISH
from recto._util.text import page_key
from recto.errors import ConfigurationError, InvalidArgument
from recto.protocols import Index, Progress
from recto.search.analyzer import (
    MAX_WORD,
    STOP_WORDS,
    analysis_rules,
    count_words,
    other_stop_words,
    stem,
    word_forms,
    word_terms,
)
from recto.search.display import SNIPPET_RULES, pick
from recto.search.lexical import (
    BM25,
    CORRECTION_RULES,
    QUERY_RULES,
    analyzed_text,
    common_words,
    read_lexicon,
)
from recto.search.markdown import is_link_list, is_release, plain_text
from recto.search.pipeline import MINOR_PENALTY, PAGE_HITS, PAGE_SHARE, SECTION_HITS, SPREAD_HITS
from recto.search.retriever import CHUNKS_PER_PAGE, SELECTION_CANDIDATES
from recto.search.selection import OVERLAP_RULES
from recto.server.semantic_export import (
    Semantic,
    compress,
    model_files,
    pack_vectors,
    read_vectors,
    semantic_meta,
    wants_semantic,
)
from recto.settings import index_command
from recto.types.search import LEXICAL_WEIGHT, Chunk

_WEB = Path(__file__).parent / "web"
_EXPORT_FORMAT = 3
_META = "data/meta.bin"
_MANIFEST = "recto-export.json"
_LARGEST_MANIFEST = 16 << 20  # bytes
_EXPORTED = re.compile(
    r"widget\.js|static/(widget/)?\w+\.js|data/meta\.bin|data/[a-z]+-[0-9a-f]{12}\.bin"
    r"|model/[0-9a-f]{12}/[a-z]+(-\d+)?\.bin"
)
_MODULES = ("dom", "highlight", "model", "semantic")
_FIELDS = ("title", "section", "url", "module", "module_title", "text", "page_url", "headings", "language")
_FILTERS: dict[str, Callable[[Chunk], Sequence[str]]] = {
    "module": lambda chunk: chunk.module_keys,
    "url": lambda chunk: (page_key(chunk.page_url),),
    "lang": lambda chunk: (chunk.language,),
    "version": lambda chunk: (chunk.version,),
    "locale": lambda chunk: chunk.locales,
}
"""The values of a chunk that each filter of a search compares; the table of the client has the same names."""
_SHARD = 24_000  # characters of JSON: at most about 7 KB compressed
_SHARD_CHUNKS = 512  # vectors of 300 KB
_HASH = 12  # digits of the SHA-256 of a file in its name
_COMMON_SHIFT = 8  # bits: one of 280 other words is then taken for common English
_LENGTHS = range(3, 21)  # letters; corrections compare words of about the same length
_STOP_TERMS = frozenset(map(stem, STOP_WORDS))

File = tuple[str, bytes]
"""The path of a file below the directory, and its content."""
Form = tuple[str, list[int]]
"""A word and its chunks: for each, the distance from the chunk before, then how often it has the word."""
Rows = dict[str, list[Form]]
"""The words of each term; the empty word stands for the parts of identifiers."""


@dataclass(frozen=True, slots=True)
class StaticExport:
    """What was exported; `generation` identifies the content of the index.

    `unpublished` pages have no URL of a website, so their results cannot be opened.
    """

    generation: str
    chunks: int
    pages: int
    unpublished: int
    files: int
    bytes: int
    semantic: bool = False


def export_static(
    index: Index,
    directory: Path,
    progress: Progress | None = None,
    semantic: Semantic = "auto",
    lexical_weight: float = LEXICAL_WEIGHT,
) -> StaticExport:
    """Write the widget and a static copy of an index to a directory, in the place of an earlier export."""
    info = index.info
    lexicon = read_lexicon(index)
    if lexicon is None:
        fingerprint = info.fingerprint
        source, options = (fingerprint.source, fingerprint.options) if fingerprint else ("", ())
        raise ConfigurationError(
            f"Collection '{info.collection}' has no lexical vectors of this version: it cannot be exported",
            hint=f"Index the book again: `{index_command(info.collection, source, options=options)}`.",
        )
    has_vectors = wants_semantic(index, semantic)
    with export_errors(directory):
        # Ties are ordered by these fields, so that the number of a chunk is enough to order them.
        chunks = sorted(index.scroll(), key=lambda chunk: (chunk.page_url, chunk.chunk_index, chunk.id))
        meta: dict[str, Any] = {}
        files = dict(_widget_files())
        if has_vectors:
            described, model = model_files()
            ranges = _cut([chunk.id for chunk in chunks], [1] * len(chunks), _SHARD_CHUNKS)
            vectors = [pack_vectors(read_vectors(index, chunks[start:end])) for start, end in ranges]
            meta = semantic_meta(index, lexical_weight)
            meta |= {"model": described, "order": _order(chunks)}
            files |= dict(model)
            meta["vectors"] = [hashlib.sha256(data).hexdigest() for data in vectors]
            names = [_data_file("vectors", digest) for digest in meta["vectors"]]
            files |= zip(names, map(compress, vectors), strict=True)
        book = info.fingerprint
        editions = {"versions": book.versions, "locales": book.locales} if book else {}
        about = {"collection": info.collection, "editions": editions if any(editions.values()) else None}
        generation, index_files = _index_files(chunks, about, list(lexicon.languages), meta, progress)
        files |= index_files
        files[_MANIFEST] = _to_json(sorted(files)).encode()
        _write(directory, files)
    pages = {chunk.page_url for chunk in chunks}
    unpublished = sum(not url.startswith(("https://", "http://")) for url in pages)
    size = sum(map(len, files.values()))
    return StaticExport(generation, len(chunks), len(pages), unpublished, len(files), size, has_vectors)


def _order(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return what `arrange` needs in the browser: minor chunks, where parts begin, and its constants."""
    links = [number for number, chunk in enumerate(chunks) if is_link_list(chunk.text, chunk.headings)]
    releases = [number for number, chunk in enumerate(chunks) if any(map(is_release, chunk.headings))]
    pages = _starts([chunk.page_url for chunk in chunks])
    sections = _starts([(chunk.page_url, chunk.headings) for chunk in chunks])
    rules = {"penalty": MINOR_PENALTY, "first": SPREAD_HITS, "most": SECTION_HITS}
    rules |= {"rivals": PAGE_HITS, "share": PAGE_SHARE}
    return {"link_lists": links, "releases": releases, "pages": pages, "sections": sections, **rules}


def _starts(keys: Sequence[Hashable]) -> list[int]:
    """Return the numbers of the chunks that have another key than the chunk before."""
    return [number for number, key in enumerate(keys) if number == 0 or key != keys[number - 1]]


def _widget_files() -> Iterator[File]:
    yield "widget.js", (_WEB / "widget.js").read_bytes()
    yield "static/client.js", (_WEB / "static_client.js").read_bytes()
    for path in (*(_WEB / f"{name}.js" for name in _MODULES), *sorted(_WEB.glob("widget/*.js"))):
        yield f"static/{path.relative_to(_WEB).as_posix()}", path.read_bytes()


def _index_files(
    chunks: Sequence[Chunk],
    about: dict[str, Any],
    languages: Sequence[str],
    semantic: dict[str, Any],
    progress: Progress | None,
) -> tuple[str, dict[str, bytes]]:
    """Return the generation and the files: metadata, words, chunks, filters, common English words."""
    lengths, rows = _rows(chunks, progress)
    numbers = list(range(len(chunks)))
    starts = [n for n in numbers if n == 0 or chunks[n].page_url != chunks[n - 1].page_url]
    word_shards = list(_shards(list(rows), list(rows), [_to_json(row) for row in rows.items()]))
    displayed = (pick(chunk.to_dict(), _FIELDS) | {"text": plain_text(chunk.text)} for chunk in chunks)
    ids = [chunk.id for chunk in chunks]
    text_shards = list(_shards(numbers, ids, [_to_json(fields) for fields in displayed]))
    shards = {
        "words": [shard for _, shard in word_shards],
        "chunks": [shard for _, shard in text_shards],
        "vocabulary": list(map(_to_json, _vocabulary(rows).values())),
        "filters": [_to_json(_filter_values(chunks))],
        "common": [_to_json(_common_words())],
    }
    hashes = {kind: list(map(_hash, contents)) for kind, contents in shards.items()}
    meta = {
        "format": _EXPORT_FORMAT,
        **about,
        "bm25": BM25,
        "corrections": CORRECTION_RULES,
        "query": QUERY_RULES,
        "snippets": SNIPPET_RULES,
        "max_word": MAX_WORD,
        "chunks_per_page": CHUNKS_PER_PAGE,
        "selection_candidates": SELECTION_CANDIDATES,
        "overlap": OVERLAP_RULES,
        "stop_words": sorted(STOP_WORDS),
        "languages": languages or [ENGLISH],
        "analysis": _analysis(languages),
        "common_shift": _COMMON_SHIFT,
        "shortest": _LENGTHS[0],
        "longest": _LENGTHS[-1],
        "lengths": lengths,
        "pages": starts,
        "words": [first for first, _ in word_shards],
        "chunks": [first for first, _ in text_shards],
        "files": hashes,
        "semantic": semantic or None,
    }
    generation = _hash(_to_json(meta))
    files = {
        _data_file(kind, digest): _compress(content)
        for kind, contents in shards.items()
        for digest, content in zip(hashes[kind], contents, strict=True)
    }
    return generation, files | {_META: _compress(_to_json(meta | {"generation": generation}))}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_HASH]


def _data_file(kind: str, digest: str) -> str:
    """Return the name of a file of the index, which changes only with its content."""
    return f"data/{kind}-{digest[:_HASH]}.bin"


def _filter_values(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return the values that filters compare, once for neighbouring chunks that have the same."""
    values = [{name: list(values(chunk)) for name, values in _FILTERS.items()} for chunk in chunks]
    starts = [number for number, row in enumerate(values) if number == 0 or row != values[number - 1]]
    return {"starts": starts} | {name: [values[start][name] for start in starts] for name in _FILTERS}


def _analysis(languages: Sequence[str]) -> dict[str, Any]:
    """Return what the client needs to cut the words of other languages in the same way, if there are any."""
    others = [language for language in languages if language != ENGLISH]
    stop_words = {language: sorted(other_stop_words(language)) for language in others}
    return analysis_rules() | {"stop_words": stop_words} if others else {}


def _rows(chunks: Sequence[Chunk], progress: Progress | None) -> tuple[list[int], Rows]:
    """Return the lengths of the chunks in terms, and the words of each term."""
    lengths: list[int] = []
    postings: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    last: dict[tuple[str, str], int] = {}
    for number, chunk in enumerate(chunks):
        counts: Counter[tuple[str, str]] = Counter()
        language = chunk.language or ENGLISH
        for word, count in count_words(analyzed_text(chunk), language).items():
            forms = {stem(form, language): form for form in word_forms(word, language)}
            for term in word_terms(word, language):
                counts[term, forms.get(term, "")] += count
        lengths.append(counts.total())
        for key, count in counts.items():
            postings[key] += (number - last.get(key, 0), count)
            last[key] = number
        if progress:
            progress(number + 1, len(chunks))
    rows: defaultdict[str, list[Form]] = defaultdict(list)
    for term, word in sorted(postings):
        # The long lists of stop words, which few queries need, are apart from the others.
        rows[f"~{term}" if term in _STOP_TERMS else term].append((word, postings[term, word]))
    # JavaScript compares strings by their UTF-16 code units.
    return lengths, {key: rows[key] for key in sorted(rows, key=lambda key: key.encode("utf-16-be"))}


def _vocabulary(rows: Rows) -> dict[int, list[tuple[str, int]]]:
    """Return the words by length, each with its number of chunks; the last list has all longer words."""
    words: dict[int, list[tuple[str, int]]] = {length: [] for length in _LENGTHS}
    for word, chunks in sorted(form for forms in rows.values() for form in forms):
        if len(word) >= _LENGTHS[0]:
            words[min(len(word), _LENGTHS[-1])].append((word, len(chunks) // 2))
    return words


def _common_words() -> list[int]:
    """Return the common English words, each as the distance of its shortened id from the one before."""
    short = [0, *sorted({id >> _COMMON_SHIFT for id in common_words()})]
    return [after - before for before, after in pairwise(short)]


def _shards(keys: Sequence[Any], ids: Sequence[str], rows: Sequence[str]) -> Iterator[tuple[Any, str]]:
    """Join rows to lists of about the same size, and yield each with the key of its first row."""
    for start, end in _cut(ids, list(map(len, rows)), _SHARD):
        yield keys[start], f"[{','.join(rows[start:end])}]"


def _cut(ids: Sequence[str], sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return the ranges of shards of at most `most`; from half of it, the hash of an id can end a shard.

    So a change of the book moves the ends of few shards. The others keep their content and their names.
    """
    starts, total = [0], 0
    for number, (id, size) in enumerate(zip(ids, sizes, strict=True)):
        is_chosen = crc32(id.encode("utf-8", "replace")) % most < 4 * size
        if total + size > most or (total > most // 2 and is_chosen):
            starts.append(number)
            total = 0
        total += size
    return [(start, end) for start, end in pairwise([*starts, len(ids)]) if start < end]


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _compress(text: str) -> bytes:
    """Compress a text in the same way each time; lone surrogates become question marks."""
    return compress(text.encode("utf-8", "replace"))


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write all files, and delete those of the export before; files of others stay as they are.

    The manifest lists old and new files until all are written: a killed export leaves no unlisted file.
    """
    content = dict(files)
    manifest = content.pop(_MANIFEST)
    earlier = _earlier_files(directory)
    if foreign := next((name for name in content.keys() - earlier if (directory / name).exists()), ""):
        raise InvalidArgument(
            f"{directory / foreign} would be replaced, but no export has written it",
            hint=f"Choose another directory, such as {directory / 'recto'}.",
        )
    for name in earlier:  # deleting a file through a link would delete someone else's
        for parent in Path(name).parents:
            refuse_link(directory / parent)
    with staging(directory) as draft:
        (draft / _MANIFEST).write_text(_to_json(sorted(earlier | content.keys())))
    with staging(directory) as draft:
        for name, data in content.items():
            if name in earlier and _has(directory / name, data):
                continue  # its time stays as it is, so that tools which copy the site leave it alone
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    for name in earlier - content.keys():
        (directory / name).unlink(missing_ok=True)
        with suppress(OSError):  # it has other files
            (directory / name).parent.rmdir()
    with staging(directory) as draft:
        (draft / _MANIFEST).write_bytes(manifest)


def _has(path: Path, data: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data


def _earlier_files(directory: Path) -> set[str]:
    """Return the files of an earlier export, which its manifest lists."""
    try:
        listed = json.loads(read_limited(directory / _MANIFEST, _LARGEST_MANIFEST))
        names = {str(name) for name in listed}
    except FileNotFoundError:
        return set()
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidArgument(
            f"{directory / _MANIFEST} is damaged: {error}",
            hint="Delete the directory, or choose another one.",
        ) from error
    return set(filter(_EXPORTED.fullmatch, names))

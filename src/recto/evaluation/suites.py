"""Suites: questions with expectations that are bound to the book, never to chunks."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from recto._util.text import encodable, nearest, page_key, with_anchor
from recto.errors import InvalidArgument, InvalidQuery
from recto.search.query import check_query
from recto.types import HEADING_SEPARATOR, NO_FILTERS, Filters

SHAPE = (
    'A suite looks like {"queries": [{"query": "What is ROS 2?", "expect": {"module": "ros2"}}]}; '
    'you can add a "page" to the "module".'
)
MAX_BYTES = 64_000_000
_LISTED = ("module", "page")
_COLUMNS = (
    "id",
    "query",
    *_LISTED,
    "passage",
    "nothing",
    "tags",
    "drafted",
    "filter_module",
    "filter_url",
    "note",
)
_TRUE, _FALSE = {"true", "yes", "1"}, {"", "false", "no", "0"}

FORMAT = "recto-suite-1"
DEFAULT_THRESHOLD = 0.8
_SUITE_KEYS = ("$schema", "format", "name", "description", "aliases", "threshold", "queries")
_ENTRY_KEYS = ("id", "query", "expect", "nothing", "tags", "filters", "drafted", "note")
_EXPECT_KEYS = ("module", "page", "passage", "nothing")
_QUESTION_KEYS = ("id", "question", "type", "match", "expected", "evidence")
_QUESTION_SHAPE = (
    'A question looks like {"question": "What is ROS 2?", "match": "any", '
    '"expected": [{"page": "intro.md", "section": "ROS 2"}]}; '
    'without a section the whole page counts, and "match": "none" expects nothing.'
)


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """The parsed content of a suite's file: its header, and its entries with their positions in the file."""

    origin: str
    header: dict[str, Any]
    entries: list[tuple[str, Any]] = field(default_factory=list)


def read_file(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """Read a UTF-8 text file of limited size."""
    try:
        with path.open("rb") as stream:
            data = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:  # a path with a NUL byte is a ValueError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidArgument(f"{path} cannot be read: {reason}", hint="Check the path.") from error
    if len(data) > max_bytes:
        raise InvalidArgument(
            f"{path} is larger than {max_bytes // 1_000_000} MB", hint="Split it into several files."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{path}, byte {error.start + 1}: not UTF-8 text", hint="Save the file as UTF-8."
        ) from error


def read_suite_file(path: Path, max_bytes: int = MAX_BYTES) -> SuiteFile:
    """Read a suite's file by its extension: `.jsonl`, `.csv`, and JSON for anything else."""
    text, origin, kind = read_file(path, max_bytes), str(path), path.suffix.lower()
    if kind in {".jsonl", ".ndjson"}:
        return _read_lines(text, origin)
    return _read_table(text, origin) if kind == ".csv" else suite_file(parse_json(text, origin), origin)


def suite_file(data: Any, origin: str) -> SuiteFile:
    """Read the JSON value of a suite: an object with the list `queries`."""
    entries = data.get("queries") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InvalidArgument(f"{origin}: there are no queries in it", hint=SHAPE)
    header = {key: value for key, value in data.items() if key != "queries"}
    return SuiteFile(
        origin, header, [(f"{origin}, query {number}", entry) for number, entry in enumerate(entries, 1)]
    )


def _read_lines(text: str, origin: str) -> SuiteFile:
    """Read an entry from every line; a first line without a query is the suite's header."""
    raw = SuiteFile(origin, {})
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{origin}, line {number}"
        entry = parse_json(line, origin, number)
        if (
            not raw.entries
            and not raw.header
            and isinstance(entry, dict)
            and not {"query", "expect", "question"} & set(entry)
        ):
            raw.header.update(entry)
        else:
            raw.entries.append((place, entry))
    if not raw.entries:
        raise InvalidArgument(f"{origin}: there are no queries in it", hint=SHAPE)
    return raw


def _read_table(text: str, origin: str) -> SuiteFile:
    """Read an entry from every CSV row; the first row names the columns, `|` separates several names."""
    hint = f"The first row names the columns: {', '.join(_COLUMNS)}."
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = [name.strip().lower() for name in next(reader, [])]
        if unknown := [name for name in columns if name not in _COLUMNS]:
            raise InvalidArgument(f"{origin}, line 1: there is no column {unknown[0]!r}", hint=hint)
        if "query" not in columns or len(set(columns)) < len(columns):
            raise InvalidArgument(
                f'{origin}, line 1: it needs a column "query", and each column once', hint=hint
            )
        entries = list(_rows(reader, columns, origin))
    except csv.Error as error:
        raise InvalidArgument(f"{origin}, line {reader.line_num}: {error}", hint=hint) from error
    if not entries:
        raise InvalidArgument(f"{origin}: there are no queries in it", hint=hint)
    return SuiteFile(origin, {}, entries)


def _rows(reader: Any, columns: list[str], origin: str) -> Iterator[tuple[str, Any]]:
    first = reader.line_num + 1
    for row in reader:
        place, first = f"{origin}, line {first}", reader.line_num + 1
        if not any(cell.strip() for cell in row):
            continue
        if len(row) > len(columns):
            raise InvalidArgument(
                f"{place}: it has more cells than there are columns",
                hint="Put cells with commas in double quotes.",
            )
        yield (
            place,
            _entry(
                {name: cell.strip() for name, cell in zip(columns, row, strict=False) if cell.strip()}, place
            ),
        )


def _entry(cells: dict[str, str], place: str) -> dict[str, Any]:
    entry: dict[str, Any] = {name: cells[name] for name in ("id", "query", "note") if name in cells}
    entry["expect"] = {name: _listed(cells[name]) for name in _LISTED if name in cells}
    if "passage" in cells:
        entry["expect"]["passage"] = cells["passage"]
    if _flag(cells.get("nothing", ""), place, "nothing"):
        entry["expect"]["nothing"] = True
    if _flag(cells.get("drafted", ""), place, "drafted"):
        entry["drafted"] = True
    if "tags" in cells:
        entry["tags"] = [
            tag
            for part in cells["tags"].split("|")
            for tag in (word.strip() for word in part.split(","))
            if tag
        ]
    filters = {"module": _listed(cells["filter_module"])} if "filter_module" in cells else {}
    if "filter_url" in cells:
        filters["url"] = [cells["filter_url"]]
    return entry | ({"filters": filters} if filters else {})


def _listed(cell: str) -> list[str]:
    return [name.strip() for name in cell.split("|") if name.strip()]


def _flag(cell: str, place: str, name: str) -> bool:
    if cell.lower() in _TRUE | _FALSE:
        return cell.lower() in _TRUE
    raise InvalidArgument(f'{place}: "{name}" is {cell[:40]!r}', hint="Write true or false.")


def parse_json(text: str, origin: str, line: int | None = None, *, hint: str = SHAPE) -> Any:
    """Parse JSON; an error says where in the file it is."""
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise InvalidArgument(
            f"{origin}, line {line or error.lineno}, column {error.colno}: {error.msg}", hint=hint
        ) from error
    except RecursionError as error:
        raise InvalidArgument(f"{origin}: nested too deeply", hint=hint) from error
    except ValueError as error:  # a number with too many digits, or a duplicate key
        raise InvalidArgument(f"{origin}{f', line {line}' if line else ''}: {error}", hint=hint) from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f'"{twice}" is there twice in one object')
    return found


@dataclass(frozen=True, slots=True)
class Expectation:
    """A question and its targets, one of which must be the first result; passages are finer than pages."""

    query: str
    modules: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()
    nothing: bool = False
    id: str = ""
    tags: tuple[str, ...] = ()
    filters: Filters = NO_FILTERS
    drafted: bool = False
    place: str = field(default="", compare=False)

    @property
    def expected(self) -> str:
        """The expectation as text, for reports."""
        return "nothing" if self.nothing else " or ".join(self.modules or self.pages or self.passages)

    @property
    def key(self) -> str:
        """The identity of the question across runs: its id, or its query and filters."""
        if self.id:
            return self.id
        narrowed = [
            *sorted(self.filters.modules),
            *([self.filters.page_url] if self.filters.page_url else []),
        ]
        return f"{self.query} [{', '.join(narrowed)}]" if narrowed else self.query

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a suite's file."""
        expect: dict[str, Any] = {
            key: names[0] if len(names) == 1 else list(names)
            for key, names in (("module", self.modules), ("page", self.pages), ("passage", self.passages))
            if names
        }
        filters: dict[str, Any] = {"module": list(self.filters.modules)} if self.filters.modules else {}
        if self.filters.page_url:
            filters["url"] = self.filters.page_url
        entry: dict[str, Any] = {
            "id": self.id,
            "query": self.query,
            "expect": expect | ({"nothing": True} if self.nothing else {}),
        }
        entry |= {"tags": list(self.tags), "filters": filters, "drafted": self.drafted}
        return {key: value for key, value in entry.items() if value}


@dataclass(frozen=True)
class Suite:
    """Expectations in order, aliases of renamed pages, and the share of questions that must pass."""

    name: str
    expectations: tuple[Expectation, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    threshold: float = DEFAULT_THRESHOLD

    @cached_property
    def digest(self) -> str:
        """A hash of the questions and expectations, independent of the file format."""
        data = [sorted(self.aliases.items()), [expectation.to_dict() for expectation in self.expectations]]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

    def page(self, name: str) -> str:
        """Return the current name of a page or section, following `aliases`."""
        name, separator, heading = name.partition(HEADING_SEPARATOR)
        return f"{self._current(name)}{separator}{heading}"

    def _current(self, name: str) -> str:
        page, _, anchor = name.partition("#")
        for _step in range(len(self.aliases) + 1):
            if anchor and (moved := self._moved.get(f"{page_key(page)}#{anchor}")):
                page, _, anchor = moved.partition("#")
            elif moved := self._moved.get(page_key(page)):
                page, _, other = moved.partition("#")
                anchor = other or anchor
            else:
                return with_anchor(page, anchor)
        raise InvalidArgument(
            f'"aliases" form a circle from {name!r}',
            hint="Map every old page to the page that exists now.",
        )

    @cached_property
    def _moved(self) -> dict[str, str]:
        return {_alias_key(old): new for old, new in self.aliases.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a suite's file."""
        data: dict[str, Any] = {"format": FORMAT, "name": self.name}
        if self.aliases:
            data["aliases"] = dict(self.aliases)
        if self.threshold != DEFAULT_THRESHOLD:
            data["threshold"] = self.threshold
        return data | {"queries": [expectation.to_dict() for expectation in self.expectations]}


def documented_suite() -> Suite:
    """Return the five queries of the query contract."""
    text = files("recto.evaluation").joinpath("documented.json").read_text("utf-8")
    return _parse_suite(suite_file(parse_json(text, "documented.json"), "documented.json"))


def load_suite(path: Path) -> Suite:
    """Read a suite's file; an error names the position in the file."""
    return _parse_suite(read_suite_file(path))


def load_strict_suite(path: Path) -> Suite:
    """Read a suite's file, and refuse duplicate questions."""
    suite = load_suite(path)
    for message in duplicates(suite):
        raise InvalidArgument(message, hint="Merge the two entries, or add filters to one of them.")
    return suite


def survey(path: Path) -> tuple[Suite, list[str]]:
    """Read a suite's file, and return its valid entries and all problems."""
    problems: list[str] = []
    suite = _parse_suite(read_suite_file(path), problems)
    return suite, problems + duplicates(suite)


def duplicates(suite: Suite) -> list[str]:
    """Describe duplicate questions (with the same filters), with both positions."""
    seen: dict[tuple[str, Filters], Expectation] = {}
    found = []
    for expectation in suite.expectations:
        asked = (" ".join(expectation.query.casefold().split()), expectation.filters)
        if asked in seen:
            found.append(
                f"{expectation.place}: the question {expectation.query!r} is already in {seen[asked].place}"
            )
        seen.setdefault(asked, expectation)
    return found


def _parse_suite(raw: SuiteFile, problems: list[str] | None = None) -> Suite:
    """Parse the header and every entry; raise what is wrong, or add it to `problems` and skip the entry."""
    check_keys(raw.header, _SUITE_KEYS, raw.origin)
    name, format = raw.header.get("name"), raw.header.get("format", FORMAT)
    if format != FORMAT:
        raise InvalidArgument(
            f"{raw.origin}: its format is {format!r}", hint=f"This version of Recto reads {FORMAT}."
        )
    expectations: list[Expectation] = []
    ids: dict[str, str] = {}
    for place, entry in raw.entries:
        try:
            expectation = _expectation(entry, place)
            check_id(expectation.id, place, ids)
        except InvalidArgument as error:
            if problems is None:
                raise
            problems.append(error.message)
        else:
            expectations.append(expectation)
    suite = Suite(
        name.strip() if isinstance(name, str) and name.strip() else Path(raw.origin).stem,
        tuple(expectations),
        _aliases(raw.header.get("aliases", {}), raw.origin),
        _threshold(raw.header.get("threshold", DEFAULT_THRESHOLD), raw.origin),
    )
    for old in suite.aliases:
        try:
            suite.page(old)
        except InvalidArgument as error:
            raise InvalidArgument(f"{raw.origin}: {error.message}", hint=error.hint) from error
    return suite


def _expectation(entry: Any, place: str) -> Expectation:
    if isinstance(entry, dict) and "question" in entry:
        entry = _from_question(entry, place)
    expect = entry.get("expect", {}) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(expect, dict) or not {"expect", "nothing"} & set(entry):
        raise InvalidArgument(f'{place}: it needs a "query" and an "expect"', hint=SHAPE)
    check_keys(entry, _ENTRY_KEYS, place)
    check_keys(expect, _EXPECT_KEYS, place, '"{key}" cannot be expected')
    try:
        query = check_query(entry.get("query", ""))
    except InvalidQuery as error:
        raise InvalidArgument(f"{place}: {error.message}", hint=SHAPE) from error
    modules, pages, passages = (
        parse_names(expect.get(key), place, key) for key in ("module", "page", "passage")
    )
    nothing = _yes(expect, place, "nothing") or _yes(entry, place, "nothing")
    if nothing and (modules or pages or passages):
        raise InvalidArgument(
            f'{place}: it expects "nothing" and something', hint='Leave "nothing" out, or everything else.'
        )
    if not (modules or pages or passages or nothing):
        raise InvalidArgument(
            f'{place}: it expects neither a "module" nor a "page", a "passage" or "nothing"', hint=SHAPE
        )
    if any(page.startswith("#") for page in pages):
        raise InvalidArgument(
            f'{place}: a "page" begins with its path or address, before the "#"',
            hint='Such as "intro#goals".',
        )
    drafted, tags = _yes(entry, place, "drafted"), parse_names(entry.get("tags"), place, "tags")
    id = entry.get("id", "")
    if not isinstance(id, str) or ("id" in entry and not id.strip()):
        raise InvalidArgument(f'{place}: "id" must be text', hint=SHAPE)
    filters = _filters(entry.get("filters", {}), place)
    return Expectation(query, modules, pages, passages, nothing, _clean(id), tags, filters, drafted, place)


def _from_question(entry: dict[str, Any], place: str) -> dict[str, Any]:
    """Convert a reader's question to a suite's entry; a section is named `page > heading`."""
    check_keys(entry, _QUESTION_KEYS, place)
    expected, match = entry.get("expected", []), entry.get("match", "any")
    if match not in {"any", "all", "none"}:
        raise InvalidArgument(f'{place}: "match" must be any, all or none', hint=_QUESTION_SHAPE)
    if not isinstance(expected, list) or not all(map(_is_place, expected)):
        raise InvalidArgument(
            f'{place}: "expected" must be a list of pages with sections', hint=_QUESTION_SHAPE
        )
    if bool(expected) == (match == "none"):
        raise InvalidArgument(
            f'{place}: "match" is {match}, but "expected" has {len(expected)} pages', hint=_QUESTION_SHAPE
        )
    pages = [
        HEADING_SEPARATOR.join(filter(None, (each["page"], each.get("section", "").strip())))
        for each in expected
    ]
    converted = {
        "query": entry["question"],
        "expect": {"page": pages} if pages else {"nothing": True},
        "tags": entry.get("type"),
    }
    return converted | ({"id": entry["id"]} if "id" in entry else {})


def _is_place(value: Any) -> bool:
    """Return whether a value is a page with an optional section."""
    return (
        isinstance(value, dict)
        and {"page"} <= set(value) <= {"page", "section"}
        and all(isinstance(text, str) for text in value.values())
        and bool(value["page"].strip())
    )


def check_id(id: str, place: str, ids: dict[str, str]) -> None:
    """Refuse an id that an earlier entry has; `ids` are those seen so far, with their positions."""
    if id and ids.setdefault(id, place) != place:
        first = ids[id].rpartition(", ")[2]
        raise InvalidArgument(
            f'{place}: the id "{id}" is already that of {first}', hint="Give every entry its own id."
        )


def _filters(value: Any, place: str) -> Filters:
    if not isinstance(value, dict):
        raise InvalidArgument(
            f'{place}: "filters" must be like {{"module": "ros2", "url": "..."}}', hint=SHAPE
        )
    check_keys(value, ("module", "url"), place)
    urls = parse_names(value.get("url"), place, "url")
    if len(urls) > 1:
        raise InvalidArgument(
            f'{place}: "url" must be one address', hint="A search filters by one page at most."
        )
    return Filters(parse_names(value.get("module"), place, "module"), urls[0] if urls else None)


def parse_names(value: Any, place: str, key: str) -> tuple[str, ...]:
    """Parse one name or a list of names."""
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidArgument(f'{place}: "{key}" must be a name or a list of names', hint=SHAPE)
    return tuple(dict.fromkeys(map(_clean, names)))


def _clean(text: str) -> str:
    return encodable(text).strip()


def _yes(entry: dict[str, Any], place: str, key: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise InvalidArgument(f'{place}: "{key}" must be true or false', hint=SHAPE)
    return value


def _aliases(value: Any, origin: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        isinstance(new, str) and new.strip() and old.strip() for old, new in value.items()
    ):
        raise InvalidArgument(
            f'{origin}: "aliases" must map old pages to new ones',
            hint='Such as {"old-page": "new-page"}.',
        )
    return {_clean(old): _clean(new) for old, new in value.items()}


def _alias_key(name: str) -> str:
    page, _, anchor = name.partition("#")
    return with_anchor(page_key(page), anchor)


def _threshold(value: Any, origin: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidArgument(
            f'{origin}: "threshold" must be a share between 0 and 1',
            hint="It is the share of questions that must pass.",
        )
    return float(value)


def check_keys(
    entry: dict[str, Any], known: tuple[str, ...], place: str, problem: str = 'there is no "{key}"'
) -> None:
    """Refuse an unknown key, and suggest the nearest known one."""
    for key in entry:
        if key not in known:
            near = nearest(key, known)
            raise InvalidArgument(
                f"{place}: {problem.format(key=key)}" + (f'; did you mean "{near}"?' if near else ""),
                hint=f"Known: {', '.join(known)}.",
            )

"""A suite: questions with expectations that are bound to the book, never to chunks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from recto.addresses import page_key
from recto.errors import InvalidArgument, InvalidQuery
from recto.evaluation.suite_files import SHAPE, Raw, read_json, read_raw
from recto.limits import check_query
from recto.modules import nearest
from recto.types import HEADING_SEPARATOR, NO_FILTERS, Filters

FORMAT = "recto-suite-1"
DEFAULT_THRESHOLD = 0.8
_SUITE_KEYS = ("$schema", "format", "name", "description", "aliases", "threshold", "queries")
_ENTRY_KEYS = ("id", "query", "expect", "nothing", "tags", "filters", "drafted", "note")
_EXPECT_KEYS = ("module", "page", "passage", "nothing")
_QUESTION_KEYS = ("id", "question", "type", "match", "expected", "evidence")
_QUESTION_SHAPE = (
    'A question looks like {"question": "What is ROS 2?", "match": "any", "expected": [{"page": "intro.md", "section": "ROS 2"}]}; '
    'without a section the whole page counts, and "match": "none" expects nothing.'
)


@dataclass(frozen=True, slots=True)
class Expectation:
    """A question, and the places of which one must come first; `passages` are finer than `pages`, and pages than `modules`."""

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
        """What is expected, in a report's words."""
        return "nothing" if self.nothing else " or ".join(self.modules or self.pages or self.passages)

    @property
    def key(self) -> str:
        """What the question is known by from run to run."""
        if self.id:
            return self.id
        narrowed = [*sorted(self.filters.modules), *([self.filters.page_url] if self.filters.page_url else [])]
        return f"{self.query} [{', '.join(narrowed)}]" if narrowed else self.query

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as a suite's file has it."""
        expect: dict[str, Any] = {
            key: names[0] if len(names) == 1 else list(names)
            for key, names in (("module", self.modules), ("page", self.pages), ("passage", self.passages))
            if names
        }
        filters: dict[str, Any] = {"module": list(self.filters.modules)} if self.filters.modules else {}
        if self.filters.page_url:
            filters["url"] = self.filters.page_url
        entry: dict[str, Any] = {"id": self.id, "query": self.query, "expect": expect | ({"nothing": True} if self.nothing else {})}
        entry |= {"tags": list(self.tags), "filters": filters, "drafted": self.drafted}
        return {key: value for key, value in entry.items() if value}


@dataclass(frozen=True)
class Suite:
    """Named expectations in order, where renamed pages are now, and the share of questions that has to pass."""

    name: str
    expectations: tuple[Expectation, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    threshold: float = DEFAULT_THRESHOLD

    @cached_property
    def digest(self) -> str:
        """What two suites of the same questions and expectations have in common, whatever file format they are in."""
        data = [sorted(self.aliases.items()), [expectation.to_dict() for expectation in self.expectations]]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

    def page(self, name: str) -> str:
        """Return where a page is now: `aliases` are followed, for a page with its sections or for one section."""
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
                return f"{page}#{anchor}" if anchor else page
        raise InvalidArgument(f'"aliases" lead in a circle from {name!r}', hint="Let every old page lead to the page that exists now.")

    @cached_property
    def _moved(self) -> dict[str, str]:
        return {_alias_key(old): new for old, new in self.aliases.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the suite as its file has it."""
        data: dict[str, Any] = {"format": FORMAT, "name": self.name}
        if self.aliases:
            data["aliases"] = dict(self.aliases)
        if self.threshold != DEFAULT_THRESHOLD:
            data["threshold"] = self.threshold
        return data | {"queries": [expectation.to_dict() for expectation in self.expectations]}


def documented_suite() -> Suite:
    """Return the five queries of the query contract."""
    text = files("recto.evaluation").joinpath("documented.json").read_text("utf-8")
    return _whole(read_json(text, "documented.json"))


def load_suite(path: Path) -> Suite:
    """Read a suite's file; what cannot be understood is an error that names its place."""
    return _whole(read_raw(path))


def load_strict_suite(path: Path) -> Suite:
    """Read a suite's file in which no question is asked twice."""
    suite = load_suite(path)
    for message in duplicates(suite):
        raise InvalidArgument(message, hint="Join the two entries, or narrow one of them by filters.")
    return suite


def survey(path: Path) -> tuple[Suite, list[str]]:
    """Read a suite's file and return what can be understood of it, and all that is wrong with it."""
    problems: list[str] = []
    suite = _understood(read_raw(path), problems)
    return suite, problems + duplicates(suite)


def duplicates(suite: Suite) -> list[str]:
    """Name the questions that are asked twice with the same filters, with both places."""
    seen: dict[tuple[str, Filters], Expectation] = {}
    found = []
    for expectation in suite.expectations:
        asked = (" ".join(expectation.query.casefold().split()), expectation.filters)
        if asked in seen:
            found.append(f"{expectation.place}: the question {expectation.query!r} is the one of {seen[asked].place}")
        seen.setdefault(asked, expectation)
    return found


def _whole(raw: Raw) -> Suite:
    return _understood(raw, None)


def _understood(raw: Raw, problems: list[str] | None) -> Suite:
    """Understand the header, then every entry; what is wrong is raised, or noted in `problems` and left out."""
    _check_keys(raw.header, _SUITE_KEYS, raw.origin)
    name, told = raw.header.get("name"), raw.header.get("format", FORMAT)
    if told != FORMAT:
        raise InvalidArgument(f"{raw.origin}: its format is {told!r}", hint=f"This version of Recto reads {FORMAT}.")
    expectations: list[Expectation] = []
    ids: dict[str, str] = {}
    for place, entry in raw.entries:
        try:
            expectation = _expectation(entry, place)
            if expectation.id and ids.setdefault(expectation.id, place) != place:
                raise InvalidArgument(f'{place}: the id "{expectation.id}" is the one of {ids[expectation.id]}', hint="Give each its own.")
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
    _check_keys(entry, _ENTRY_KEYS, place)
    _check_keys(expect, _EXPECT_KEYS, place)
    try:
        query = check_query(entry.get("query", ""))
    except InvalidQuery as error:
        raise InvalidArgument(f"{place}: {error.message}", hint=SHAPE) from error
    modules, pages, passages = (_names(expect.get(key), place, key) for key in ("module", "page", "passage"))
    nothing = _yes(expect, place, "nothing") or _yes(entry, place, "nothing")
    if nothing and (modules or pages or passages):
        raise InvalidArgument(f'{place}: it expects "nothing" and something', hint='Leave "nothing" out, or everything else.')
    if not (modules or pages or passages or nothing):
        raise InvalidArgument(f'{place}: it expects neither a "module" nor a "page", a "passage" or "nothing"', hint=SHAPE)
    if any(page.startswith("#") for page in pages):
        raise InvalidArgument(f'{place}: a "page" begins with its path or address, before the "#"', hint='Such as "intro#goals".')
    drafted, tags = _yes(entry, place, "drafted"), _names(entry.get("tags"), place, "tags")
    id = entry.get("id", "")
    if not isinstance(id, str) or ("id" in entry and not id.strip()):
        raise InvalidArgument(f'{place}: "id" must be text', hint=SHAPE)
    filters = _filters(entry.get("filters", {}), place)
    return Expectation(query, modules, pages, passages, nothing, _clean(id), tags, filters, drafted, place)


def _from_question(entry: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a reader's question as a suite's entry; a section is named by its heading, as `page > heading`."""
    _check_keys(entry, _QUESTION_KEYS, place)
    expected, match = entry.get("expected", []), entry.get("match", "any")
    if match not in {"any", "all", "none"}:
        raise InvalidArgument(f'{place}: "match" must be any, all or none', hint=_QUESTION_SHAPE)
    if not isinstance(expected, list) or not all(map(_is_place, expected)):
        raise InvalidArgument(f'{place}: "expected" must be a list of pages with sections', hint=_QUESTION_SHAPE)
    if bool(expected) == (match == "none"):
        raise InvalidArgument(f'{place}: "match" is {match}, but "expected" has {len(expected)} pages', hint=_QUESTION_SHAPE)
    pages = [HEADING_SEPARATOR.join(filter(None, (each["page"], each.get("section", "").strip()))) for each in expected]
    converted = {"query": entry["question"], "expect": {"page": pages} if pages else {"nothing": True}, "tags": entry.get("type")}
    return converted | ({"id": entry["id"]} if "id" in entry else {})


def _is_place(value: Any) -> bool:
    """Whether a value is a page with, perhaps, a section."""
    return (
        isinstance(value, dict)
        and {"page"} <= set(value) <= {"page", "section"}
        and all(isinstance(text, str) for text in value.values())
        and bool(value["page"].strip())
    )


def _filters(value: Any, place: str) -> Filters:
    if not isinstance(value, dict):
        raise InvalidArgument(f'{place}: "filters" must be like {{"module": "ros2", "url": "..."}}', hint=SHAPE)
    _check_keys(value, ("module", "url"), place)
    urls = _names(value.get("url"), place, "url")
    if len(urls) > 1:
        raise InvalidArgument(f'{place}: "url" must be one address', hint="A search is narrowed to one page at most.")
    return Filters(_names(value.get("module"), place, "module"), urls[0] if urls else None)


def _names(value: Any, place: str, key: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidArgument(f'{place}: "{key}" must be a name or a list of names', hint=SHAPE)
    return tuple(dict.fromkeys(map(_clean, names)))


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").strip()  # half of a surrogate pair is no character


def _yes(entry: dict[str, Any], place: str, key: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise InvalidArgument(f'{place}: "{key}" must be true or false', hint=SHAPE)
    return value


def _aliases(value: Any, origin: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(new, str) and new.strip() and old.strip() for old, new in value.items()):
        raise InvalidArgument(f'{origin}: "aliases" must lead from old pages to new ones', hint='Such as {"old-page": "new-page"}.')
    return {_clean(old): _clean(new) for old, new in value.items()}


def _alias_key(name: str) -> str:
    page, _, anchor = name.partition("#")
    return f"{page_key(page)}#{anchor}" if anchor else page_key(page)


def _threshold(value: Any, origin: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidArgument(
            f'{origin}: "threshold" must be a share between 0 and 1', hint="It is the share of questions that has to pass."
        )
    return float(value)


def _check_keys(entry: dict[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in entry:
        if key not in known:
            near = nearest(key, known)
            raise InvalidArgument(
                f'{place}: "{key}" is not known' + (f'; did you mean "{near}"?' if near else ""), hint=f"Known: {', '.join(known)}."
            )

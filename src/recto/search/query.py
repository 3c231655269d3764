"""Check queries and search parameters, with the same errors everywhere; choose versions and locales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from recto._util.languages import language_tag
from recto._util.text import encodable
from recto.errors import InvalidArgument, InvalidQuery
from recto.types.request import (
    ALL_VERSIONS,
    DEFAULT_TOP_K,
    MAX_QUERY,
    MAX_SCORE,
    MAX_TOP_K,
    OPTIONS,
    SearchOptions,
    SearchRequest,
)
from recto.types.search import MODES, NO_FILTERS, Filters, Mode

if TYPE_CHECKING:
    from recto.protocols import Index
    from recto.types.index import Fingerprint

DEFAULT_CONTEXT_TOKENS = 4000
"""Every MCP client accepts a tool result of this size."""
DEFAULT_CONTEXT_TOP_K = MAX_TOP_K
"""The budget of tokens limits a context; scores of more chunks say which parts of a section matter."""
CONTRACT_MODES: tuple[Mode, ...] = ("dense", "hybrid")
"""The modes of the contract entry points, whose scores are between 0 and 1; the first is the default."""
_UNVERSIONED = ""
"""The version of pages that are part of all versions."""
_DEFAULTS = SearchRequest()
_FILTER_NAMES = ("module", "url", "lang", "version", "prefer")
_FILTERS_EXAMPLE = 'Such as Filters(modules=("ros2",)).'


class ParameterNames(NamedTuple):
    """The names of the search parameters at an entry point, for error messages."""

    top_k: str
    module: str
    url: str
    min_score: str


ARGUMENTS = ParameterNames("top_k", "A module's name", "A page's address", "min_score")
FLAGS = ParameterNames("--top-k", "--module", "--url", "--min-score")


def check_query(query: str) -> str:
    """Return a query without surrounding white space, or raise `InvalidQuery`."""
    text = clean_text(query, "Query")
    if not text:
        raise InvalidQuery("Query cannot be empty", hint='Ask a question, such as "What is ROS 2?"')
    if len(text) > MAX_QUERY:
        raise InvalidQuery(
            f"Query is too long: {len(text)} characters, at most {MAX_QUERY} are allowed",
            hint="Shorten it to the question itself.",
        )
    return text


def clean_text(text: str, what: str) -> str:
    """Strip a text and replace lone surrogates; raise `InvalidQuery` if it is not a string."""
    if not isinstance(text, str):
        raise InvalidQuery(f"{what} must be text, not {type(text).__name__}", hint="Pass a string.")
    return encodable(text).strip()


def check_queries(queries: Iterable[str]) -> list[str]:
    """Check several queries; raise `InvalidQuery` if a single string is passed instead of a list."""
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise InvalidQuery(
            f"Queries must be a list of strings, not {type(queries).__name__}",
            hint="Pass a single query as [query].",
        )
    return [check_query(query) for query in queries]


def make_request(
    query: str | SearchRequest, names: ParameterNames = ARGUMENTS, **options: Unpack[SearchOptions]
) -> SearchRequest:
    """Return a checked request for a query; options replace the fields of a given request.

    Raise `InvalidQuery` or `InvalidArgument`, with the names that the entry point has for the options.
    """
    request = query if isinstance(query, SearchRequest) else SearchRequest(query)
    return replace(make_options(names, request, **options), query=check_query(request.query))


def make_options(
    names: ParameterNames = ARGUMENTS,
    request: SearchRequest = _DEFAULTS,
    **options: Unpack[SearchOptions],
) -> SearchRequest:
    """Return a checked request without checking its query, for several queries or a selected text."""
    values: dict[str, Any] = dict(options)
    filters = to_filters(values.pop("filters", request.filters))
    given = {name: values.pop(name, None) for name in _FILTER_NAMES}
    if any(value is not None for value in given.values()):
        filters = _with_filters(filters, **given)
    try:
        request = replace(request, **values, filters=filters)
    except TypeError:
        unknown = ", ".join(map(repr, sorted(values.keys() - SearchOptions.__annotations__.keys())))
        message = f"There is no search option {unknown}"
        raise InvalidArgument(message, hint=f"Options: {', '.join(SearchOptions.__annotations__)}.") from None
    check_request(request, names)
    return request


def to_filters(filters: Filters | Mapping[str, Any]) -> Filters:
    """Return filters that were passed as `Filters`, or as a mapping with keys such as `module` and `url`."""
    if not isinstance(filters, Mapping):
        return filters
    if unknown := set(filters) - set(_FILTER_NAMES):
        raise InvalidArgument(
            f"There is no filter {', '.join(map(repr, sorted(map(str, unknown))))}",
            hint=f"Filters are {', '.join(map(repr, _FILTER_NAMES))}. A module is a name or a list of names.",
        )
    return _with_filters(NO_FILTERS, **filters)


def _with_filters(
    filters: Filters,
    module: Any = None,
    url: str | None = None,
    lang: str | None = None,
    version: str | None = None,
    prefer: str | Sequence[str] | None = None,
) -> Filters:
    """Add the restrictions that an entry point names one by one."""
    if module:
        names = (module,) if isinstance(module, str) or not isinstance(module, Iterable) else tuple(module)
        filters = replace(filters, modules=names)
    if url is not None:
        filters = replace(filters, page_url=url)
    if lang is not None:
        filters = replace(filters, language=to_language(lang))
    if version is not None:
        filters = replace(filters, versions=(version,))
    if prefer:
        filters = replace(filters, preferred=split_preferred(prefer))
    return filters


def split_preferred(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return versions and languages; a text separates them by commas."""
    parts = names.split(",") if isinstance(names, str) else names
    return tuple(filter(None, map(str.strip, parts)))


def to_language(tag: str | None) -> str | None:
    """Return the language of a tag such as `pt-BR`; raise `InvalidArgument` if it is not a tag."""
    if tag is None:
        return None
    if not (language := language_tag(tag)):
        raise InvalidArgument(f"{tag!r} is not a language", hint="Use a tag such as de, ja or zh.")
    return language


def check_request(request: SearchRequest, names: ParameterNames = ARGUMENTS) -> None:
    """Raise `InvalidArgument` unless all options of a request are valid; its query is not checked."""
    check_mode(request.mode)
    if request.group_by not in (None, "page"):
        raise InvalidArgument(
            f'group_by must be "page" or None, not {request.group_by!r}',
            hint="Leave it out for a flat list of chunks.",
        )
    check_top_k(request.top_k, name=names.top_k)
    _check_filters(request.filters, names)
    if request.min_score is not None:
        _check_min_score(request.min_score, names, request.mode)
    for option in OPTIONS:
        value = getattr(request, option.name, None)
        if option.type is int and option.name != "top_k" and value is not None:
            check_range(option.name, value, int(option.minimum or 0), int(option.maximum or 0))


def check_range(
    name: str, value: int, low: int, high: int, hint: str = "Leave it out for the default."
) -> None:
    """Raise `InvalidArgument` unless a value is a whole number within limits."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgument(f"{name} must be between {low} and {high}", hint=hint)


def _check_filters(filters: Filters, names: ParameterNames) -> None:
    if not isinstance(filters, Filters) or not isinstance(filters.modules, tuple | list):
        raise InvalidArgument("filters must be Filters with a tuple of module names", hint=_FILTERS_EXAMPLE)
    url = filters.page_url
    if not all(map(is_text, filters.modules)) or not (url is None or is_text(url)):
        raise InvalidArgument("Module names and page addresses must be text", hint=_FILTERS_EXAMPLE)
    if not all(map(is_text, filters.versions)) or any(not version.strip() for version in filters.versions):
        raise InvalidArgument("A version must be text and cannot be empty", hint='Such as "2.0", or "all".')
    if any(not module.strip() for module in filters.modules):
        raise InvalidArgument(
            f"{names.module} cannot be empty", hint="Name a module, or leave the filter out."
        )
    if url is not None and not url.strip():
        raise InvalidArgument(
            f"{names.url} cannot be empty", hint="Give a page's address, or leave the filter out."
        )


def _check_min_score(min_score: float, names: ParameterNames, mode: Mode) -> None:
    if not isinstance(min_score, int | float) or isinstance(min_score, bool):
        raise InvalidArgument(
            f"{names.min_score} must be a number", hint="It is compared with the score of each hit."
        )
    maximum = 1 if mode == "dense" else MAX_SCORE
    if not -1 <= min_score <= maximum:
        hint = "It is a cosine." if mode == "dense" else "It is compared with the score of the chosen mode."
        raise InvalidArgument(f"{names.min_score} must be between -1 and {maximum}", hint=hint)


def check_mode(mode: Mode, modes: Sequence[Mode] = MODES) -> None:
    """Raise `InvalidArgument` unless an entry point supports a mode."""
    if mode not in modes:
        raise InvalidArgument(
            f"mode must be one of {', '.join(modes)}, not {mode!r}", hint=f"The default is {modes[0]}."
        )


def check_top_k(top_k: int, most: int = MAX_TOP_K, name: str = ARGUMENTS.top_k, *, least: int = 1) -> None:
    """Raise `InvalidArgument` unless `top_k` is a whole number from the minimum to the maximum."""
    check_range(name, top_k, least, most, f"The default is {DEFAULT_TOP_K}.")


def vector_problem(vector: Sequence[Any], dim: int) -> str:
    """Return why a vector cannot be searched for, or an empty string."""
    if len(vector) != dim:
        return f"{len(vector)} numbers where {dim} are needed"
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in vector):
        return "not everything in it is a number"
    return "" if all(map(isfinite, vector)) else "not every number is finite"


def is_text(value: object) -> bool:
    """Return whether a value is a string without lone surrogates."""
    return isinstance(value, str) and encodable(value) == value


def narrowed(filters: Filters, made: Fingerprint | None) -> Filters:
    """Return filters with the versions and locales that they stand for.

    Without a version, they are the preferred or the current ones, unless the filters name a page.
    """
    if filters.versions == (ALL_VERSIONS,):
        filters = replace(filters, versions=())
    elif made and made.versions and not filters.versions and filters.page_url is None:
        filters = replace(filters, versions=_default_versions(filters.preferred, made))
    if made and filters.versions and {*filters.versions} <= {name for name, _ in made.versions}:
        filters = replace(filters, versions=(*filters.versions, _UNVERSIONED))
    if made and made.locales and filters.page_url is None:
        tags = filters.preferred if filters.language is None else (filters.language,)
        if locales := next(filter(None, (_locales_of(tag, made.locales) for tag in tags)), ()):
            filters = replace(filters, locales=locales, language=None)
    return replace(filters, preferred=()) if filters.preferred else filters


def current_edition(index: Index) -> Filters:
    """Return the filters for the current versions of a book, in all its locales."""
    return narrowed(NO_FILTERS, index.info.fingerprint)


def other_versions(given: Filters, used: Filters, made: Fingerprint | None) -> tuple[str, ...]:
    """Return a note about the versions that were not searched, if the filters did not choose any."""
    if not made or given.versions or given.preferred or not used.versions:
        return ()
    names = [name for name in used.versions if name]
    others = [name for name, _ in made.versions if name not in names]
    return (f"Only version {', '.join(names)} was searched. The book also has: {', '.join(others)}.",)


def _default_versions(preferred: Sequence[str], made: Fingerprint) -> tuple[str, ...]:
    older = tuple(name for name, is_current in made.versions if not is_current and name in preferred)
    return older[:1] or tuple(name for name, is_current in made.versions if is_current)


def _locales_of(tag: str, locales: Sequence[str]) -> tuple[str, ...]:
    """Return the locale with a tag such as `pt-BR`, else all locales of its language."""
    tag = tag.lower().replace("_", "-")
    exact = tuple(one for one in locales if one.lower().replace("_", "-") == tag)
    return exact or tuple(one for one in locales if language_tag(one) == (language_tag(tag) or tag))

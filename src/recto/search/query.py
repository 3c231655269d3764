"""What a search may be asked for; every surface refuses the rest with the same words, and the names that it has for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recto.errors import InvalidArgument, InvalidQuery
from recto.types import MODES, Filters, GroupBy, Mode

MAX_QUERY = 2000
MAX_TOP_K = 100
DEFAULT_TOP_K = 5
CONTRACT_MODES: tuple[Mode, ...] = ("dense", "hybrid")
"""The modes of the contract entry points, whose scores are between 0 and 1; the first is the default."""
MAX_SCORE = 1000
"""No score reaches it: a cosine similarity is at most 1, a BM25 score some tens."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a caller knows the parts of a search by."""

    top_k: str
    module: str
    url: str
    min_score: str


ARGUMENTS = Names("top_k", "A module's name", "A page's address", "min_score")
FLAGS = Names("--top-k", "--module", "--url", "--min-score")


def check_query(query: str) -> str:
    """Return the text that is searched for, or say why there is none."""
    if not isinstance(query, str):
        raise InvalidQuery(f"Query must be text, not {type(query).__name__}", hint="Pass a string.")
    text = (
        query.encode("utf-8", "replace").decode("utf-8").strip()
    )  # half of a surrogate pair is no character
    if not text:
        raise InvalidQuery("Query cannot be empty", hint='Ask a question, such as "What is ROS 2?"')
    if len(text) > MAX_QUERY:
        raise InvalidQuery(
            f"Query is too long: {len(text)} characters, at most {MAX_QUERY} are allowed",
            hint="Shorten it to the question itself.",
        )
    return text


def check_queries(queries: Iterable[str]) -> list[str]:
    """Return the texts that are searched for; one text is not taken for a list of its letters."""
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise InvalidQuery(
            f"Queries must be a list of texts, not {type(queries).__name__}",
            hint="Pass one question as [question].",
        )
    return [check_query(query) for query in queries]


def to_filters(filters: Filters | Mapping[str, Any]) -> Filters:
    """Return filters that were given as `Filters` or as a mapping with the keys `module` and `url`."""
    if not isinstance(filters, Mapping):
        return filters
    if unknown := set(filters) - {"module", "url"}:
        raise InvalidArgument(
            f"There is no filter {', '.join(map(repr, sorted(map(str, unknown))))}",
            hint='Filters are "module" (a name, or a list of names) and "url".',
        )
    modules = filters.get("module") or ()
    if isinstance(modules, str) or not isinstance(modules, Iterable):
        modules = (modules,)
    return Filters(tuple(modules), filters.get("url"))


def check_search(
    top_k: int,
    filters: Filters,
    min_score: float | None,
    names: Names = ARGUMENTS,
    mode: Mode = "dense",
    group_by: GroupBy | None = None,
) -> None:
    """Refuse what no search can be asked for."""
    check_mode(mode)
    if group_by not in (None, "page"):
        raise InvalidArgument(
            f'group_by must be "page" or None, not {group_by!r}',
            hint="Leave it out for a flat list of chunks.",
        )
    check_top_k(top_k, name=names.top_k)
    if not isinstance(filters, Filters) or not isinstance(filters.modules, tuple | list):
        raise InvalidArgument(
            "filters must be Filters with a tuple of module names", hint='Such as Filters(modules=("ros2",)).'
        )
    if not all(is_text(module) for module in filters.modules) or not (
        filters.page_url is None or is_text(filters.page_url)
    ):
        raise InvalidArgument(
            "Module names and page addresses must be text", hint='Such as Filters(modules=("ros2",)).'
        )
    if any(not module.strip() for module in filters.modules):
        raise InvalidArgument(
            f"{names.module} cannot be empty", hint="Name a module, or leave the filter out."
        )
    if filters.page_url is not None and not filters.page_url.strip():
        raise InvalidArgument(
            f"{names.url} cannot be empty", hint="Give a page's address, or leave the filter out."
        )
    if min_score is None:
        return
    if not isinstance(min_score, int | float) or isinstance(min_score, bool):
        raise InvalidArgument(
            f"{names.min_score} must be a number", hint="It is compared with the score of each hit."
        )
    if mode == "dense" and not -1 <= min_score <= 1:
        raise InvalidArgument(f"{names.min_score} must be between -1 and 1", hint="It is a cosine.")
    if not -1 <= min_score <= MAX_SCORE:
        raise InvalidArgument(
            f"{names.min_score} must be between -1 and {MAX_SCORE}",
            hint="It is compared with the score of the chosen mode.",
        )


def check_mode(mode: Mode, modes: Sequence[Mode] = MODES) -> None:
    """Refuse a mode that an entry point does not have."""
    if mode not in modes:
        raise InvalidArgument(
            f"mode must be one of {', '.join(modes)}, not {mode!r}", hint=f"The default is {modes[0]}."
        )


def check_top_k(top_k: int, most: int = MAX_TOP_K, name: str = ARGUMENTS.top_k) -> None:
    """Refuse a number of results outside the contract."""
    if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= most:
        raise InvalidArgument(f"{name} must be between 1 and {most}", hint=f"The default is {DEFAULT_TOP_K}.")


def is_text(value: object) -> bool:
    """Tell whether a value is text that can be stored anywhere: half of a surrogate pair cannot."""
    return isinstance(value, str) and value.encode("utf-8", "replace").decode("utf-8") == value

"""The search request: the one value that says what to search, and the options that entry points offer.

An entry point builds its parameters from `OPTIONS` and passes their values on as keyword arguments, so a new
option is one row of the table, one field of `SearchRequest`, and the code that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, cast

from recto.types.search import MODES, NO_FILTERS, Filters, GroupBy, Mode

MAX_QUERY = 2000
"""Characters of a query: a page of text, far more than a question."""
MAX_TOP_K = 100
DEFAULT_TOP_K = 5
MAX_SCORE = 1000
"""No score reaches it: a cosine similarity is at most 1, a BM25 score some tens."""
MIN_TOKENS, MAX_TOKENS = 100, 100_000
"""Of a text for a language model: less is not a section, more does not fit into a prompt."""
ALL_VERSIONS = "all"
"""As a version: all versions of the book, in an index run and in a search."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to search for, and how: every entry point builds it, and the retriever takes it.

    With `group_by="page"`, `top_k` counts pages. With `section_tokens`, each hit has the text of its section,
    or the part of it with at most that many tokens.
    """

    query: str = ""
    top_k: int = DEFAULT_TOP_K
    mode: Mode = "hybrid"
    filters: Filters = NO_FILTERS
    min_score: float | None = None
    group_by: GroupBy | None = None
    section_tokens: int | None = None

    @property
    def options(self) -> SearchOptions:
        """Everything but the query, as keyword arguments."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "query"}
        return cast("SearchOptions", values)


class SearchOptions(TypedDict, total=False):
    """The options of a search as keyword arguments; `OPTIONS` describes them.

    `filters` restricts the search with `Filters`, or with a mapping such as `{"module": "ros2"}`. The options
    from `module` to `prefer` do the same one by one.
    """

    top_k: int
    mode: Mode
    filters: Filters | Mapping[str, Any]
    module: str | Sequence[str] | None
    url: str | None
    lang: str | None
    version: str | None
    prefer: str | Sequence[str] | None
    min_score: float | None
    group_by: GroupBy | None
    section_tokens: int | None


Operation = Literal["search", "batch", "related", "context"]
"""Search for a query, for several, for text related to a selected text, for the context of a question."""
EntryPoint = Literal["cli", "http", "mcp", "framework"]


@dataclass(frozen=True, slots=True)
class Option:
    """A search option: its name and type on all entry points, and what its users read about it.

    `type` is the type of a value that is not None; `tuple` stands for one or more names. `flag` is the name
    on the command line, with `metavar` for its value and `flag_help`, if that differs from `help`.
    `for_agents` is the description that a model reads.
    """

    name: str
    type: Any
    help: str
    default: Any = None
    flag: str = ""
    metavar: str = ""
    flag_help: str = ""
    for_agents: str = ""
    minimum: float | None = None
    maximum: float | None = None
    max_length: int | None = None
    operations: tuple[Operation, ...] = ("search", "batch", "related", "context")
    entry_points: tuple[EntryPoint, ...] = ("cli", "http", "mcp", "framework")


_HITS: tuple[Operation, ...] = ("search", "batch", "related")

OPTIONS = (
    Option(
        "top_k",
        int,
        "The maximum number of results.",
        default=DEFAULT_TOP_K,
        flag="--top-k",
        metavar="INT",
        flag_help=f"Number of results to return (1-{MAX_TOP_K}).",
        for_agents="The maximum number of results, such as 5.",
        minimum=1,
        maximum=MAX_TOP_K,
    ),
    Option(
        "module",
        tuple,
        "Only this module, or any of these modules.",
        flag="--module",
        metavar="NAME",
        flag_help="Filter by module. Repeat it, or separate names by commas, for several.",
        for_agents="Search only these modules, such as [{module}]; list_modules has the names. Omit it to "
        "search the whole book.",
        max_length=100,
    ),
    Option(
        "url",
        str,
        "Only the page with this URL.",
        flag="--url",
        metavar="URL",
        flag_help="Filter by page URL.",
        for_agents="Search only the page with this URL: the `url` of a result, or what the user reads.",
        operations=_HITS,
    ),
    Option(
        "lang",
        str,
        "Only pages in this language, such as de.",
        flag="--lang",
        metavar="TAG",
        flag_help="Filter by language, such as de.",
        for_agents="Search only pages in this language, such as de. Usually omitted.",
        max_length=35,  # the longest tag that RFC 5646 expects
    ),
    Option(
        "version",
        str,
        "This version of the book, or `all`; default: the current one.",
        flag="--docs-version",  # --version shows the version of Recto
        metavar="NAME",
        flag_help="Filter by version of the book, or `all`.",
        for_agents="Search this version of the book instead of the current one, or `all`. Usually omitted.",
        max_length=100,
    ),
    Option(
        "prefer",
        str,
        "Versions and languages of the page that the reader is on, separated by commas, such as 2.0,de: "
        "they are searched if the book has them, and there is no `version` or `lang`.",
        max_length=200,
        entry_points=("http",),
    ),
    Option(
        "min_score",
        float,
        "Only results with at least this score; in dense mode it is a cosine, at most 1.",
        flag="--min-score",
        metavar="SCORE",
        flag_help="Drop results with a lower score.",
        for_agents="Drop results with a lower score. Usually omitted.",
        minimum=-1,
        maximum=MAX_SCORE,
        operations=_HITS,
    ),
    Option(
        "mode",
        Mode,
        "Rank by cosine similarity (dense), by BM25 (lexical), or by their weighted sum (hybrid).",
        default=MODES[0],
        flag="--mode",
        flag_help="Rank by vector similarity (dense), by BM25 (lexical), or by both.",
        for_agents="hybrid (default): by meaning and by words. lexical: by words only, for an exact name, "
        "option or error code, such as {name}. dense: by meaning only.",
    ),
    Option(
        "group_by",
        GroupBy,
        '"page": return the best `top_k` pages with their chunks instead of single chunks.',
        flag="--by-page",
        flag_help="Group the results by page.",
        for_agents='"page": return the best `top_k` pages, each with its results one after another.',
        operations=("search", "batch"),
    ),
    Option(
        "section_tokens",
        int,
        "Also return `section_text`: the section around each chunk, of at most this many tokens.",
        minimum=MIN_TOKENS,
        maximum=MAX_TOKENS,
        operations=("search",),
        entry_points=("http", "framework"),
    ),
)
"""The options of all entry points but the contracts, whose documents name theirs."""


def options_of(entry_point: EntryPoint, operation: Operation = "search") -> tuple[Option, ...]:
    """Return the options that an entry point offers for an operation."""
    return tuple(
        option for option in OPTIONS if operation in option.operations and entry_point in option.entry_points
    )

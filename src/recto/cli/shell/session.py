"""A shell session: takes lines and returns replies, independent of the terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from recto._util.text import plural
from recto.cli.output import one_line
from recto.cli.render import Style, results, results_json, wrap_message
from recto.cli.shell.actions import find_command
from recto.errors import InvalidArgument, RectoError
from recto.search.query import DEFAULT_TOP_K
from recto.types import NO_FILTERS, Filters, Hit, Mode, SearchResponse, Timings

if TYPE_CHECKING:
    from recto.search.lexical import QueryWord
    from recto.search.retriever import Retriever

_STEPS = ("embed", "search", "total")
_MAX_TIMINGS = 10_000
_END_OF_TEXT = ("", ".")


class LatencyStats:
    """The timings of a session's searches."""

    def __init__(self) -> None:
        self._timings: deque[Timings] = deque(maxlen=_MAX_TIMINGS)
        self.ready_ms: float | None = None

    def add(self, timings: Timings) -> None:
        """Add the timings of a search."""
        self._timings.append(timings)

    def text(self) -> str:
        """Return the statistics as a table."""
        ready = "" if self.ready_ms is None else f"Model and index were ready in {self.ready_ms:.0f} ms.\n"
        if not self._timings:
            return f"{ready}No searches yet."
        from recto._util.numbers import percentile

        count = len(self._timings)
        lines = [f"{ready}{plural(count, 'search', 'searches')}, in milliseconds:"]
        lines.append(f"{'':8}" + "".join(f"{name:>9}" for name in ("last", "p50", "p95", "max")))
        for name, values in zip(_STEPS, zip(*map(astuple, self._timings), strict=True), strict=True):
            ordered = sorted(values)
            row = (values[-1], percentile(ordered, 0.5), percentile(ordered, 0.95), ordered[-1])
            lines.append(f"{name:8}" + "".join(f"{value:9.1f}" for value in row))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """How to search, and how to show the results."""

    filters: Filters = NO_FILTERS
    top_k: int = DEFAULT_TOP_K
    min_score: float | None = None
    verbose: bool = False
    as_json: bool = False
    mode: Mode = "hybrid"


@dataclass(frozen=True, slots=True)
class ShellQuery:
    """A question, a selected text, or a question about a selected text."""

    question: str = ""
    selection: str = ""


@dataclass(frozen=True, slots=True)
class ShellResult:
    """A query and its response."""

    query: ShellQuery
    response: SearchResponse


@dataclass(frozen=True, slots=True)
class ShellReply:
    """The reply to a line; `found` is false for a search without results, `ends` ends the session."""

    text: str = ""
    warnings: tuple[str, ...] = ()
    error: RectoError | None = None
    found: bool = True
    ends: bool = False


@dataclass(slots=True)
class _PendingSelection:
    """A text that is being pasted or, if `complete`, waits for a question about it."""

    lines: list[str] = field(default_factory=list)
    complete: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class ShellSession:
    """Runs the lines of a shell session, one after the other."""

    def __init__(
        self,
        retriever: Retriever,
        settings: ShellSettings | None = None,
        style: Callable[[], Style] = Style,
        *,
        scripted: bool = False,
    ) -> None:
        self.retriever = retriever
        self.settings = settings or ShellSettings()
        self.style = style
        self.scripted = scripted
        self.latency = LatencyStats()
        self.query: ShellQuery | None = None
        self._result: ShellResult | None = None
        self._selection: _PendingSelection | None = None
        self._generation = ""
        self._warned: set[str] = set()

    @property
    def greeting(self) -> str:
        """The first message to a person."""
        info, style = self.retriever.open().info, self.style()
        found = f"{self.retriever.collection}: {plural(info.chunks, 'chunk')}."
        text = f"{found} Type a query, or :help for the commands."
        return "\n".join(style.dim(line) for line in wrap_message(text, style.width))

    @property
    def pasting(self) -> bool:
        """Whether the next line is part of a selected text."""
        return self._selection is not None and not self._selection.complete

    @property
    def prompt(self) -> str:
        """The prompt for the next line."""
        if self._selection is not None:
            return "text> " if self.pasting else "question> "
        filters = self.settings.filters
        page = (filters.page_url or "").rstrip("/").rpartition("/")[2]
        filtered = " ".join(part for part in (",".join(filters.modules), page) if part)
        return f"recto ({one_line(filtered)})> " if filtered else "recto> "

    def warm_up(self) -> None:
        """Load the model and open the index, so that the first search is as fast as the others."""
        began = perf_counter()
        self.retriever.warm_up()
        if self.latency.ready_ms is None:
            self.latency.ready_ms = (perf_counter() - began) * 1e3

    def feed(self, line: str) -> ShellReply:
        """Run a line; the reply contains its error, if any."""
        try:
            if self._selection is not None and not self._selection.complete:
                return self._paste(self._selection, line)
            return self._run(line.strip())
        except RectoError as error:
            return ShellReply(error=error)

    def finish(self) -> ShellReply:
        """Handle the end of the input: it ends a selected text first, then the session."""
        if self._selection is None:
            return ShellReply(ends=True)
        return self.feed("." if self.pasting else "")

    def cancel(self) -> None:
        """Drop the selected text."""
        self._selection = None

    def start_paste(self) -> ShellReply:
        """Take the next lines as a selected text."""
        self._selection = _PendingSelection()
        return self.message("Paste or type the text; an empty line ends it.")

    def select(self, text: str, question: str = "") -> ShellReply:
        """Select a text, and search at once if there is a question about it."""
        if question:
            return self.search(ShellQuery(question, text))
        self._selection = _PendingSelection([text], complete=True)
        return self.message(
            f"Selected {plural(len(text.strip()), 'character')}. "
            "Ask a question about the text, or press Enter for related chunks."
        )

    def message(self, text: str) -> ShellReply:
        """Return a message for people; scripts get none."""
        if self.scripted:
            return ShellReply()
        style = self.style()
        return ShellReply("\n".join(style.dim(line) for line in wrap_message(text, style.width)))

    def search(self, query: ShellQuery) -> ShellReply:
        """Search with the current settings, and remember the query and the result."""
        self.query = query
        self._selection = None
        self.warm_up()
        now, retriever = self.settings, self.retriever
        if query.selection:
            question = query.question or None
            response = retriever.related(
                query.selection, question, now.top_k, now.filters, now.min_score, mode=now.mode
            )
        else:
            response = retriever.search(query.question, now.top_k, now.filters, now.min_score, mode=now.mode)
        self._result = ShellResult(query, response)
        self.latency.add(response.timings)
        warnings = tuple(warning for warning in response.warnings if warning not in self._warned)
        self._warned.update(warnings)
        return ShellReply(self._show(query, response), warnings, found=bool(response.hits))

    def words(self, response: SearchResponse) -> tuple[QueryWord, ...]:
        """Return the words of a query that are highlighted in its results."""
        from recto.search.display import response_words

        return response_words(self.retriever, response)

    def result(self) -> ShellResult:
        """Return the last result; raise if it has no hits."""
        if self._result is None or not self._result.response.hits:
            raise InvalidArgument("There are no results to choose from", hint="Type a query first.")
        return self._result

    def hit(self, number: str) -> Hit:
        """Return the result with a number."""
        hits = self.result().response.hits
        valid = number.isdecimal() and number.isascii() and len(number) <= 3
        if not valid or not 1 <= int(number) <= len(hits):
            raise InvalidArgument(
                f"There is no result {number[:20]!r}", hint=f"Give a number from 1 to {len(hits)}."
            )
        return hits[int(number) - 1]

    def switch(self, retriever: Retriever) -> None:
        """Use another retriever from now on."""
        self.retriever = retriever
        self.query = self._result = None
        self._generation = ""

    def _run(self, text: str) -> ShellReply:
        if text.startswith(":") and not text.startswith("::"):
            name, _, argument = text[1:].partition(" ")
            return find_command(name).run(self, argument.strip())
        question = text[1:] if text.startswith("::") else text
        if self._selection is not None:
            return self.search(ShellQuery(question, self._selection.text))
        return self.search(ShellQuery(question)) if question else ShellReply()

    def _paste(self, selection: _PendingSelection, line: str) -> ShellReply:
        if line.strip() not in _END_OF_TEXT:
            selection.lines.append(line)
            return ShellReply()
        self._selection = None
        if not selection.lines:
            raise InvalidArgument(
                "Nothing is selected", hint="Type the text after :select, or the number of a result."
            )
        return self.select(selection.text)

    def _show(self, query: ShellQuery, response: SearchResponse) -> str:
        words = self.words(response)
        if self.settings.as_json:
            return results_json(response, words)
        style = self.style()
        lines = [f'Query: "{one_line(query.question)}"'] if self.scripted and query.question else []
        info = self.retriever.open().info
        if self._generation not in ("", info.generation):
            lines.append(style.green(f"The book was indexed again: {plural(info.chunks, 'chunk')} now."))
        self._generation = info.generation
        return "\n".join([*lines, results(response, words, style, verbose=self.settings.verbose)])

"""A session: lines in, replies out. It knows what is set, what was asked and what was found, and nothing of a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from recto.cli.output import in_line
from recto.cli.shell.actions import ACTIONS, find_command
from recto.cli.shell.show import Look, wrapped
from recto.errors import InvalidArgument, RectoError
from recto.search.query import DEFAULT_TOP_K
from recto.types import NO_FILTERS, Filters, Hit, Mode, SearchResponse, Timings

_STEPS = ("embed", "search", "total")
_KEPT = 10_000


class Latency:
    """Collects the times of searches and puts them in a table."""

    def __init__(self) -> None:
        self._times: deque[Timings] = deque(maxlen=_KEPT)
        self.ready_ms: float | None = None

    def add(self, timings: Timings) -> None:
        """Note what a search took."""
        self._times.append(timings)

    def text(self) -> str:
        """Return the table."""
        ready = (
            ""
            if self.ready_ms is None
            else f"The model and the index were ready in {self.ready_ms:.0f} ms.\n"
        )
        if not self._times:
            return f"{ready}No searches yet."
        from recto._util.numbers import percentile

        count = len(self._times)
        lines = [f"{ready}{count} search{'' if count == 1 else 'es'}, in milliseconds:"]
        lines.append(f"{'':8}" + "".join(f"{name:>9}" for name in ("last", "p50", "p95", "max")))
        for name, values in zip(_STEPS, zip(*map(astuple, self._times), strict=True), strict=True):
            ordered = sorted(values)
            shown = (values[-1], percentile(ordered, 0.5), percentile(ordered, 0.95), ordered[-1])
            lines.append(f"{name:8}" + "".join(f"{value:9.1f}" for value in shown))
        return "\n".join(lines)


if TYPE_CHECKING:
    from recto.search.lexical import QueryWord
    from recto.search.retriever import Retriever

_END_OF_TEXT = ("", ".")


@dataclass(frozen=True, slots=True)
class View:
    """What is searched and how it is shown."""

    filters: Filters = NO_FILTERS
    top_k: int = DEFAULT_TOP_K
    min_score: float | None = None
    verbose: bool = False
    as_json: bool = False
    mode: Mode = "hybrid"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was searched for: a question, a selected text, or both."""

    question: str = ""
    selection: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """What was found for what was asked."""

    asked: Asked
    response: SearchResponse


@dataclass(frozen=True, slots=True)
class Reply:
    """What a line brought; `found` is whether a search had any results, `ends` whether it was the last line."""

    text: str = ""
    warnings: tuple[str, ...] = ()
    error: RectoError | None = None
    found: bool = True
    ends: bool = False


@dataclass(slots=True)
class _Selecting:
    """A selected text on its way: the pieces so far, and whether the question about it is what comes next."""

    pieces: list[str] = field(default_factory=list)
    whole: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.pieces)


class Session:
    """Answers lines one after the other."""

    def __init__(
        self,
        retriever: Retriever,
        view: View | None = None,
        look: Callable[[], Look] = Look,
        *,
        scripted: bool = False,
    ) -> None:
        self.retriever = retriever
        self.view = view or View()
        self.look = look
        self.latency = Latency()
        self.asked: Asked | None = None
        self._answered: Answered | None = None
        self.scripted = scripted
        self._selecting: _Selecting | None = None
        self._generation = ""
        self._warned: set[str] = set()

    @property
    def greeting(self) -> str:
        """What a person reads first."""
        info, look = self.retriever.open().info, self.look()
        text = f"{self.retriever.collection}: {info.chunks} passages. Ask a question; :help lists what else there is."
        return "\n".join(look.faint(line) for line in wrapped(text, look.width))

    @property
    def pasting(self) -> bool:
        """Whether lines are taken as parts of a selected text."""
        return self._selecting is not None and not self._selecting.whole

    @property
    def prompt(self) -> str:
        """What stands before the next line."""
        if self._selecting is not None:
            return "question> " if self._selecting.whole else "text> "
        filters = self.view.filters
        page = (filters.page_url or "").rstrip("/").rpartition("/")[2]
        narrowed = " ".join(part for part in (",".join(filters.modules), page) if part)
        return f"recto ({narrowed})> " if narrowed else "recto> "

    def warm_up(self) -> None:
        """Load what the first search needs; done beforehand, its time is not the first question's."""
        began = perf_counter()
        self.retriever.warm_up()
        if self.latency.ready_ms is None:
            self.latency.ready_ms = (perf_counter() - began) * 1e3

    def feed(self, line: str) -> Reply:
        """Answer a line; what goes wrong is in the reply."""
        try:
            selecting = self._selecting
            if selecting is not None and not selecting.whole:
                return self._paste(selecting, line)
            return self._line(line.strip())
        except RectoError as error:
            return Reply(error=error)

    def finish(self) -> Reply:
        """Answer the end of the input: it ends a selected text, or the session."""
        if self._selecting is None:
            return Reply(ends=True)
        if self.pasting:
            return self.feed(".")
        return self.feed("")

    def cancel(self) -> None:
        """Drop a selected text that was being asked about."""
        self._selecting = None

    def take_text(self) -> Reply:
        """Take the next lines as a selected text."""
        self._selecting = _Selecting()
        return self.told("Paste or type the text; an empty line ends it.")

    def select(self, text: str, question: str = "") -> Reply:
        """Take a text as selected, and search at once if there is a question about it."""
        if question:
            return self.search(Asked(question, text))
        self._selecting = _Selecting([text], whole=True)
        return self.told(
            f"{len(text.strip())} characters are selected. Ask about them, or press Enter to see what goes with them."
        )

    def told(self, text: str) -> Reply:
        """Say what a person wants to know and a script does not."""
        look = self.look()
        return (
            Reply()
            if self.scripted
            else Reply("\n".join(look.faint(line) for line in wrapped(in_line(text), look.width)))
        )

    def search(self, asked: Asked) -> Reply:
        """Search as things are set, and remember what for and what was found."""
        self.asked = asked
        self._selecting = None
        view = self.view
        self.warm_up()
        if asked.selection:
            question = asked.question or None
            response = self.retriever.related(
                asked.selection, question, view.top_k, view.filters, view.min_score, mode=view.mode
            )
        else:
            response = self.retriever.search(
                asked.question, view.top_k, view.filters, view.min_score, mode=view.mode
            )
        self._answered = Answered(asked, response)
        self.latency.add(response.timings)
        return Reply(self._answer(asked, response), self._new_warnings(response), found=bool(response.hits))

    def words(self, response: SearchResponse) -> tuple[QueryWord, ...]:
        """Return the words of a query that are marked in its results."""
        from recto.search.display import response_words

        return response_words(self.retriever, response)

    def answered(self) -> Answered:
        """Return the last answer, if it has results that a command can be about."""
        if self._answered is None or not self._answered.response.hits:
            raise InvalidArgument("There are no results to choose from", hint="Ask a question first.")
        return self._answered

    def hit(self, number: str) -> Hit:
        """Return the result of a number."""
        hits = self.answered().response.hits
        if (
            not number.isdecimal()
            or not number.isascii()
            or len(number) > 3
            or not 1 <= int(number) <= len(hits)
        ):
            raise InvalidArgument(
                f"There is no result {number[:20]!r}", hint=f"Give a number from 1 to {len(hits)}."
            )
        return hits[int(number) - 1]

    def switch(self, retriever: Retriever) -> None:
        """Search with another retriever from now on."""
        self.retriever = retriever
        self.asked = self._answered = None
        self._generation = ""

    def _line(self, text: str) -> Reply:
        if text.startswith(":") and not text.startswith("::"):
            name, _, argument = text[1:].partition(" ")
            return ACTIONS[find_command(name).name](self, argument.strip())
        question = text[1:] if text.startswith("::") else text
        if self._selecting is not None:
            return self.search(Asked(question, self._selecting.text))
        return self.search(Asked(question)) if question else Reply()

    def _paste(self, selecting: _Selecting, text: str) -> Reply:
        if text.strip() not in _END_OF_TEXT:
            selecting.pieces.append(text)
            return Reply()
        self._selecting = None
        if not selecting.pieces:
            raise InvalidArgument(
                "Nothing is selected",
                hint="Give the text after :select, or the number of a result behind it.",
            )
        return self.select(selecting.text)

    def _answer(self, asked: Asked, response: SearchResponse) -> str:
        from recto.cli.shell import show

        words = self.words(response)
        if self.view.as_json:
            return show.results_json(response, words)
        look = self.look()
        lines = [f'Query: "{in_line(asked.question)}"'] if self.scripted and asked.question else []
        lines += self._news(look)
        return "\n".join([*lines, show.results(response, words, look, verbose=self.view.verbose)])

    def _news(self, look: Look) -> list[str]:
        """Say that the index is another one than for the last question."""
        info = self.retriever.open().info
        before, self._generation = self._generation, info.generation
        return (
            [look.good(f"The book was indexed again: {info.chunks} passages now.")]
            if before not in ("", info.generation)
            else []
        )

    def _new_warnings(self, response: SearchResponse) -> tuple[str, ...]:
        new = tuple(warning for warning in response.warnings if warning not in self._warned)
        self._warned.update(new)
        return new

"""How far an index run is: a bar on a terminal, plain lines in a log, nothing on a pipe."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from recto.cli.runner import notify
from recto.indexing.indexer import IndexProgress, Watcher

_EVERY_SECONDS = 10.0


@contextmanager
def shown() -> Iterator[Watcher | None]:
    """Show an index run in the way that fits where standard error goes."""
    if sys.stderr.isatty():
        with _bar() as watcher:
            yield watcher
    elif _is_log():
        yield Lines()
    else:
        yield None


def _is_log() -> bool:
    """Whether standard error is a file or the system's journal, where someone reads later."""
    try:
        mode = os.fstat(sys.stderr.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # no real stream
        return False
    return stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


class Rate:
    """Tokens per second since the first was embedded, and the time that the rest will take."""

    def __init__(self) -> None:
        self._began = 0.0

    def __call__(self, now: IndexProgress) -> tuple[float, float | None]:
        """Return the speed and the seconds left, if they are known."""
        if now.plan is None or not now.tokens:
            self._began = monotonic()
            return 0.0, None
        speed = now.tokens / max(monotonic() - self._began, 1e-3)
        return speed, max(0, now.plan.tokens - now.tokens) / speed


class Lines:
    """A line when the book is read, then one every few seconds."""

    def __init__(self) -> None:
        self._next = 0.0
        self._planned = False
        self._rate = Rate()

    def __call__(self, now: IndexProgress) -> None:
        """Tell what has become of the run, if enough has happened since the last line."""
        speed, left = self._rate(now)
        if now.plan is not None and not self._planned:
            self._planned = True
            self._next = monotonic() + _EVERY_SECONDS
            notify(
                f"Read {now.pages} pages: {now.chunks} passages, {now.plan.texts} to embed ({now.plan.tokens} tokens)."
            )
        elif monotonic() >= self._next:
            if self._next:
                notify(_line(now, speed, left))
            self._next = monotonic() + _EVERY_SECONDS


def _line(now: IndexProgress, speed: float, left: float | None) -> str:
    if now.plan is None:
        return f"Reading: {now.pages} pages, {now.chunks} passages."
    return f"Indexing: {now.done} of {now.chunks} passages, {_pace(speed, left)}."


def _pace(speed: float, left: float | None) -> str:
    if left is None:
        return "nothing embedded yet"
    minutes, seconds = divmod(round(left), 60)
    return f"{speed:,.0f} tokens/s, {minutes}:{seconds:02} left"


@contextmanager
def _bar() -> Iterator[Watcher]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[pace]}"),
    )
    rate = Rate()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading the book", total=None, pace="")

        def update(now: IndexProgress) -> None:
            speed, left = rate(now)
            if now.plan is None:
                bar.update(task, description=f"Reading: {now.pages} pages, {now.chunks} passages")
                return
            # The bar moves with the tokens: they are what takes the time.
            total, completed = (now.plan.tokens, now.tokens) if now.plan.tokens else (now.chunks, now.done)
            text = f"{now.pages} pages, {now.done}/{now.chunks} passages"
            bar.update(task, description=text, total=total, completed=completed, pace=_pace(speed, left))

        yield update

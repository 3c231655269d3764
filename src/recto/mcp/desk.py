"""The book that the server reads from: opened in the background, and tried again as long as it cannot be opened."""

from __future__ import annotations

from asyncio import Task, create_task, gather, to_thread, wait
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from recto.errors import ErrorKind, RectoError
from recto.remote import Tell
from recto.retriever import Retriever

_PATIENCE = 20.0  # seconds; clients give a tool about a minute, and the very first run indexes a book


class StillOpening(RectoError):
    """The book is being opened or indexed, and that takes longer than a caller should wait."""

    kind = ErrorKind.BUSY
    label = ""


class Desk:
    """Hands out the retriever once `prepare` has succeeded; until then every request tries it, so that none needs a restart."""

    def __init__(self, retriever: Retriever, prepare: Callable[[], object], tell: Tell, patience: float = _PATIENCE) -> None:
        self._retriever = retriever
        self._prepare = prepare
        self._tell = tell
        self._patience = patience
        self._opening: Task[object] | None = None
        self._is_open = False

    async def retriever(self) -> Retriever:
        """Return the retriever of a collection that could be searched when it was opened."""
        if not self._is_open:
            await self._open()
        return self._retriever

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Begin to open the book without keeping anyone waiting, and let go of this event loop's connections at the end."""
        beginning = create_task(self._begin())
        try:
            yield
        finally:
            beginning.cancel()
            await gather(beginning, return_exceptions=True)  # what went wrong in it, the next request meets again and reports
            await self._retriever.aclose()

    async def _begin(self) -> None:
        try:
            retriever = await self.retriever()
            await to_thread(retriever.embedder.warm_up)
        except StillOpening:
            pass  # it goes on, and whoever opens it tells how far it is
        except RectoError as error:
            self._tell(f"[WARNING] {error}. {error.hint}".rstrip())

    async def _open(self) -> None:
        """Open the book, or wait for whoever is doing it, but not for ever."""
        if self._opening is None or self._opening.done():
            self._opening = create_task(to_thread(self._prepare))
        opening = self._opening
        if not (await wait({opening}, timeout=self._patience))[0]:
            raise StillOpening("The book is still being opened or indexed", hint="Ask again in a minute.")
        opening.result()
        self._is_open = True

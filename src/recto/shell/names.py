"""The names that can be completed, kept at hand: completion never waits for an engine and never fails with it."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from recto.errors import RectoError

if TYPE_CHECKING:
    from recto.protocols import Index
    from recto.shell.session import Session

_PATIENCE = 2.0  # seconds that leaving waits for work that is under way


class Names:
    """Modules, pages and collections as they were when they were last looked up, in the background."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._index: Index | None = None
        self._thread: threading.Thread | None = None
        self.modules: tuple[str, ...] = ()
        self.pages: tuple[str, ...] = ()
        self.collections: tuple[str, ...] = ()

    def begin(self) -> None:
        """Load the model and look the names up while the first question is being typed."""
        self._start(load=True)

    def refresh(self) -> None:
        """Look the names up again if another index is there, unless that is under way."""
        if self._thread is None or not self._thread.is_alive():
            self._start(load=False)

    def close(self) -> None:
        """Let work that is under way end, for a moment."""
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _start(self, *, load: bool) -> None:
        self._thread = threading.Thread(target=self._work, args=(load,), name="recto-shell", daemon=True)
        self._thread.start()

    def _work(self, load: bool) -> None:
        with suppress(RectoError):  # whoever asks a question is told of it then; here the names of before stay
            self._look_up()
            if load:
                self._session.warm_up()

    def _look_up(self) -> None:
        retriever = self._session.retriever
        index = retriever.open()
        if index is self._index:
            return
        self.modules = tuple(index.modules())
        self.pages = tuple(index.pages())
        self.collections = tuple(sorted({*retriever.store.collections(), *retriever.store.aliases()}))
        self._index = index

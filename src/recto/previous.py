"""The current index as the next run sees it: what is there, and what of it can be used again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from recto.errors import CollectionMissing, IndexDamaged
from recto.protocols import Embedder, Index, Store
from recto.types import Chunk


class PageState(StrEnum):
    """What happens to a page: `KEPT` could not be read now, its old version stays."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    GONE = "gone"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class PagePlan:
    """A page, how many chunks it has, and what happens to it; `position` is zero if it was not read now."""

    path: str
    url: str
    module: str
    chunks: int
    state: PageState
    module_title: str = ""
    position: int = 0


class Previous:
    """The current index as far as a plan needs it: what its chunks are, where a text's vector is, which pages it has."""

    def __init__(self, index: Index, *, reusable: bool) -> None:
        self.index = index
        self.reusable = reusable
        self._states: dict[str, int] = {}
        self._texts: dict[bytes, str] = {}
        self.pages: dict[str, PagePlan] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._revisions: dict[str, str] = {}
        self._totals: dict[str, int] = {}
        self.books: set[str] = set()
        for chunk in index.scroll():
            self._note(chunk)

    def _note(self, chunk: Chunk) -> None:
        known = self.pages.get(chunk.source)
        count = known.chunks + 1 if known else 1
        self.pages[chunk.source] = PagePlan(chunk.source, chunk.page_url, chunk.module_name, count, PageState.GONE, chunk.module_title)
        self._keys[chunk.source] = chunk.module_keys
        if self._revisions.setdefault(chunk.source, chunk.revision) != chunk.revision:
            self._revisions[chunk.source] = ""  # a run that changed it in place was interrupted
        self._totals[chunk.source] = chunk.total_chunks
        self.books.add(chunk.book)
        self._states[chunk.id] = hash(chunk)
        if self.reusable:
            self._texts[bytes.fromhex(chunk.content_hash)] = chunk.id

    def __len__(self) -> int:
        """How many chunks there are."""
        return len(self._states)

    def has(self, chunk: Chunk) -> bool:
        """Whether the very same chunk is there, with a vector that can stay."""
        return self.reusable and self._states.get(chunk.id) == hash(chunk)

    def id_of(self, content_hash: str) -> str | None:
        """Return a chunk that has a text's vector."""
        return self._texts.get(bytes.fromhex(content_hash))

    def is_same(self, path: str, revision: str) -> bool:
        """Whether a page was read in the very same way before, so that reading it again would give the same chunks."""
        known = self.pages.get(path)
        return self.reusable and known is not None and self._revisions[path] == revision and known.chunks == self._totals[path]

    def module_keys(self, path: str) -> tuple[str, ...]:
        """Return the names of a page's module."""
        return self._keys[path]


def current_state(store: Store, collection: str, embedder: Embedder, *, reuse: bool = True) -> Previous | None:
    """Read the collection's own current index, if there is one whose chunks can be understood."""
    with suppress(CollectionMissing, IndexDamaged):
        index = store.open(collection)
        made = index.info.fingerprint
        if made is not None and index.info.collection == collection:
            return Previous(index, reusable=reuse and made.embedder.is_compatible(embedder.fingerprint))
    return None

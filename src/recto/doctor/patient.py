"""What the checks share: they fill it in one after the other; what one could not open, the next ones do without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from recto.plan import Plan
from recto.protocols import Embedder, Index, Source, Store
from recto.settings import QUERY_COLLECTION, SAMPLE_COLLECTION, Settings


@dataclass(slots=True)
class Patient:
    """The parts of one set-up, as far as they could be opened."""

    environment: Mapping[str, str]
    directory: Path | None
    asked: str | None
    everything: bool = False
    settings: Settings | None = None
    embedder: Embedder | None = None
    store: Store | None = None
    index: Index | None = None
    source: Source | None = None
    plan: Plan | None = None
    told: list[str] = field(default_factory=list)

    @property
    def collection(self) -> str:
        """The name that is examined."""
        return self.asked or (self.settings.collection_or(QUERY_COLLECTION) if self.settings else QUERY_COLLECTION)

    def index_command(self, *, rebuild: bool = False) -> str:
        """Return the command that makes the index again; with `rebuild`, all of it, whatever seems unchanged."""
        info = self.index.info if self.index else None
        more = " --rebuild" if rebuild else ""
        if info is not None and info.collection == SAMPLE_COLLECTION:
            return f"recto index --sample{more}"
        source = quote(info.fingerprint.source) if info is not None and info.fingerprint else "PATH"
        return f"recto index {source} --collection {info.collection if info else self.collection}{more}"

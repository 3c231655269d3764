"""The Qdrant server store, for a server, Qdrant Cloud or a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from recto.errors import missing_extra
from recto.settings import Settings

if TYPE_CHECKING:
    from recto.stores.qdrant.store import ServerStore


def open_server(settings: Settings, notify: Callable[[str], None]) -> ServerStore:
    """Return the store on the configured Qdrant server."""
    try:
        from recto.stores.qdrant.connection import Connection
        from recto.stores.qdrant.dialects import load_dialect
        from recto.stores.qdrant.store import ServerStore
    except ImportError as error:
        raise missing_extra("A Qdrant server", "cloud") from error
    connection = Connection(settings.qdrant_url, settings.qdrant_api_key, notify)
    dialect = load_dialect(Path(settings.dialect)) if settings.dialect else None
    return ServerStore(connection, settings.home, settings.server, dialect, settings.keep_generations)

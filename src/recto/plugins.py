"""Find embedders, stores, readers and sources: the built-in ones and those of installed plugins.

A plugin is a distribution with entry points in one of four groups:

- `recto.embedders` and `recto.stores`: `factory(settings, notify)` returns an `Embedder` or a `Store`. Choose it by its
  name in `RECTO_EMBEDDER` or `RECTO_STORE`.
- `recto.readers`: the name is a file suffix without the dot, the value is `read(page) -> Document`.
- `recto.sources`: the name is a URL scheme, the value is `factory(location, settings, notify) -> Source`.

The built-in embedders and stores have factories of the same form. They are listed here, because scanning the installed
distributions takes longer than opening the store.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from recto.errors import ConfigurationError

if TYPE_CHECKING:
    from recto.protocols import Embedder, Source, Store
    from recto.settings import Settings

EMBEDDERS, STORES, READERS, SOURCES = "recto.embedders", "recto.stores", "recto.readers", "recto.sources"
BUILT_IN: dict[str, dict[str, str]] = {
    EMBEDDERS: {"local": "recto.embedders.local:open_local", "cohere": "recto.embedders.cohere:open_cohere"},
    STORES: {"edge": "recto.stores.edge.store:open_edge", "server": "recto.stores.qdrant.store:open_server"},
}

Notify = Callable[[str], None]
"""Called with a sentence about what is going on, for people."""


def open_embedder(settings: Settings, notify: Notify) -> Embedder:
    """Return the embedder that the settings name. The model is loaded when it is first used."""
    embedder: Embedder = load(EMBEDDERS, settings.embedder)(settings, notify)
    return embedder


def open_store(settings: Settings, notify: Notify) -> Store:
    """Return the store that the settings name. Nothing is opened yet."""
    store: Store = load(STORES, settings.store)(settings, notify)
    return store


def open_source(scheme: str, location: str, settings: Settings, notify: Notify) -> Source | None:
    """Return the source of a plugin for a URL scheme, or None if no plugin has the scheme."""
    if scheme not in plugin_names(SOURCES):
        return None
    source: Source = load(SOURCES, scheme)(location, settings, notify)
    return source


def plugin_names(group: str) -> tuple[str, ...]:
    """Return the names that installed plugins add to a group."""
    from importlib.metadata import entry_points

    return tuple(sorted(point.name for point in entry_points(group=group)))


def load(group: str, name: str) -> Any:
    """Return the object that a name stands for in a group.

    Raises `ConfigurationError` if there is no such name, or if the plugin cannot be imported.
    """
    if target := BUILT_IN.get(group, {}).get(name):
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)
    from importlib.metadata import entry_points

    for point in entry_points(group=group, name=name):
        try:
            return point.load()
        except Exception as error:
            distribution = point.dist.name if point.dist else "a plugin"
            raise ConfigurationError(
                f"The plugin {name!r} of {distribution} cannot be loaded: {type(error).__name__}: {error}",
                hint=f"Reinstall {distribution}, or report this to its authors.",
            ) from error
    known = ", ".join((*BUILT_IN.get(group, {}), *plugin_names(group)))
    raise ConfigurationError(f"There is no {name!r} in {group}", hint=f"Installed: {known}.")

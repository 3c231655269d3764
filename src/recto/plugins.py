"""Find embedders, stores, readers and sources, built in or from installed plugins.

A plugin is a distribution with entry points in one of five groups:

- `recto.embedders` and `recto.stores`: `factory(settings, notify)` returns an `Embedder` or a `Store`.
  Its name in `RECTO_EMBEDDER` or `RECTO_STORE` selects it.
- `recto.readers`: the name is a file suffix without the dot, the value is a `Reader`.
- `recto.volumes`: the name is the suffix of a reader whose files hold many pages, such as EPUB;
  `split(data)` returns the `Volume` of a file, and the reader parses each of its parts.
- `recto.sources`: the name is the scheme of a location, such as `zip` in `zip:book.zip`;
  `factory(location, settings, notify)` returns a `Source`.

The built-in embedders and stores have factories of the same form. They are listed here, because scanning the
installed distributions takes longer than opening the store.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from recto.errors import ConfigurationError, RectoError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from recto.protocols import Embedder, Reader, Source, Store
    from recto.types.book import Volume

EMBEDDERS, STORES, READERS, SOURCES = "recto.embedders", "recto.stores", "recto.readers", "recto.sources"
VOLUMES = "recto.volumes"
BUILT_IN_PARTS: dict[str, dict[str, str]] = {
    EMBEDDERS: {
        "local": "recto.embedders.local:open_local",
        "cohere": "recto.embedders.cohere:open_cohere",
        "openai": "recto.embedders.openai:open_openai",
    },
    STORES: {"edge": "recto.stores.edge:open_edge", "server": "recto.stores.qdrant:open_server"},
}

Notify = Callable[[str], None]
"""Called with a sentence about what is going on, for people."""


class PartNames(Protocol):
    """The settings that name the parts. `Settings` itself cannot be imported: its module needs this one."""

    @property
    def embedder(self) -> str:
        """A name in `recto.embedders`."""

    @property
    def store(self) -> str:
        """A name in `recto.stores`."""


def open_embedder(settings: PartNames, notify: Notify) -> Embedder:
    """Return the embedder that the settings name. The model is loaded when it is first used."""
    embedder: Embedder = _make(EMBEDDERS, settings.embedder, settings, notify)
    return embedder


def open_store(settings: PartNames, notify: Notify) -> Store:
    """Return the store that the settings name. Nothing is opened yet."""
    store: Store = _make(STORES, settings.store, settings, notify)
    return store


def open_source(scheme: str, location: str, settings: PartNames, notify: Notify) -> Source:
    """Return the book at a location that a plugin reads."""
    source: Source = _make(SOURCES, scheme, location, settings, notify)
    return source


def load_reader(name: str) -> Reader:
    """Return the reader of a file suffix that a plugin adds."""
    reader: Reader = _load(READERS, name)
    return reader


def load_splitter(name: str) -> Callable[[bytes], Volume]:
    """Return the function of a plugin that splits files of a suffix into pages."""
    split: Callable[[bytes], Volume] = _load(VOLUMES, name)
    return split


def plugin_names(group: str) -> tuple[str, ...]:
    """Return the names that installed plugins add to a group."""
    from importlib.metadata import entry_points

    return tuple(sorted({point.name for point in entry_points(group=group)}))


def plugin_version(group: str, name: str) -> str:
    """Return the distribution of a plugin and its version."""
    distribution = _find(group, name).dist
    return f"{distribution.name} {distribution.version}" if distribution else ""


def choices(group: str) -> tuple[str, ...]:
    """Return all names of a group: the built-in parts first, then the plugins."""
    return tuple(dict.fromkeys((*BUILT_IN_PARTS.get(group, {}), *plugin_names(group))))


def install_hint(group: str) -> str:
    """Return how to add a name to a group."""
    return f"A plugin that adds it to {group} must be installed in the same environment as Recto."


def _make(group: str, name: str, *arguments: Any) -> Any:
    """Call the factory of a name; an error of a plugin names its distribution."""
    factory = _load(group, name)
    try:
        return factory(*arguments)
    except RectoError:
        raise
    except Exception as error:
        if name in BUILT_IN_PARTS.get(group, {}):
            raise
        raise _failed(_find(group, name), "opened", error) from error


def _load(group: str, name: str) -> Any:
    """Import the object of a name."""
    if target := BUILT_IN_PARTS.get(group, {}).get(name):
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)
    point = _find(group, name)
    try:
        return point.load()
    except Exception as error:
        raise _failed(point, "loaded", error) from error


def _find(group: str, name: str) -> EntryPoint:
    """Return the entry point of a name; raise an error if no plugin has it, or more than one."""
    from importlib.metadata import entry_points

    points = tuple(entry_points(group=group, name=name))
    if not points:
        installed = ", ".join(choices(group)) or "nothing"
        raise ConfigurationError(
            f"There is no {name!r} in {group}", hint=f"Installed: {installed}. {install_hint(group)}"
        )
    if len(points) > 1:
        names = " and ".join(sorted(map(_distribution, points)))
        raise ConfigurationError(f"{names} both have {name!r} in {group}", hint="Uninstall one of them.")
    return points[0]


def _failed(point: EntryPoint, what: str, error: Exception) -> ConfigurationError:
    distribution = _distribution(point)
    return ConfigurationError(
        f"The plugin {point.name!r} of {distribution} cannot be {what}: {type(error).__name__}: {error}",
        hint=f"Reinstall {distribution}, or report this to its authors.",
    )


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module

"""Choose the local model that the settings name: the built-in one, a directory, or one that fastembed knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from recto.errors import ConfigurationError
from recto.protocols import Embedder
from recto.settings import BUILT_IN_MODEL, Settings


def open_local(settings: Settings, _: Callable[[str], None]) -> Embedder:
    """Return the embedder of a local model. The model is loaded when it is first used."""
    if settings.model in (BUILT_IN_MODEL, f"ibm-granite/{BUILT_IN_MODEL}"):
        from recto.embedders.granite.embedder import granite_embedder

        return granite_embedder(
            settings.home, settings.threads, settings.precision, single_query=settings.single_query
        )
    if settings.precision == "int8":
        raise ConfigurationError(
            f"RECTO_PRECISION=int8 is for the built-in model, not for {settings.model}",
            hint="Unset one of the two.",
        )
    directory = Path(settings.model).expanduser()
    if directory.is_dir():
        from recto.embedders.directory import directory_embedder

        return directory_embedder(directory, settings.home, settings.threads)
    if settings.model.startswith((".", "~", "/")) or directory.is_absolute():
        raise ConfigurationError(
            f"RECTO_MODEL: there is no directory {settings.model}", hint="Unset it for the built-in model."
        )
    from recto.embedders.fastembed import HubEmbedder

    return HubEmbedder(settings.model, settings.threads)

"""The one error tree: each error has a message, a hint (what to do about it) and a kind that leaves map to their own codes."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class ErrorKind(StrEnum):
    """What went wrong, as far as an exit code or an HTTP status needs to know."""

    ARGUMENT = "argument"
    CONFIGURATION = "configuration"
    MISSING = "missing"
    EMPTY = "empty"
    CONNECTION = "connection"
    STORAGE = "storage"
    BUSY = "busy"
    DAMAGED = "damaged"


class RectoError(Exception):
    """Something the user can do something about; `hint` says what."""

    kind: ClassVar[ErrorKind]
    label: ClassVar[str]

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """The message behind its label, as every surface shows it."""
        return f"{self.label}: {self.message}" if self.label else self.message


class InvalidArgument(RectoError, ValueError):
    """A value that the caller passed cannot be used."""

    kind = ErrorKind.ARGUMENT
    label = "Invalid argument"


class InvalidQuery(InvalidArgument):
    """The query text itself cannot be used."""

    label = ""


class ConfigurationError(RectoError):
    """The settings are incomplete, contradictory, or do not fit what is installed or indexed."""

    kind = ErrorKind.CONFIGURATION
    label = "Configuration error"


class InvalidOption(ConfigurationError, ValueError):
    """An option that the caller passed does not fit the book."""


def install_command(extra: str = "") -> str:
    """Return the command that installs Recto, with an extra if one is named, from its wheel."""
    from recto import __version__

    wheel = f"recto_search-{__version__}-py3-none-any.whl"
    return f"pip install '{wheel}[{extra}]'" if extra else f"pip install {wheel}"


def missing_extra(what: str, extra: str) -> ConfigurationError:
    """Return the error for a package that is installed only on request."""
    return ConfigurationError(
        f"{what} needs the extra `{extra}`",
        hint=f"Install it with: {install_command(extra)} (in a checkout: uv sync --extra {extra})",
    )


class FingerprintMismatch(ConfigurationError):
    """An index was made with another model, dimension or distance than the one in use."""


class CollectionMissing(ConfigurationError):
    """No collection answers to the name."""

    kind = ErrorKind.MISSING


class CollectionEmpty(ConfigurationError):
    """The collection exists and holds no chunks."""

    kind = ErrorKind.EMPTY


class PageMissing(RectoError):
    """The collection has no such page, or the page no such section."""

    kind = ErrorKind.MISSING
    label = "Not found"


class Unreachable(RectoError):
    """A service or engine cannot be reached."""

    kind = ErrorKind.CONNECTION
    label = "Connection error"


class EmbeddingError(Unreachable):
    """The embedder failed or returned vectors that cannot be used."""

    label = "Embedding error"


class StorageError(RectoError):
    """The disk or its permissions do not let the work be done."""

    kind = ErrorKind.STORAGE
    label = "Storage error"


class StoreBusy(RectoError):
    """Another process is writing to the same collection."""

    kind = ErrorKind.BUSY
    label = "Storage error"


class IndexDamaged(RectoError):
    """An index on disk is not what its manifest says."""

    kind = ErrorKind.DAMAGED
    label = "Storage error"

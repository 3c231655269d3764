"""All errors: each has a message, a hint (what to do) and a kind, which entry points map to their codes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import ClassVar


class ErrorKind(StrEnum):
    """The kind of an error, which determines the exit code or HTTP status."""

    ARGUMENT = "argument"
    CONFIGURATION = "configuration"
    MISSING = "missing"
    EMPTY = "empty"
    CONNECTION = "connection"
    STORAGE = "storage"
    BUSY = "busy"
    DAMAGED = "damaged"


class RectoError(Exception):
    """An error that the user can fix; `hint` says how."""

    kind: ClassVar[ErrorKind]
    label: ClassVar[str]

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return the label and the message, as every entry point shows them."""
        return f"{self.label}: {self.message}" if self.label else self.message


class InvalidArgument(RectoError, ValueError):
    """A value that the caller passed cannot be used."""

    kind = ErrorKind.ARGUMENT
    label = "Invalid argument"


class InvalidQuery(InvalidArgument):
    """The query text itself cannot be used."""

    label = ""


class ConfigurationError(RectoError):
    """The settings are incomplete, contradictory, or do not match what is installed or indexed."""

    kind = ErrorKind.CONFIGURATION
    label = "Configuration error"


class UrlsChange(InvalidArgument):
    """A run would give most pages of a published book other URLs."""


class InvalidOption(ConfigurationError, ValueError):
    """An option that the caller passed does not fit the book."""


def install_command(extra: str = "", *, again: bool = False) -> str:
    """Return the command that installs Recto in a checkout or from a wheel, with an extra if one is given."""
    from recto import __version__

    if (Path(__file__).parents[2] / "uv.lock").is_file():
        return "uv sync" + (f" --extra {extra}" if extra else "") + (" --reinstall" if again else "")
    wheel = f"recto_search-{__version__}-py3-none-any.whl"
    command = f"pip install '{wheel}[{extra}]'" if extra else f"pip install {wheel}"
    return f"{command} --force-reinstall" if again else command


def missing_extra(what: str, extra: str) -> ConfigurationError:
    """Return the error for an optional dependency that is not installed."""
    return ConfigurationError(
        f"{what} needs the extra `{extra}`",
        hint=f"Install it with: {install_command(extra)}",
    )


class FingerprintMismatch(ConfigurationError):
    """An index was made with another model, dimension or distance than the current one."""


class FormatMismatch(ConfigurationError):
    """An index or an archive has the format of another version of Recto, which this one does not read."""


def other_format(what: str, version: int, readable: int, upgrade: str) -> FormatMismatch:
    """Return the error for something of another format; `upgrade` says what to do if it is an older one."""
    age = "an older" if version < readable else "a newer"
    return FormatMismatch(
        f"{what} was made by {age} version of Recto (format {version}; this version reads {readable})",
        hint=upgrade if version < readable else "Install a newer version of Recto. Nothing was changed.",
    )


class CollectionMissing(ConfigurationError):
    """There is no collection or alias with this name."""

    kind = ErrorKind.MISSING


class CollectionEmpty(ConfigurationError):
    """The collection exists, but has no chunks."""

    kind = ErrorKind.EMPTY


class PageMissing(RectoError):
    """The collection has no such page, or the page has no such section."""

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
    """A file cannot be read or written: the disk is full, or permissions are missing."""

    kind = ErrorKind.STORAGE
    label = "Storage error"


class StoreBusy(RectoError):
    """Another process is writing to the same collection."""

    kind = ErrorKind.BUSY
    label = "Storage error"


class IndexDamaged(RectoError):
    """An index on disk does not match its manifest."""

    kind = ErrorKind.DAMAGED
    label = "Storage error"

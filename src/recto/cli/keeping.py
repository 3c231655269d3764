"""Keep a command's report where the service's health view finds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from recto.cli.running import warn
from recto.errors import StorageError
from recto.settings import load_settings


def keep(write: Callable[[Path], None]) -> None:
    """Write into RECTO_HOME; where that cannot be, the report itself is still worth showing."""
    try:
        write(load_settings().home)
    except StorageError as error:
        warn(f"The report is not kept for the health view: {error}")

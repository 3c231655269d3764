"""Read the object that a JavaScript or TypeScript configuration file exports, as text: nothing is ever run."""

from __future__ import annotations

from recto.book.sites.javascript.reader import read_exported
from recto.book.sites.javascript.values import UNDEFINED, Undefined, Unknown, Value, shown, unknown

__all__ = ["UNDEFINED", "Undefined", "Unknown", "Value", "read_exported", "shown", "unknown"]

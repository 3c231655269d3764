"""Write JSON and nothing else: to standard output, or to a file that is replaced whole."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from recto.atomic import replace_text
from recto.errors import InvalidArgument

_TRICKS = re.compile(r"[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def json_text(document: Any) -> str:
    """Return a document as JSON that every parser reads; characters that play tricks on a terminal are escaped."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    text = text.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair is no character
    return _TRICKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def write_stdout(text: str) -> None:
    """Write to standard output as UTF-8, which JSON always is."""
    if sys.stdout is None:  # closed by whoever started us
        return
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
    else:
        binary.write(text.encode("utf-8"))
    sys.stdout.flush()


def abandon_stdout() -> None:
    """Let the rest go nowhere; Python would complain once more while it closes the stream."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def check_target(path: Path, flag: str) -> None:
    """Refuse a file that could not be written, before the work and not after it."""
    try:
        if path.exists() and not path.is_file():
            raise InvalidArgument(f"{flag} {path} is not a file", hint="Name a file.")
        usable = path.resolve().parent.is_dir() and os.access(path.resolve().parent, os.W_OK)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{flag} cannot be used: {error}", hint="Name a file.") from None
    if not usable:
        raise InvalidArgument(f"{flag} {path} cannot be written: there is no such directory, or it is read-only", hint="Name another file.")


def write_file(path: Path, text: str, flag: str) -> None:
    """Replace a file whole; a link stays a link."""
    try:
        replace_text(path.resolve(), text)
    except OSError as error:
        raise InvalidArgument(f"{flag} {path} cannot be written: {error.strerror or error}", hint="Name another file.") from None

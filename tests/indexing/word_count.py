"""What worker processes import: it counts tokens, or ends the process."""

from __future__ import annotations

import os
import signal
import sys

from recto.errors import ConfigurationError


def count_words(text: str, parent: int = 0) -> int:
    """Count words; some words do other things, in a worker only."""
    if os.getpid() != parent:
        if "deadly" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if "noisy" in text:
            sys.stdout.write("This is not an answer.\n")
            sys.stdout.flush()
    if "fatal" in text:
        raise ConfigurationError("The tokenizer is missing", hint="Install it.")
    return len(text.split())


def end_at_once(remote: bytes) -> None:
    """End a worker before it can read."""
    os._exit(3)
